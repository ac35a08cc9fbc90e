// Plans on CUDA: the CPU's lists, and attention that agrees with f64.

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "kernels/plan_case.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

// A case whose every pointer leads to a copy on the device.
class OnGpu {
 public:
  OnGpu(const PlanCase& c, Stream& stream) : plan(c.plan), masks(c.masks) {
    for (const Tensor& t : c.kept) {
      host_.push_back(t);
      device_.push_back(t.numel() == 0 ? Tensor::empty({1}, t.dtype(), kGpu) : t.to(kGpu, stream));
    }
    std::vector<TileRule> rules = c.rules;
    for (TileRule& r : rules) {
      for (const std::uint64_t** at : {&r.key_flags, &r.query_flags, &r.list_words})
        *at = static_cast<const std::uint64_t*>(moved(*at));
      for (const std::int32_t** at : {&r.list, &r.query_lengths, &r.key_lengths})
        *at = static_cast<const std::int32_t*>(moved(*at));
    }
    const Tensor bytes =
        Tensor::empty({plan.heads, static_cast<std::int64_t>(sizeof(TileRule))}, DType::u8, kCpu);
    std::memcpy(bytes.view().data, rules.data(), rules.size() * sizeof(TileRule));
    device_.push_back(bytes.to(kGpu, stream));
    for (View* view :
         {&plan.begin, &plan.full, &plan.key_tiles, &plan.key_begin, &plan.key_full,
          &plan.query_tiles, &plan.needed, &plan.query_order, &plan.key_order, &masks.key_valid,
          &masks.query_valid, &masks.query_segments, &masks.key_segments})
      move(*view);
    plan.rules = device_.back().view();
    masks.causal = c.causal;
  }
  // The device's copy of what a list of the case holds.
  std::vector<double> values(const View& of_case, Stream& stream) const {
    for (std::size_t t = 0; t < host_.size(); ++t) {
      if (host_[t].view().data == of_case.data) return device_[t].to(kCpu, stream).values();
    }
    return {};
  }

  TilePlan plan;
  AttentionScores masks;

 private:
  void* moved(const void* host) const {
    for (std::size_t t = 0; t < host_.size(); ++t) {
      if (host != nullptr && host_[t].view().data == host) return device_[t].view().data;
    }
    return nullptr;
  }
  void move(View& view) const {
    view.data = moved(view.data);
    view.device = kGpu;
  }
  std::vector<Tensor> host_, device_;
};

// The entries that lists use: what lies behind them is unspecified.
std::vector<double> used(const PlanCase& c, std::vector<double> entries,
                         const std::vector<double>& begin, std::int64_t capacity) {
  const std::size_t plans = static_cast<std::size_t>(c.plan.batches * c.plan.heads),
                    each = begin.size() / plans;
  for (std::size_t one = 0; one < plans; ++one) {
    for (auto e = static_cast<std::size_t>(begin[(one + 1) * each - 1]);
         e < static_cast<std::size_t>(capacity); ++e)
      entries[one * static_cast<std::size_t>(capacity) + e] = -1;
  }
  return entries;
}

void check_lists(const PlanCase& c, const OnGpu& gpu, Stream& stream) {
  const auto host = [](const View& view) {
    std::vector<double> out;
    for (std::int64_t i = 0; i < view.numel(); ++i)
      out.push_back(view.ptr<std::int32_t>()[i]);
    return out;
  };
  const TilePlan& p = c.plan;
  for (const View* view : {&p.begin, &p.full, &p.key_begin, &p.key_full, &p.needed})
    CHECK(gpu.values(*view, stream) == host(*view));
  for (const auto& [entries, begin] :
       {std::pair(&p.key_tiles, &p.begin), std::pair(&p.query_tiles, &p.key_begin)}) {
    CHECK(used(c, gpu.values(*entries, stream), host(*begin), entries->dim[1]) ==
          used(c, host(*entries), host(*begin), entries->dim[1]));
  }
}

// Attention of the problem on the device, results back on the host; `like` has their shapes.
std::vector<Tensor> run_on_gpu(const Problem& like, const OnGpu& gpu, Stream& stream) {
  const auto up = [&](const Tensor& t) { return t.to(kGpu, stream); };
  const auto space = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype(), kGpu); };
  const Tensor q = up(like.q), k = up(like.k), v = up(like.v), dout = up(like.dout),
               dlse = up(like.dlse), o = space(like.o), lse = space(like.lse), dq = space(like.q),
               dk = space(like.k), dv = space(like.v);
  AttentionScores how = gpu.masks;
  how.scale = like.how.scale;
  how.softcap = like.how.softcap;
  how.plan = &gpu.plan;
  FOVEA_ON(kGpu,
           flash_forward(stream.ref(), o.view(), lse.view(), q.view(), k.view(), v.view(), how));
  const AttentionGradients d{dq.view(), dk.view(), dv.view(), View{}};
  FOVEA_ON(kGpu, flash_backward(stream.ref(), d, dout.view(), dlse.view(), q.view(), k.view(),
                                v.view(), o.view(), lse.view(), how));
  std::vector<Tensor> out;
  for (const Tensor& t : {o, lse, dq, dk, dv})
    out.push_back(t.to(kCpu, stream));
  return out;
}

