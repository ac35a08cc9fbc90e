#include "study/bench_sparse.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "autograd/ops/sparse.h"
#include "core/random.h"
#include "core/text.h"
#include "kernels/gemm.h"
#include "kernels/spmm.h"
#include "study/rates.h"
#include "study/timing.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

struct Size {
  std::int64_t in, out;
};
constexpr Size kSizes[] = {{64, 16}, {64, 32}, {768, 192}};
constexpr double kSparsities[] = {0.7, 0.8, 0.9, 0.95};

// Rows with equally many entries at random columns, of 1/sqrt(entries in a row) and random sign.
Tensor random_projection(Size size, double sparsity) {
  const auto out = static_cast<std::uint64_t>(size.out);
  const std::int64_t kept =
      std::max<std::int64_t>(1, std::llround((1 - sparsity) * static_cast<double>(size.out)));
  const double entry = 1 / std::sqrt(static_cast<double>(kept));
  const NamedStream signs(1, "bench.sparse");
  std::vector<double> values(static_cast<std::size_t>(size.in * size.out));
  for (std::int64_t row = 0; row < size.in; ++row) {
    const Permutation columns(out, static_cast<std::uint64_t>(row), "bench.sparse");
    for (std::int64_t i = 0; i < kept; ++i) {
      const auto at =
          static_cast<std::uint64_t>(row * size.out) + columns.at(static_cast<std::uint64_t>(i));
      values[static_cast<std::size_t>(at)] = signs.below(at, 2) == 0 ? entry : -entry;
    }
  }
  return Tensor::from(values, {size.in, size.out}, DType::f64);
}

SparseTime time_both(Stream& stream, const GpuWatch& watch, Size size, double sparsity) {
  const bool gpu = stream.device().is_cuda();
  const DType dtype = gpu ? DType::bf16 : DType::f32;
  SparseTime out{.rows = gpu ? 65536 : 4096, .in = size.in, .out = size.out, .gpu = {}};
  const Tensor dense = random_projection(size, sparsity);
  const SparseMatrix s = compress(stream, dense, dtype);
  out.entries = s.entries();
  Tensor weight = Tensor::empty({size.in, size.out}, dtype, stream.device(), "bench");
  transfer(weight, dense, stream);
  const Tensor x = random_tensor(stream, {out.rows, size.in}, dtype),
               y = Tensor::empty({out.rows, size.out}, dtype, stream.device(), "bench");
  out.dense_ms = time_on(stream, [&] {
                   FOVEA_ON(stream.device(), gemm(stream.ref(), y.view(), x.view(), weight.view(),
                                                  false, false, 0.0));
                 }).ms;
  const TimingPlan plan{.before_end = [&] { out.gpu = watch.now(); }};
  out.sparse_ms =
      time_on(
          stream,
          [&] {
            FOVEA_ON(stream.device(),
                     csr_spmm(stream.ref(), y.view(), x.view(), s.columns.offsets.view(),
                              s.columns.columns.view(), s.columns.values.view()));
          },
          plan)
          .ms;
  return out;
}

bool same_size(const SparseTime& a, const SparseTime& b) {
  return a.rows == b.rows && a.in == b.in && a.out == b.out;
}

// Calls fn with the times of each size.
template <class F>
void for_sizes(std::span<const SparseTime> times, F&& fn) {
  for (std::size_t begin = 0, end = 0; begin < times.size(); begin = end) {
    while (end < times.size() && same_size(times[begin], times[end]))
      ++end;
    fn(times.subspan(begin, end - begin));
  }
}

std::string verdict(std::span<const SparseTime> times) {
  const std::optional<double> even = break_even(times);
  char text[96];
  if (!even) return "the dense product is faster at all of them";
  if (*even == 0) return "the sparse product is faster at all of them";
  std::snprintf(text, sizeof text, "equal at about %.1f %% zeros", 100 * *even);
  return text;
}

}  // namespace

double SparseTime::sparsity() const {
  return 1 - static_cast<double>(entries) / static_cast<double>(in * out);
}

std::vector<SparseTime> bench_sparse(Stream& stream) {
  const GpuWatch watch(stream.device());
  std::vector<SparseTime> out;
  for (const Size size : kSizes) {
    for (const double sparsity : kSparsities)
      out.push_back(time_both(stream, watch, size, sparsity));
  }
  return out;
}

std::optional<double> break_even(std::span<const SparseTime> times) {
  if (times.empty() || times.back().sparse_ms > times.back().dense_ms) return std::nullopt;
  // From the sparsest back to the last that was slower.
  for (std::size_t i = times.size() - 1; i > 0; --i) {
    const SparseTime &slow = times[i - 1], &fast = times[i];
    const double above = slow.sparse_ms - slow.dense_ms, below = fast.dense_ms - fast.sparse_ms;
    if (above <= 0) continue;
    return slow.sparsity() + (fast.sparsity() - slow.sparsity()) * above / (above + below);
  }
  return 0.0;
}

std::string json_of(const std::vector<SparseTime>& times) {
  std::vector<std::string> rows;
  for_sizes(times, [&](std::span<const SparseTime> of_size) {
    const std::optional<double> even = break_even(of_size);
    for (const SparseTime& time : of_size) {
      train::JsonObject row;
      row.add("rows", time.rows).add("in", time.in).add("out", time.out);
      row.add("sparsity", time.sparsity()).add("sparse_ms", time.sparse_ms);
      row.add("dense_ms", time.dense_ms);
      row.raw("break_even", even ? train::json_number(*even) : "null");
      add_to(row, time.gpu);
      rows.push_back(row.str());
    }
  });
  return cat("[", join(rows, ","), "]");
}

std::string text_of(const std::vector<SparseTime>& times) {
  std::string out = "    rows   sizes       zeros   sparse ms    dense ms   sparse/dense";
  for_sizes(times, [&](std::span<const SparseTime> of_size) {
    char line[160];
    for (const SparseTime& time : of_size) {
      std::snprintf(line, sizeof line,
                    "\n%8lld   %3lld to %-3lld  %5.1f %%  %10.4f  %10.4f  %13.2f",
                    static_cast<long long>(time.rows), static_cast<long long>(time.in),
                    static_cast<long long>(time.out), 100 * time.sparsity(), time.sparse_ms,
                    time.dense_ms, time.sparse_ms / time.dense_ms);
      out += line;
    }
    out += cat("\n           ", verdict(of_size));
  });
  return out;
}

}  // namespace fovea::study
