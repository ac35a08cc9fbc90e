// Attention on CUDA against f64 on the CPU: every instance, mask and layout that its kernels tell
// apart.

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "kernels/attention_problem.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

// The widths of the tensor-core instances, and some that are padded to them.
constexpr std::int64_t kWidths[][2] = {{32, 32},  {16, 64},  {32, 64},   {64, 64},   {16, 128},
                                       {32, 128}, {64, 128}, {128, 128}, {192, 128}, {256, 256},
                                       {8, 24},   {40, 72},  {136, 200}};

struct Masks {
  bool causal = false;
  double visible = 1;  // share of the tokens that exist, from the start
  std::int64_t documents = 0;
};

struct MaskTensors {
  Tensor key_valid, query_valid, key_segments, query_segments;

  MaskTensors(const Sizes& s, const Masks& m) {
    const auto valid = [&](std::int64_t n) {
      std::vector<double> out;
      for (std::int64_t b = 0; b < s.b; ++b) {
        for (std::int64_t i = 0; i < n; ++i)
          out.push_back(static_cast<double>(i) < m.visible * static_cast<double>(n - 3 * b) ? 1
                                                                                            : 0);
      }
      return mask_tensor({s.b, n}, DType::u8, out);
    };
    const auto segments = [&](std::int64_t n) {
      std::vector<double> out;
      for (std::int64_t i = 0; i < s.b * n; ++i)
        out.push_back(static_cast<double>(i % n * m.documents / n));
      return mask_tensor({s.b, n}, DType::i32, out);
    };
    if (m.visible < 1) key_valid = valid(s.m), query_valid = valid(s.n);
    if (m.documents > 0) key_segments = segments(s.m), query_segments = segments(s.n);
  }
  AttentionScores scores(double scale, bool causal) const {
    AttentionScores how;
    how.scale = scale;
    how.causal = causal;
    how.key_valid = key_valid.view();
    how.query_valid = query_valid.view();
    how.key_segments = key_segments.view();
    how.query_segments = query_segments.view();
    return how;
  }
};

// The same values as [B,N,H,D], seen as [B,H,N,D].
struct TokensFirst {
  Tensor storage;
  View view;
  TokensFirst(const Tensor& x, Stream& stream) {
    const Tensor turned = x.permute({0, 2, 1, 3});
    const Tensor host = Tensor::empty(turned.shape(), x.dtype(), kCpu);
    copy_host(host.view(), turned.view());
    storage = host.to(kGpu, stream);
    view = storage.permute({0, 2, 1, 3}).view();
  }
};

std::vector<Tensor> run_on_gpu(const Problem& x, const AttentionScores& how, bool strided,
                               Stream& stream) {
  const auto space = [](const Tensor& t) {
    const Tensor filled = Tensor::from(
        std::vector<double>(static_cast<std::size_t>(t.numel()), 7.0), t.shape(), t.dtype());
    return filled;
  };
  const auto up = [&](const Tensor& t) { return t.to(kGpu, stream); };
  const Tensor q = up(x.q), k = up(x.k), v = up(x.v), dout = up(x.dout), dlse = up(x.dlse),
               o = up(space(x.dout)), lse = up(space(x.dlse)), dq = up(space(x.q)),
               dk = up(space(x.k)), dv = up(space(x.v));
  const TokensFirst pq(x.q, stream), pk(x.k, stream), pv(x.v, stream);
  const View qv = strided ? pq.view : q.view(), kv = strided ? pk.view : k.view(),
             vv = strided ? pv.view : v.view();
  FOVEA_ON(kGpu, flash_forward(stream.ref(), o.view(), lse.view(), qv, kv, vv, how));
  const AttentionGradients d{dq.view(), dk.view(), dv.view(), View{}};
  FOVEA_ON(kGpu, flash_backward(stream.ref(), d, dout.view(), dlse.view(), qv, kv, vv, o.view(),
                                lse.view(), how));
  std::vector<Tensor> out;
  for (const Tensor& t : {o, lse, dq, dk, dv})
    out.push_back(t.to(kCpu, stream));
  return out;
}