// The lists are the CPU's; attention agrees with the CPU's in f64, and repeats bits.
void check_case(PlanCase& c, DType dtype, double softcap, Stream& stream) {
  c.build();
  const OnGpu gpu(c, stream);
  FOVEA_ON(kGpu, tile_plan_build(stream.ref(), gpu.plan, gpu.masks, c.s.n, c.s.m, c.s.h, c.s.hk));
  check_lists(c, gpu, stream);
  // The CPU walks the same plan in f64, on the rounded inputs.
  Problem narrow(c.s, dtype), wide(c.s, DType::f64);
  narrow.allocate();
  for (const auto& [to, from] :
       {std::pair(&wide.q, &narrow.q), std::pair(&wide.k, &narrow.k), std::pair(&wide.v, &narrow.v),
        std::pair(&wide.dout, &narrow.dout), std::pair(&wide.dlse, &narrow.dlse)})
    *to = Tensor::from(from->values(), from->shape(), DType::f64);
  const double scale = wide.how.scale;
  wide.how = c.masks;
  wide.how.scale = scale;
  wide.how.causal = c.causal;
  wide.how.plan = &c.plan;
  wide.how.softcap = narrow.how.softcap = softcap;
  wide.run_flash();
  const std::vector<Tensor> got = run_on_gpu(narrow, gpu, stream),
                            again = run_on_gpu(narrow, gpu, stream);
  for (std::size_t r = 0; r < got.size(); ++r) {
    CAPTURE(r);
    CHECK(distance(got[r], wide.results()[r]) <= (dtype == DType::f32 ? 1e-4 : 2e-2));
    CHECK(same_bits(got[r], again[r]));
  }
}

void check_windows(bool causal) {
  Stream stream(kGpu);
  const std::int64_t widths[][2] = {{64, 64}, {32, 64}, {64, 64}, {128, 128}, {16, 64}};
  const Sizes sizes[] = {{.b = 1, .h = 2, .hk = 2, .n = 1000, .m = 1000},
                         {.b = 2, .h = 4, .hk = 2, .n = 640, .m = 640},
                         {.b = 1, .h = 2, .hk = 1, .n = 513, .m = 777},
                         {.b = 1, .h = 3, .hk = 3, .n = 90, .m = 90},
                         {.b = 1, .h = 1, .hk = 1, .n = 1, .m = 700},
                         {.b = 1, .h = 1, .hk = 1, .n = 700, .m = 520}};
  std::size_t turn = 0;
  for (const Sizes& s : sizes) {
    for (const std::int32_t reach : {0, 63, 64, 130, 512, 5000}) {
      CAPTURE(s.n);
      CAPTURE(reach);
      PlanCase c;
      c.s = s;
      c.s.d = widths[turn % 5][0], c.s.dv = widths[turn % 5][1];
      c.causal = causal;
      TileRule rule;
      rule.left = reach;
      rule.right = causal ? 0 : reach;
      REQUIRE(rule.is_band());
      c.rules = {rule};
      c.plan.band = reach;
      if (turn % 7 == 3) {  // padding beside it
        const Tensor valid = mask_tensor(
            {s.b, s.m}, DType::u8, std::vector<double>(static_cast<std::size_t>(s.b * s.m), 1.0));
        for (std::int64_t t = s.m / 2; t < s.m / 2 + 70; ++t)
          valid.view().ptr<std::uint8_t>()[t % s.m] = 0;
        c.masks.key_valid = c.keep(valid).view();
      }
      check_case(c, turn % 2 == 0 ? DType::bf16 : DType::f16, 0, stream);
      ++turn;
    }
  }
}

}  // namespace

TEST_CASE("200 random plans on CUDA have the CPU's lists, and attention agrees with f64") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  const std::int64_t widths[][2] = {{64, 64}, {16, 64},  {32, 128},  {128, 128},
                                    {5, 9},   {64, 128}, {256, 256}, {24, 40}};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    PlanCase c = random_case(seed);
    REQUIRE(c.covered());
    c.s.d = widths[seed % 8][0], c.s.dv = widths[seed % 8][1];
    const DType dtype = seed % 3 == 0 ? DType::f32 : seed % 3 == 1 ? DType::bf16 : DType::f16;
    check_case(c, dtype, seed % 12 == 5 ? 1.5 : 0, stream);
  }
}

TEST_CASE("long lines of a plan on CUDA agree with f64 and repeat bits") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream stream(kGpu);
  for (const bool causal : {false, true}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      // Global tokens are seen by 23 tiles, the first of which has 64 keys: more than one block's
      // share.
      PlanCase c;
      c.s = {.b = 2, .h = 4, .hk = 2, .n = 1410, .m = 1410, .d = 64, .dv = 64};
      c.causal = causal;
      TileRule rule;
      rule.left = rule.right = 70;
      rule.first_keys = rule.first_queries = 66;
      c.rules = {rule};
      check_case(c, dtype, 0, stream);
    }
  }
}

TEST_CASE("causal windows on CUDA agree with f64 and repeat bits, whatever their length") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  check_windows(/*causal=*/true);
}

TEST_CASE("windows to both sides on CUDA agree with f64 and repeat bits, whatever their length") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  check_windows(/*causal=*/false);
}

TEST_CASE("flags packed on CUDA are those of the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  Stream host(kCpu), stream(kGpu);
  std::vector<double> values(3 * 1000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i * i % 7 < 3 ? 1 : 0;
  const Tensor flags = mask_tensor({3, 1000}, DType::u8, values),
               bits = Tensor::empty({3, 16}, DType::i64, kCpu),
               on_gpu = Tensor::empty({3, 16}, DType::i64, kGpu), up = flags.to(kGpu, stream);
  cpu::pack_flags(host.ref(), bits.view(), flags.view());
  FOVEA_ON(kGpu, pack_flags(stream.ref(), on_gpu.view(), up.view()));
  const Tensor back = on_gpu.to(kCpu, stream);
  CHECK(std::memcmp(back.view().data, bits.view().data, 3 * 16 * 8) == 0);
}
