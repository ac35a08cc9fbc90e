#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/tensor.h"
#include "kernels/lsh.h"
#include "skip.h"

using namespace fovea;

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

// What tokens hold. Multiples of 1/16: products of equal size meet often.
enum class Values { sixteenths, fine, tiny, no_numbers };

std::vector<double> numbers(const Shape& shape, std::uint32_t seed, Values values) {
  std::vector<double> out(static_cast<std::size_t>(shape.numel()));
  for (double& value : out) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(static_cast<int>(seed >> 24) - 128) / 16;
    if (values == Values::sixteenths) continue;
    value += static_cast<double>(seed >> 8 & 0xffff) / (1 << 20);
    if (values == Values::tiny) value *= 1e-33;
    if (values == Values::no_numbers && seed >> 24 == 77) value = std::nan("");
    if (values == Values::no_numbers && seed >> 24 == 78) value = HUGE_VAL;
  }
  return out;
}

std::vector<double> buckets(Device device, DType dtype, const Shape& x, const Shape& rotations,
                            Values values) {
  Stream stream(device);
  const Values how = values == Values::sixteenths ? values : Values::fine;
  const Tensor rows = Tensor::from(numbers(x, 3, values), x, dtype).to(device, stream),
               w = Tensor::from(numbers(rotations, 5, how), rotations, DType::f32)
                       .to(device, stream);
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
      {{2, 3, 300, 64}, {2, 64, 130}},   {{1, 2, 200, 64}, {1, 64, 64}},
      {{1, 1, 70, 5}, {3, 5, 7}},        {{1, 2, 129, 72}, {1, 72, 40}},
      {{1, 2, 40, 128}, {2, 128, 9}},    {{1, 2, 1100, 64}, {1, 64, 300}},
      {{2, 1, 600, 128}, {2, 128, 130}}, {{1, 2, 600, 32}, {2, 32, 200}},
  };
  for (const auto& [x, rotations] : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const Values values :
           {Values::sixteenths, Values::fine, Values::tiny, Values::no_numbers})
        CHECK(buckets(kGpu, dtype, x, rotations, values) ==
              buckets(kCpu, dtype, x, rotations, values));
    }
  }
}

TEST_CASE("tokens sorted by their hashes on CUDA stand in the CPU's order") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const struct {
    std::int64_t rows, tokens, keys;
  } sizes[] = {{3, 16384, 257}, {5, 1000, 7},     {2, 31, 3},      {1, 5000, 1025},
               {2, 1, 1},       {1, 4097, 24576}, {2, 3000, 30000}};
  for (const auto& size : sizes) {
    std::vector<double> keys = numbers({size.rows, size.tokens}, 9, Values::fine);
    for (double& key : keys)
      key = static_cast<double>(static_cast<std::int64_t>(key * key * 1000) % size.keys);
    const auto sorted = [&](Device device) {
      Stream stream(device);
      const Shape shape{size.rows, size.tokens};
      const Tensor key = Tensor::from(keys, shape, DType::i32).to(device, stream),
                   order = Tensor::empty(shape, DType::i32, device),
                   slot = Tensor::empty(shape, DType::i32, device);
      FOVEA_ON(device, sort_by_key(stream.ref(), order.view(), slot.view(), key.view(), size.keys));
      return std::pair(order.to(kCpu, stream).values(), slot.to(kCpu, stream).values());
    };
    CHECK(sorted(kGpu) == sorted(kCpu));
  }
}
