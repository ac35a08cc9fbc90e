#include "study/probe.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/text.h"
#include "kernels/basic.h"
#include "study/attention_runner.h"
#include "study/rates.h"
#include "study/symmetric.h"
#include "study/timing.h"

namespace fovea::study {

namespace {

// One head's tokens, f64: a view of them all.
std::span<const double> head_of(const Tensor& x, std::int64_t head) {
  const auto size = static_cast<std::size_t>(x.size(1) * x.size(2));
  return {x.data<double>() + head * static_cast<std::int64_t>(size), size};
}

// Matrices may be one for all heads, or one for several.
std::span<const double> matrix_of(const Tensor& s, std::int64_t head, std::int64_t heads) {
  return head_of(s, head / (heads / s.size(0)));
}

HeadTokens tokens_of(const train::LayerTokens& layer, std::int64_t head) {
  const std::int64_t heads = layer.q.size(0), group = heads / layer.k.size(0);
  HeadTokens out{.queries = layer.q.size(1),
                 .keys = layer.k.size(1),
                 .width = static_cast<int>(layer.q.size(2)),
                 .projected = static_cast<int>(layer.s_k.size(2)),
                 .v_dim = static_cast<int>(layer.v.size(2)),
                 .q = head_of(layer.q, head),
                 .k = head_of(layer.k, head / group),
                 .v = head_of(layer.v, head / group),
                 .s_q = matrix_of(layer.s_q, head, heads),
                 .s_k = matrix_of(layer.s_k, head / group, heads / group),
                 .dense_scale = 0,
                 .scale = layer.scale,
                 .causal = layer.causal};
  out.dense_scale = 1 / std::sqrt(static_cast<double>(out.width));
  return out;
}

ProbeSpeed predicted(const train::LayerTokens& layer) {
  ProbeSpeed out;
  out.projected = static_cast<int>(layer.s_k.size(2));
  AttentionSize& size = out.dense;
  size.queries = layer.q.size(1);
  size.keys = layer.k.size(1);
  size.heads = static_cast<int>(layer.q.size(0));
  size.kv_heads = static_cast<int>(layer.k.size(0));
  size.qk_dim = static_cast<int>(layer.q.size(2));
  size.v_dim = static_cast<int>(layer.v.size(2));
  size.causal = layer.causal;
  const double wide = size.qk_dim, narrow = out.projected, v = size.v_dim;
  const auto n = static_cast<double>(size.queries);
  double entries = 0;
  for (std::int64_t i = 0; i < layer.s_k.numel(); ++i)
    entries += layer.s_k.data<double>()[i] != 0 ? 1 : 0;
  entries /= static_cast<double>(layer.s_k.size(0));
  out.forward_limit = (wide + v) / (narrow + v);
  out.backward_limit = (3 * wide + 2 * v) / (3 * narrow + 2 * v);
  out.on_tokens = n * (wide + v) / (2 * entries + n * (narrow + v));
  const double pairs =
      size.heads * (size.causal ? n * (n + 1) / 2 : n * static_cast<double>(size.keys));
  out.flops = 2 * pairs * (narrow + v);
  out.dense_flops = 2 * pairs * (wide + v);
  return out;
}

// Forward and backward of exact attention, in 16 bit on a GPU.
std::pair<double, double> timed(Stream& stream, AttentionSize size, int qk_dim, double seconds) {
  size.qk_dim = qk_dim;
  const Precision precision = stream.device().is_cuda() ? Precision::bf16_mixed : Precision::fp32;
  AttentionRunner runner(*attention::find_attention("standard"), config::Node::map({}, {}), size,
                         precision, stream, [&](const std::string&, Shape shape) {
                           return random_tensor(stream, shape, compute_dtype(precision));
                         });
  TimingPlan plan{.warm_seconds = seconds, .seconds = seconds};
  plan.group_seconds = std::min(plan.group_seconds, seconds);
  const Timing forward = time_on(
      stream, [&] { runner.forward(false); }, plan);
  const Timing backward = time_after(
      stream, [&] { runner.forward(true); }, [&] { runner.backward(); }, plan);
  return {forward.ms, backward.ms};
}

void measure(ProbeSpeed& to, Stream& stream, double seconds) {
  std::tie(to.dense_forward_ms, to.dense_backward_ms) =
      timed(stream, to.dense, to.dense.qk_dim, seconds);
  std::tie(to.forward_ms, to.backward_ms) = timed(stream, to.dense, to.projected, seconds);
}

bool equal_sizes(const ProbeSpeed& a, const ProbeSpeed& b) {
  return a.projected == b.projected && a.dense == b.dense;
}

}  // namespace

// If S is unbiased, an element's squared distance from I is its variance on average, and unlike a
// spread around the mean it is zero only where every draw is I. For an element off the diagonal,
// whose sign is fair, the sum over the root of the sum of squares then has a tail below that of
// 2 exp(-t^2 / 2) for any number of seeds (Efron 1969). Elements on the diagonal may be skewed
// (random_iid: counts), and a rare large one be missing from all draws, so that their variance is
// at least the mean over the diagonal.
Unbiased unbiased(const Draw& draw, int in, int out, int seeds) {
  const auto rows = static_cast<std::size_t>(in);
  Unbiased found{.seeds = seeds, .worst = {}, .why_none = {}};
  if (seeds < kLeastSeeds) {
    found.why_none = cat("a mean of ", seeds, seeds == 1 ? " seed" : " seeds",
                         " says nothing; at least ", kLeastSeeds, " do");
    return found;
  }
  std::vector<double> sums(rows * rows, 0.0), squares(rows * rows, 0.0);
  for (int seed = 1; seed <= seeds; ++seed) {
    const std::vector<double> s = draw(static_cast<std::uint64_t>(seed));
    const std::vector<double> one = product(s, transposed(s, in, out), in, out, in);
    for (std::size_t i = 0; i < one.size(); ++i) {
      const double apart = one[i] - (i % (rows + 1) == 0 ? 1 : 0);
      sums[i] += apart;
      squares[i] += apart * apart;
    }
  }
  double diagonal = 0;
  for (std::size_t row = 0; row < rows; ++row)
    diagonal += squares[row * (rows + 1)] / static_cast<double>(rows);
  double worst = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    constexpr double kRounding = 1e-12;
    const double square = i % (rows + 1) == 0 ? std::max(squares[i], diagonal) : squares[i];
    if (std::fabs(sums[i]) > kRounding * seeds)
      worst = std::max(worst, std::fabs(sums[i]) / std::sqrt(square));
  }
  found.worst = worst;
  // The tail of a normal number is below exp(-t^2 / 2): of all elements one in a hundred matrices.
  const double elements = static_cast<double>(rows * (rows + 1)) / 2;
  found.bound = std::max(found.bound, std::sqrt(2 * std::log(100 * elements)));
  return found;
}

