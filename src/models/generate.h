#pragma once
// Decoding: a batch of sequences continued token by token.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/decoder.h"
#include "models/sampling.h"

namespace fovea::models {

enum class Cache {
  use,   // each layer's DecodeState: a step costs one token
  none,  // every step runs the whole sequence again: the oracle
};

// A batch of equally long sequences being continued.
class Continuation {
 public:
  // Sequences of up to max_length tokens. Where a layer's method cannot decode step by step, the
  // whole sequence is run again and the log says so once. Throws ShapeError where learned positions
  // end before max_length, or an attention does (attention::longest).
  Continuation(Ctx& ctx, DecoderLm& model, int batch, int max_length, Cache cache);

  // Appends ids [B,n] (CPU, i32; n >= 1) and returns the logits of the token after the last: [B,V]
  // in the compute dtype.
  Tensor append(Ctx& ctx, const Tensor& ids);
  bool cached() const { return state_ != nullptr; }

 private:
  DecoderLm& model_;
  std::int64_t max_length_;
  std::unique_ptr<DecoderState> state_;  // null: recomputed
  Tensor all_;                           // recomputed: every token so far, i32 [B,n] on the CPU
};

// The most probable token after each prompt, `new_tokens` times; the lowest id wins ties. Prompts
// have at least one token; equally long ones are run as one batch. Records nothing and draws
// nothing, whatever ctx says. Returns the new tokens only, in the prompts' order. Throws
// ShapeError.
std::vector<std::vector<std::int32_t>> greedy(Ctx& ctx, DecoderLm& model,
                                              std::span<const std::vector<std::int32_t>> prompts,
                                              int new_tokens, Cache cache = Cache::use);

// Continues one prompt of at least one token by up to `new_tokens`, and gives each to `take` as
// soon as it is chosen, until that returns false. There is no longest sequence: where learned
// positions (at block_size) or an attention (attention::longest) end, every further token is
// predicted from as many tokens before it, run again as a sequence of their own; the log says so
// once. Records nothing, whatever ctx says. Throws ShapeError, and NumericError naming the new
// token.
void continue_prompt(Ctx& ctx, DecoderLm& model, std::span<const std::int32_t> prompt,
                     const Sampler& sampler, std::int64_t new_tokens,
                     const std::function<bool(std::int32_t)>& take);

}  // namespace fovea::models
