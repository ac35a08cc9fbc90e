#include "study/rates.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "kernels/gemm.h"
#include "study/timing.h"

namespace fovea::study {

namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // different numbers

// `block` at the front of a tensor of `shape`, and again behind itself until the end.
Tensor repeated(Stream& stream, const Tensor& block, Shape shape) {
  Tensor out = Tensor::empty(shape, block.dtype(), stream.device(), "bench");
  char* const to = out.view().ptr<char>();
  const auto bytes = static_cast<std::size_t>(out.bytes());
  std::size_t done = std::min(bytes, static_cast<std::size_t>(block.bytes()));
  stream.copy(to, block.view().data, done);
  while (done < bytes) {
    const std::size_t more = std::min(done, bytes - done);
    stream.copy(to + done, to, more);
    done += more;
  }
  stream.synchronize();  // the block goes
  return out;
}

}  // namespace

Tensor random_tensor(Stream& stream, Shape shape, DType dtype, double bound) {
  const std::int64_t n = std::min(kBlock, shape.numel());
  const Tensor exact = Tensor::empty({n}, DType::f32, kCpu, "bench");
  const NamedStream numbers(1, "bench.numbers");
  for (std::int64_t i = 0; i < n; ++i) {
    const double unit = numbers.bits(static_cast<std::uint64_t>(i)) * 0x1p-32;
    exact.data<float>()[i] = static_cast<float>((2 * unit - 1) * bound);
  }
  const Tensor block = Tensor::empty({n}, dtype, kCpu, "bench");
  copy_host(block.view(), exact.view());
  return repeated(stream, block, shape);
}

Tensor random_ids(Stream& stream, Shape shape, std::int64_t below) {
  const std::int64_t n = std::min(kBlock, shape.numel());
  const Tensor block = Tensor::empty({n}, DType::i32, kCpu, "bench");
  const NamedStream numbers(1, "bench.ids");
  for (std::int64_t i = 0; i < n; ++i) {
    block.data<std::int32_t>()[i] = static_cast<std::int32_t>(
        numbers.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(below)));
  }
  return repeated(stream, block, shape);
}

Rates measure_rates(Stream& stream) {
  const bool gpu = stream.device().is_cuda();
  TimingPlan plan{.warm_seconds = 0.1, .seconds = 0.15};
  const GpuWatch watch(stream.device());
  Rates out;
  {
    const std::int64_t bytes = std::int64_t{1} << (gpu ? 31 : 26);
    const Tensor from = random_tensor(stream, {bytes / 4}, DType::f32),
                 to = Tensor::empty({bytes / 4}, DType::f32, stream.device(), "bench");
    const double ms =
        time_on(
            stream,
            [&] { stream.copy(to.view().data, from.view().data, static_cast<std::size_t>(bytes)); },
            plan)
            .ms;
    out.copy = 2 * static_cast<double>(bytes) / ms * 1e3;
  }
  const std::int64_t n = gpu ? 8192 : 1024;
  const DType dtype = gpu ? DType::bf16 : DType::f32;
  const Tensor a = random_tensor(stream, {n, n}, dtype), b = random_tensor(stream, {n, n}, dtype),
               c = Tensor::empty({n, n}, dtype, stream.device(), "bench");
  plan.before_end = [&] { out.gpu = watch.now(); };
  const double ms = time_on(
                        stream,
                        [&] {
                          FOVEA_ON(stream.device(), gemm(stream.ref(), c.view(), a.view(), b.view(),
                                                         false, true, 0.0));
                        },
                        plan)
                        .ms;
  const auto size = static_cast<double>(n);
  out.product = 2 * size * size * size / ms * 1e3;
  return out;
}

std::optional<Rates> rates_now(Device device, std::string& why) {
  try {
    Stream stream(device);
    return measure_rates(stream);
  } catch (const Error& e) {
    why = e.what();
    return std::nullopt;
  }
}

double promised_rate(const std::string& name) {
  struct Promise {
    const char* part;
    double rate;
  };
  for (const Promise& promise :
       {Promise{"H200", 989e12}, Promise{"H100", 989e12}, Promise{"A100", 312e12}}) {
    if (name.find(promise.part) != std::string::npos) return promise.rate;
  }
  return 0;
}

}  // namespace fovea::study
