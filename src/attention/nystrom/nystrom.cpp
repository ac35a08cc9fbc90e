// Nystromformer: softmax attention through landmarks, the means of segments of queries and keys.
// baselines.md 14.

#include <cmath>

#include "attention/exact/exact_operator.h"
#include "attention/registry.h"
#include "autograd/ops/activation.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/landmarks.h"
#include "autograd/ops/linear.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"landmarks", config::Type::integer, "64", "[1, inf)",
     "Segments m that queries and keys are averaged over; with no more tokens than that attention "
     "is exact."},
    {"pinv_iters", config::Type::integer, "6", "[1, 100]",
     "Steps of the iteration for the pseudo-inverse."},
    {"conv_kernel", config::Type::integer, "33", "[0, inf)",
     "Taps of the convolution of the values that is added to the output; 0: none."},
    kScaleOption,
};

constexpr Capabilities kCapabilities{
    .causal = false,
    .bidirectional = true,
    .cross = false,
    .padding = true,
    .segments = false,
    .bias = false,
    .dropout = false,
    .convex = false,
    .smooth = false,
    .any_width = false,
    .note =
        "landmarks average over the whole sequence and the convolution looks both ways, so "
        "every output depends on later tokens; nor can documents be told apart, or keys come "
        "from another sequence",
};

class Nystrom final : public Attention {
 public:
  Nystrom(const AttentionConfig& config, const config::Node& options)
      : landmarks_(options.get_int("landmarks")),
        iterations_(static_cast<int>(options.get_int("pinv_iters"))),
        scale_(score_scale(config, options)),
        conv_(nullptr) {
    // As a layer of torch's Conv1d starts: uniform in 1 / sqrt(taps).
    if (const std::int64_t taps = options.get_int("conv_kernel"); taps > 0)
      conv_ = &own("conv", {config.n_head, taps},
                   nn::Init::uniform(1 / std::sqrt(static_cast<double>(taps))));
  }

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    Var o = in.q.size(2) <= landmarks_ ? attend(ctx, in.q, in.k, in.v, in.key_valid, in.key_valid)
                                       : through_landmarks(ctx, in);
    if (conv_ != nullptr) o = add_token_conv(ctx, o, in.v, conv_->var(), in.key_valid);
    return {.o = o};
  }

  std::string kernel() const override { return "tiled"; }

 private:
  Var attend(Ctx& ctx, const Var& q, const Var& k, const Var& v, const Tensor& query_valid,
             const Tensor& key_valid) const {
    AttentionMask mask;
    mask.scale = scale_;
    mask.query_valid = query_valid;
    mask.key_valid = key_valid;
    return flash_attention(ctx, q, k, v, Var(), mask).o;
  }
  Var through_landmarks(Ctx& ctx, const AttentionInput& in) const;

  std::int64_t landmarks_;
  int iterations_;
  double scale_;
  nn::Parameter* conv_;  // null: none
};

// softmax(Q K~^T) (Z (softmax(Q~ K^T) V)), Z the pseudo-inverse of softmax(Q~ K~^T), without any of
// the N x m matrices. A sample of no more tokens than landmarks has its tokens as landmarks; with
// its values in the place of Z's product that is exact attention.
Var Nystrom::through_landmarks(Ctx& ctx, const AttentionInput& in) const {
  const std::int64_t heads = in.q.size(1);
  const DType dtype = in.q.dtype(), acc = acc_of(dtype);
  const LandmarkCut cut =
      LandmarkCut::of(ctx, in.key_valid, in.q.size(0), in.q.size(2), landmarks_);
  const Tensor present = in.key_valid.defined() ? cut.present : Tensor{};
  const Var q = segment_mean(ctx, in.q, cut, heads), k = segment_mean(ctx, in.k, cut, heads);
  const Var scores =
      scale(ctx, bmm(ctx, cast(ctx, q, acc), cast(ctx, k, acc), false, true), scale_);
  const Var inverse = pseudo_inverse(ctx, softmax(ctx, scores), iterations_);
  const Var far = attend(ctx, q, in.k, in.v, present, in.key_valid);
  Var values = bmm(ctx, inverse, cast(ctx, far, acc));
  if (present.defined()) {
    const Var own = cast(ctx, segment_mean(ctx, in.v, cut, heads), acc);
    values = choose_samples(ctx, cut.single, own, values);
  }
  return attend(ctx, in.q, k, cast(ctx, values, dtype), in.key_valid, present);
}

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  return std::make_unique<Nystrom>(config, options);
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  const auto n = static_cast<double>(queries),
             m = static_cast<double>(options.get_int("landmarks"));
  const auto taps = static_cast<double>(options.get_int("conv_kernel"));
  const auto steps = static_cast<double>(options.get_int("pinv_iters"));
  const bool exact = n <= m;
  const double pairs = exact ? n * static_cast<double>(keys) : 2 * n * m;
  const double cube = exact ? 0 : m * m * m * steps, square = exact ? 0 : m * m * (d + dv);
  Cost out;
  out.useful_forward = 2 * h * (pairs * (d + dv) + square + 4 * cube + n * taps * dv);
  out.useful_backward =
      2 * h * (pairs * (3 * d + 2 * dv) + 2 * square + 11 * cube + 2 * n * taps * dv);
  out.executed_forward = out.useful_forward;
  out.executed_backward = out.useful_backward;
  const double tokens = (h + hk) * n * (d + dv);
  out.bytes_forward = 2 * tokens + 4 * h * n;
  out.bytes_backward = 4 * tokens + 2 * h * n * dv + 8 * h * n;
  return out;
}

}  // namespace

AttentionSpec nystrom_attention() {
  return {.name = "nystrom",
          .summary =
              "Softmax attention through m landmarks and a pseudo-inverse between them, with "
              "a convolution of the values.",
          .source = "Xiong et al. 2021, arXiv:2102.03902, eq. 13 and algorithm 1",
          .options = kOptions,
          .caps = kCapabilities,
          .make = make,
          .cost = cost,
          .linear = always_linear,
          .dense_when = "{landmarks: ${max_len}, conv_kernel: 0}",
          .example = "{landmarks: 8, conv_kernel: 3}"};
}

}  // namespace fovea::attention
