#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/tensor.h"
#include "kernels/lsh.h"
#include "skip.h"

using namespace fovea;

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

// Multiples of 1/16: products of equal size meet often.
std::vector<double> numbers(const Shape& shape, std::uint32_t seed) {
  std::vector<double> out(static_cast<std::size_t>(shape.numel()));
  for (double& value : out) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(static_cast<int>(seed >> 24) - 128) / 16;
  }
  return out;
}

std::vector<double> buckets(Device device, DType dtype, const Shape& x, const Shape& rotations) {
  Stream stream(device);
  const Tensor rows = Tensor::from(numbers(x, 3), x, dtype).to(device, stream),
               w = Tensor::from(numbers(rotations, 5), rotations, DType::f32).to(device, stream);
  std::vector<double> real(static_cast<std::size_t>(x[0] * x[2]), 1.0);
  real[2] = 0;
  const Tensor valid = Tensor::from(real, {x[0], x[2]}, DType::u8).to(device, stream);
  Tensor lengths =
      Tensor::from(std::vector<double>(static_cast<std::size_t>(x[0])), {x[0]}, DType::i32)
          .to(device, stream);
  const Shape shape{rotations[0], x[0], x[1], x[2]};
  Tensor out =
      Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel())), shape, DType::i32)
          .to(device, stream);
  FOVEA_ON(device, count_valid(stream.ref(), lengths.view(), valid.view(), x[2]));
  FOVEA_ON(device, lsh_buckets(stream.ref(), out.view(), rows.view(), w.view(), lengths.view(),
                               valid.view(), 1));
  return out.to(kCpu, stream).values();
}

}  // namespace

TEST_CASE("hashes on CUDA are those of the CPU, among equals too") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const struct {
    Shape x, rotations;
  } sizes[] = {
      {{2, 3, 300, 64}, {2, 64, 130}}, {{1, 2, 200, 64}, {1, 64, 64}}, {{1, 1, 70, 5}, {3, 5, 7}},
      {{1, 2, 129, 72}, {1, 72, 40}},  {{1, 2, 40, 128}, {2, 128, 9}},
  };
  for (const auto& [x, rotations] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      CHECK(buckets(kGpu, dtype, x, rotations) == buckets(kCpu, dtype, x, rotations));
  }
}