void check(const Sizes& s, DType dtype, const Masks& masks, bool strided, Stream& stream) {
  CAPTURE(s.n);
  CAPTURE(s.m);
  CAPTURE(s.h);
  CAPTURE(s.hk);
  CAPTURE(s.d);
  CAPTURE(s.dv);
  CAPTURE(name_of(dtype));
  CAPTURE(masks.causal);
  CAPTURE(masks.visible);
  CAPTURE(masks.documents);
  CAPTURE(strided);
  Problem narrow(s, dtype), wide(s, DType::f64);
  for (const auto& [to, from] :
       {std::pair(&wide.q, &narrow.q), std::pair(&wide.k, &narrow.k), std::pair(&wide.v, &narrow.v),
        std::pair(&wide.dout, &narrow.dout), std::pair(&wide.dlse, &narrow.dlse)})
    *to = Tensor::from(from->values(), from->shape(), DType::f64);
  const MaskTensors on_host(s, masks);
  wide.how = on_host.scores(wide.how.scale, masks.causal);
  wide.threads = 8;
  wide.run_flash();
  MaskTensors on_gpu = on_host;
  for (Tensor* t :
       {&on_gpu.key_valid, &on_gpu.query_valid, &on_gpu.key_segments, &on_gpu.query_segments}) {
    if (t->defined()) *t = t->to(kGpu, stream);
  }
  const AttentionScores how = on_gpu.scores(wide.how.scale, masks.causal);
  const std::vector<Tensor> got = run_on_gpu(narrow, how, strided, stream),
                            again = run_on_gpu(narrow, how, strided, stream);
  for (std::size_t r = 0; r < got.size(); ++r) {
    CAPTURE(r);
    CHECK(distance(got[r], wide.results()[r]) <= (r == 1 ? 1e-4 : 2e-2));
    CHECK(same_bits(got[r], again[r]));
  }
}

}  // namespace

TEST_CASE(
    "every instance on CUDA agrees with f64 at every length around a tile, and repeats bits") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  for (const auto& width : kWidths) {
    int turn = 0;
    for (const std::int64_t n : {1, 63, 64, 65, 200, 513}) {
      for (const bool causal : {false, true}) {
        const DType dtype = ++turn % 2 == 0 ? DType::bf16 : DType::f16;
        Masks masks;
        masks.causal = causal;
        check({1, 2, turn % 3 == 0 ? 2 : 1, n, n, width[0], width[1]}, dtype, masks, false, stream);
      }
    }
  }
}

TEST_CASE("padding, documents, groups of heads and strided operands agree with f64 on CUDA") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  for (const auto& width : kWidths) {
    for (const bool causal : {false, true}) {
      const DType dtype = causal ? DType::bf16 : DType::f16;
      check({2, 4, 2, 150, 150, width[0], width[1]}, dtype, {causal, 0.7, 0}, false, stream);
      check({2, 2, 1, 201, 201, width[0], width[1]}, dtype, {causal, 0.9, 4}, true, stream);
      check({1, 2, 2, 70, 260, width[0], width[1]}, dtype, {causal, 1, 0}, true, stream);
      check({1, 2, 2, 260, 70, width[0], width[1]}, dtype, {causal, 1, 0}, false, stream);
    }
  }
}

TEST_CASE("gradients of several hundred tokens agree with f64 on CUDA, whoever adds up dQ") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  constexpr std::int64_t widths[][2] = {{16, 64}, {64, 64}, {32, 128}, {64, 128}, {40, 72}};
  for (const auto& width : widths) {
    check({1, 4, 2, 520, 650, width[0], width[1]}, DType::f16, {true, 1, 0}, true, stream);
    check({1, 2, 2, 650, 520, width[0], width[1]}, DType::bf16, {false, 1, 0}, false, stream);
  }
  check({2, 2, 1, 700, 900, 128, 128}, DType::bf16, {true, 1, 0}, false, stream);
}

TEST_CASE("few queries against many keys agree with f64 on CUDA, however their keys are split") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  for (const auto& width : kWidths) {
    for (const std::int64_t keys : {1023, 1024, 1500, 5003}) {
      check({1, 4, 1, 1, keys, width[0], width[1]}, DType::bf16, {true, 1, 0}, false, stream);
      check({2, 6, 2, 7, keys, width[0], width[1]}, DType::f16, {true, 0.6, 3}, true, stream);
    }
    check({1, 2, 1, 70, 4100, width[0], width[1]}, DType::bf16, {true, 0.8, 1}, false, stream);
  }
}

TEST_CASE("rows that see no key are 0 with lse -inf on CUDA, and large scores stay finite") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  for (const auto& width : kWidths) {
    const Sizes s{1, 2, 2, 130, 40, width[0], width[1]};  // causal: 90 queries come before any key
    Problem x(s, DType::bf16);
    AttentionScores how;
    how.causal = true;
    how.scale = x.how.scale;
    const std::vector<Tensor> got = run_on_gpu(x, how, false, stream);
    for (const double value : got[0].slice(2, 0, 90).values())
      CHECK(value == 0);
    for (const double value : got[1].slice(2, 0, 90).values())
      CHECK(value == -std::numeric_limits<double>::infinity());
    for (const double value : got[2].slice(2, 0, 90).values())
      CHECK(value == 0);
    Problem large({1, 2, 1, 200, 200, width[0], width[1]}, DType::bf16, 50);
    for (const Tensor& result : run_on_gpu(large, how, false, stream)) {
      for (const double value : result.values())
        CHECK(std::isfinite(value));
    }
  }
}
