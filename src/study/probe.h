#pragma once
// `fovea probe`: what SPA's S does to a trained model's attention on real tokens, beside what the
// theory claims and what it should gain. Source: spa.md 3.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "study/peers.h"
#include "study/probe_head.h"
#include "train/layer_tokens.h"

namespace fovea::study {

// How much faster attention is with d' wide queries and keys, S folded into the projections.
struct ProbeSpeed {
  AttentionSize dense;  // of one sequence; S's differs in qk_dim
  int projected = 0;
  double forward_limit = 0, backward_limit = 0;  // (d_k + d_v) / (d' + d_v); of products alone
  double on_tokens = 0;    // the limit of forward with S multiplied to tokens, at this length
  double flops = 0;        // forward of S's scores and outputs: 2 (d' + d_v) a pair that is seen
  double dense_flops = 0;  // the same pairs, d_k wide
  // Of exact attention at both widths on this device, ms of one sequence; 0: not timed.
  double dense_forward_ms = 0, dense_backward_ms = 0, forward_ms = 0, backward_ms = 0;
};

// Over fewer seeds no mean can be told from I: n equal draws are sqrt(n) standard errors away,
// whatever they are.
inline constexpr int kLeastSeeds = 100;

// The mean of S S^T over many seeds against I.
struct Unbiased {
  int seeds = 0;
  std::optional<double> worst;  // in standard errors, of all elements; none: not checked
  std::string why_none;
  // 5; more for an S wider than a head's, where so many elements reach 5 by chance.
  double bound = 5;
  bool holds() const { return !worst || *worst <= bound; }
};

struct LayerProbe {
  int layer = 0;
  std::string s;
  std::vector<HeadProbe> heads;
  ProbeSpeed speed;
  std::optional<Unbiased> unbiased;  // of fixed patterns with random signs
};

struct ProbeResult {
  train::RunTokens run;
  std::vector<LayerProbe> layers;
  bool passed() const;
};

struct ProbeAsk {
  train::LayerTokensAsk tokens;
  double seconds = 0.1;  // timed of each direction and width; 0: nothing is timed
  int seeds = 1000;      // of Unbiased; 0: not tried
};

// `stream`: where times are taken; its host threads compute the rest. Throws as layer_tokens().
ProbeResult probe(Stream& stream, const ProbeAsk& ask);

// Over seeds 1 to `seeds`; below kLeastSeeds nothing is drawn.
Unbiased unbiased(const attention::spa::PatternChoice& pattern, int seeds);
// The same of any S [in,out], row-major, that a seed gives.
using Draw = std::function<std::vector<double>(std::uint64_t seed)>;
Unbiased unbiased(const Draw& draw, int in, int out, int seeds);

// A table for people; a list of records {"layer","head",...} with spa.md's names, and one of
// layers.
std::string text_of(const ProbeResult& result);
std::string heads_json(const ProbeResult& result);
std::string layers_json(const ProbeResult& result);

}  // namespace fovea::study
