#pragma once
// Where the tokens of a view lie, and which of them are real.

#include "kernels/cuda/tile/copy.cuh"

namespace fovea::cuda {

// Strides of [B,H,N,*] by sample, head and token.
struct TokenStrides {
  std::int64_t sample, head, token;
  explicit TokenStrides(const View& x)
      : sample(x.stride[0]), head(x.stride[1]), token(x.stride[2]) {}
  __device__ __forceinline__ std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t n) const {
    return b * sample + h * head + n * token;
  }
  // Whether all rows allow 16-byte accesses if the first one does.
  bool packs() const {
    return sample % kVector == 0 && head % kVector == 0 && token % kVector == 0;
  }
};

// The marks [B,N] of tokens; absent: all are real.
struct ValidTokens {
  const std::uint8_t* marks;
  std::int64_t sample, token;
  explicit ValidTokens(const View& x)
      : marks(x.ptr<std::uint8_t>()), sample(x.stride[0]), token(x.stride[1]) {}
  __device__ __forceinline__ bool of(std::int64_t b, std::int64_t n) const {
    return marks == nullptr || marks[b * sample + n * token] != 0;
  }
};

}  // namespace fovea::cuda
