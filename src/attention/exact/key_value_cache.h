#pragma once
// The whole past: every key and value, for methods that attend exactly while decoding.

#include <vector>

#include "attention/attention.h"
#include "attention/past_samples.h"

namespace fovea::attention {

class KeyValueCache final : public DecodeState {
 public:
  // Room for `max_length` tokens of every sample: keys [B,Hk,max,Dk] and values [B,Hk,max,Dv].
  KeyValueCache(const AttentionConfig& config, std::int64_t batch, std::int64_t max_length,
                DType dtype, Device device);

  std::int64_t length() const override { return lengths_.longest(); }
  std::int64_t bytes_per_token() const override;
  void reorder(Ctx& ctx, std::span<const std::int64_t> samples) override;

  // Appends the first counts[b] of the new tokens k, v [B,Hk,N,*] to sample b. Throws ShapeError if
  // shapes disagree or a sample grows past max_length; nothing is appended then.
  void append(Ctx& ctx, const Tensor& k, const Tensor& v, std::span<const std::int64_t> counts);
  const std::vector<std::int64_t>& lengths() const { return lengths_.each(); }
  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }

 private:
  Tensor keys_, values_;
  SampleLengths lengths_;
};

}  // namespace fovea::attention