Unbiased unbiased(const attention::spa::PatternChoice& pattern, int seeds) {
  const auto draw = [&](std::uint64_t seed) {
    return attention::spa::draw_projection(pattern, seed, "unbiased");
  };
  return unbiased(draw, pattern.in, pattern.out, seeds);
}

ProbeResult probe(Stream& stream, const ProbeAsk& ask) {
  ProbeResult out;
  out.run = train::layer_tokens(ask.tokens);
  Stream host(kCpu, stream.threads());
  for (const train::LayerTokens& layer : out.run.layers) {
    LayerProbe one{
        .layer = layer.layer, .s = layer.s, .heads = {}, .speed = predicted(layer), .unbiased = {}};
    for (std::int64_t head = 0; head < layer.q.size(0); ++head)
      one.heads.push_back(probe_head(tokens_of(layer, head), host.ref()));
    const bool random =
        layer.pattern && layer.pattern->kind != attention::spa::PatternKind::identity;
    if (random && ask.seeds > 0) one.unbiased = unbiased(*layer.pattern, ask.seeds);
    const auto known = std::find_if(out.layers.begin(), out.layers.end(), [&](const LayerProbe& o) {
      return equal_sizes(o.speed, one.speed);
    });
    if (known != out.layers.end())
      one.speed = known->speed;
    else if (ask.seconds > 0)
      measure(one.speed, stream, ask.seconds);
    out.layers.push_back(std::move(one));
  }
  return out;
}

bool ProbeResult::passed() const {
  return std::all_of(layers.begin(), layers.end(), [](const LayerProbe& layer) {
    return (!layer.unbiased || layer.unbiased->holds()) &&
           std::all_of(layer.heads.begin(), layer.heads.end(), [](const HeadProbe& head) {
             return head.softmax_is_half_lipschitz() && head.closed_form_agrees() &&
                    head.bounds_hold();
           });
  });
}

}  // namespace fovea::study
