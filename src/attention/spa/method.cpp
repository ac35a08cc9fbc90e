#include "attention/spa/method.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/exact/decode.h"
#include "attention/spa/matrices.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/feature_projection.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

constexpr const char* kPatternNames[] = {"random_iid",   "random_exact", "block",   "banded",
                                         "hierarchical", "conv",         "identity"};
constexpr double kLogitSpread = 0.01;

Tensor constant(const Shape& shape, DType dtype, double value) {
  return Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel()), value), shape,
                      dtype);
}

}  // namespace

nn::Parameter& Spa::own_small(const char* name, Shape shape, nn::Init init) {
  nn::Parameter& out = own(name, shape, init, nn::Decay::no);
  out.keep_f32 = true;
  return out;
}

Spa::Spa(const AttentionConfig& config, const Settings& settings, const ExactChoice& choice)
    : config_(config),
      behind_(behind(config, settings)),
      settings_(settings),
      operator_(behind_, [&] {
        ExactChoice scaled = choice;
        scaled.scale = settings.scale;
        return scaled;
      }()) {
  const Shape shape = settings.shape();
  const double columns = settings.pattern.out;
  if (settings.origin == Origin::fixed) {
    s_ = &buffer("S", constant(shape, DType::f32, 0));
  } else if (settings.origin == Origin::given) {
    given_ = &own_small("S", shape, nn::Init::normal(1 / std::sqrt(columns)));
    if (settings.learn.decays) given_->decay = nn::Decay::yes;
  } else {
    const LearnChoice& learn = settings.learn;
    const double p = learn.first_density(), logit = p < 1 ? std::log(p / (1 - p)) : 0;
    LearnedParts parts{.w = own_small("W", shape, nn::Init::normal(1 / std::sqrt(p * columns))),
                       .g = own_small("G", shape, nn::Init::normal(kLogitSpread, logit))};
    if (learn.decays) parts.w.decay = nn::Decay::yes;
    if (settings.shifts()) parts.shift = &own_small("b", {config.n_kv_head}, nn::Init::zeros());
    if (learn.regrow == LearnChoice::Regrow::grad) {
      parts.whole = &own_small("dS", {settings.matrices, settings.pattern.in, settings.pattern.out},
                               nn::Init::zeros());
      parts.whole->tally = true;
    }
    parts.m = &buffer("M", constant(shape, DType::u8, 1));
    if (learn.draws()) parts.u = &buffer("u", constant(shape, DType::f32, 0.5));
    learned_.emplace(settings, parts);
  }
  if (settings.has_theta()) theta_ = &own_small("theta", {config.n_head}, nn::Init::zeros());
}

void Spa::draw(Ctx& ctx) {
  if (drawn_ || s_->device().is_meta() || ctx.device.is_meta()) return;
  drawn_ = true;
  const std::vector<double> there =
      s_->device().is_cpu() ? s_->values() : s_->to(kCpu, ctx.stream).values();
  if (std::any_of(there.begin(), there.end(), [](double x) { return x != 0; })) return;
  const auto width = static_cast<std::size_t>(settings_.pattern.out);
  std::vector<double> values;
  for (int i = 0; i < settings_.matrices; ++i) {
    const bool by_head = settings_.scope == Scope::head;
    PatternChoice choice = settings_.pattern;
    if (!settings_.widths.empty()) choice.out = settings_.widths[static_cast<std::size_t>(i)];
    const std::vector<double> one =
        draw_projection(choice, ctx.seed,
                        cat(path(), ".S.", kPatternNames[static_cast<int>(choice.kind)], ".",
                            by_head ? cat(i) : std::string("all")));
    const auto own = static_cast<std::size_t>(choice.out);
    for (std::size_t row = 0; row < one.size(); row += own) {
      const auto from = one.begin() + static_cast<std::ptrdiff_t>(row);
      values.insert(values.end(), from, from + choice.out);
      values.resize(values.size() + width - own);  // columns without entries
    }
  }
  transfer(*s_, Tensor::from(values, s_->shape(), DType::f32), ctx.stream);
}

