#pragma once
// What Linformer's causal forms remember while decoding, and how samples take their steps.

#include <functional>
#include <vector>

#include "attention/attention.h"
#include "attention/past_samples.h"

namespace fovea::attention {

class LinformerState final : public DecodeState {
 public:
  // `parts`: the memory, samples on the first axis of each.
  LinformerState(std::vector<Tensor> parts, std::int64_t max_length);

  std::int64_t length() const override { return lengths_.longest(); }
  std::int64_t bytes_per_token() const override;
  void reorder(Ctx& ctx, std::span<const std::int64_t> samples) override;
  // Part `index`, of samples [begin, end).
  Tensor part(std::size_t index, std::int64_t begin, std::int64_t end) const;

  // Samples [begin, end), which have seen `length` tokens each, and their new tokens.
  struct Group {
    std::int64_t begin, end, length;
    Tensor q, k, v, o;  // [b,H,n,*]; o is to be assigned
  };
  // Calls attend for all samples at once if they stand alike, else for each by itself, so that a
  // sample's bits do not depend on its company; then counts the tokens. Returns o [B,H,N,v_dim], 0
  // at padded tokens. Throws ShapeError past max_length and for a shape that does not fit.
  AttentionOutput step(Ctx& ctx, const AttentionInput& in, const AttentionConfig& config,
                       const std::function<void(const Group&)>& attend);

 private:
  std::vector<Tensor> parts_;
  std::int64_t max_length_;
  SampleLengths lengths_;
};

}  // namespace fovea::attention