void Spa::before_step(Ctx& ctx, const nn::Clock& clock) {
  if (learned_) learned_->before_step(ctx, clock, path());
  if (s_ != nullptr) draw(ctx);
}

void Spa::after_step(Ctx& ctx, const nn::Clock& clock) {
  if (learned_) learned_->after_step(ctx, clock, path());
}

void Spa::measure(const nn::Clock& clock, std::vector<nn::Measure>& into) {
  if (learned_) learned_->measure(clock, path(), into);
}

void Spa::aux_loss(Ctx& ctx, std::vector<Var>& into) {
  if (learned_) learned_->penalty(ctx, into);
}

Var Spa::matrix(Ctx& ctx) {
  if (learned_) return learned_->matrix(ctx);
  const Shape whole{settings_.matrices, settings_.pattern.in, settings_.pattern.out};
  if (given_ != nullptr) {
    return given_->shape == whole ? given_->var() : reshape(ctx, given_->var(), whole);
  }
  draw(ctx);  // of a model that never trained
  const bool here = s_->device() == ctx.device || ctx.device.is_meta();
  const Tensor s = (here ? *s_ : s_->to(ctx.device, ctx.stream)).reshape(whole);
  return cast(ctx, Var(s), state_dtype(ctx.precision));
}

std::optional<FeatureMap> Spa::qk_map() const {
  return FeatureMap{.q_heads = settings_.q_heads,
                    .k_heads = settings_.k_heads,
                    .width = settings_.width,
                    .site = settings_.site};
}

const Tensor& Spa::head_scales(Ctx& ctx) {
  const DType dtype = state_dtype(ctx.precision);
  const bool made = head_scales_.defined() && head_scales_.dtype() == dtype &&
                    head_scales_.device() == ctx.device;
  if (!settings_.head_scales.empty() && !made) {
    head_scales_ =
        Tensor::from(settings_.head_scales, {config_.n_head}, dtype).to(ctx.device, ctx.stream);
  }
  return head_scales_;
}

FeatureMatrices Spa::map_matrices(Ctx& ctx) {
  return feature_matrices(ctx, settings_, matrix(ctx), theta_ != nullptr ? theta_->var() : Var(),
                          head_scales(ctx));
}

AttentionInput Spa::projected(Ctx& ctx, const AttentionInput& in) {
  AttentionInput out = in;
  if (!in.mapped) {
    const FeatureMatrices by = map_matrices(ctx);
    out.q = project_features(ctx, in.q, by.q, settings_.q_heads);
    out.k = project_features(ctx, in.k, by.k, settings_.k_heads);
  }
  if (settings_.scope == Scope::single) {
    const Var v = merge_heads(ctx, in.v);
    out.v = reshape(ctx, v, {v.size(0), 1, v.size(1), v.size(2)});
  }
  return out;
}

AttentionOutput Spa::finished(Ctx& ctx, AttentionOutput out) {
  if (settings_.scope == Scope::single) {
    const Var merged = merge_heads(ctx, out.o);
    out.o = split_heads(ctx, merged, {{config_.n_head, config_.v_dim}}).front();
  }
  if (settings_.gate == Gate::output) out.o = scale_heads(ctx, out.o, gates_of(ctx, theta_->var()));
  return out;
}

AttentionOutput Spa::forward(Ctx& ctx, const AttentionInput& in) {
  return finished(ctx, operator_.forward(ctx, projected(ctx, in), cat(path(), ".dropout")));
}

std::unique_ptr<DecodeState> Spa::start(Ctx& ctx, int batch, int max_length) {
  if (!config_.causal || config_.cross) return nullptr;
  return std::make_unique<KeyValueCache>(behind_, batch, max_length, ctx.compute(), ctx.device);
}

AttentionOutput Spa::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  return finished(ctx, decode_step(ctx, state, projected(ctx, in), [&](const AttentionInput& all) {
                    return operator_.forward(ctx, all, cat(path(), ".dropout"));
                  }));
}

}  // namespace fovea::attention::spa
