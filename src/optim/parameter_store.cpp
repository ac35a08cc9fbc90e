#include "optim/parameter_store.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/glob.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/optim.h"

namespace fovea::optim {

namespace {

constexpr std::int64_t kBlock = 64;  // elements: 256 bytes of f32
// Rows of a vocabulary's table are filled up to whole tiles of a product: 50,257 columns of logits
// cost several times what 50,304 do (calibration.md 2).
constexpr std::int64_t kRowTile = 128, kFewestTableRows = 4096;

bool matches_any(std::span<const std::string> globs, std::string_view path) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return glob_match(glob, path); });
}

// What a user may have meant: every path, the same with stars for layer numbers, and their
// beginnings.
std::vector<std::string> suggestions(const std::vector<nn::Parameter*>& all) {
  std::set<std::string> out;
  for (const nn::Parameter* parameter : all) {
    out.insert(parameter->path);
    std::string starred;
    for (const char c : parameter->path) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (!digit || starred.empty() || starred.back() != '*') starred.push_back(digit ? '*' : c);
    }
    for (std::size_t dot = starred.find('.'); dot != std::string::npos;
         dot = starred.find('.', dot + 1)) {
      out.insert(starred.substr(0, dot) + ".*");
    }
    out.insert(starred);
  }
  return {out.begin(), out.end()};
}

void require_matches(std::span<const std::string> globs, const char* key,
                     const std::vector<nn::Parameter*>& all) {
  for (const std::string& glob : globs) {
    const bool found = std::any_of(all.begin(), all.end(), [&](const nn::Parameter* parameter) {
      return glob_match(glob, parameter->path);
    });
    if (found) continue;
    const std::string near = nearest(glob, suggestions(all));
    throw ConfigError(cat(key, ": '", glob, "' matches no parameter of the model",
                          near.empty() ? std::string() : cat("; the nearest is '", near, "'")));
  }
}

// Of the globs that match it, which must agree.
double lr_factor(std::span<const LrScale> scales, std::string_view path) {
  const LrScale* first = nullptr;
  for (const LrScale& scale : scales) {
    if (!glob_match(scale.glob, path)) continue;
    if (first == nullptr) first = &scale;
    if (scale.factor != first->factor) {
      throw ConfigError(cat("optim.lr_scale: '", first->glob, "' and '", scale.glob,
                            "' both match ", path, ", but give it the factors ", first->factor,
                            " and ", scale.factor));
    }
  }
  return first == nullptr ? 1 : first->factor;
}

// A zeroed persistent tensor on ctx.device.
Tensor zeros(Ctx& ctx, std::int64_t elements, DType dtype, const char* tag) {
  Tensor out = Tensor::empty({elements}, dtype, ctx.device, tag);
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), out.view(), 0.0));
  return out;
}

// Initial values are made on the host, so that every device starts from the same bits.
Tensor on_device(Ctx& ctx, const Tensor& host) {
  return host.device() == ctx.device ? host : host.to(ctx.device, ctx.stream);
}

std::int64_t row_padding(const nn::Parameter& parameter) {
  if (parameter.shape.rank() != 2 || parameter.shape[0] < kFewestTableRows) return 0;
  return (kRowTile - parameter.shape[0] % kRowTile) % kRowTile;
}

}  // namespace

ParameterStore::ParameterStore(Ctx& ctx, nn::Module& model, StoreMode mode,
                               std::span<const std::string> no_decay,
                               std::span<const std::string> frozen, const MomentCut& moments,
                               std::span<const LrScale> lr_scale) {
  const std::vector<nn::Parameter*> all = model.parameters();
  require_matches(no_decay, "optim.no_decay", all);
  require_matches(frozen, "train.freeze", all);
  for (const LrScale& scale : lr_scale)
    require_matches(std::span(&scale.glob, 1), "optim.lr_scale", all);
  lay_out(all, no_decay, frozen, lr_scale);
  allocate(ctx);
  for (nn::Buffer* buffer : model.buffers()) {
    if (ctx.device.is_cuda() && !buffer->on_host) buffer->value = on_device(ctx, buffer->value);
  }
  attach(mode);
  if (mode == StoreMode::train) allocate_moments(ctx, moments);
  refresh(ctx);
}

void ParameterStore::lay_out(const std::vector<nn::Parameter*>& all,
                             std::span<const std::string> no_decay,
                             std::span<const std::string> frozen,
                             std::span<const LrScale> lr_scale) {
  for (nn::Parameter* parameter : all) {
    if (matches_any(frozen, parameter->path)) {
      frozen_.push_back(parameter);
      continue;
    }
    const bool by_rule = parameter->decay == nn::Decay::yes ||
                         (parameter->decay == nn::Decay::by_shape && parameter->shape.rank() >= 2);
    const std::int64_t size = parameter->shape.numel();
    const std::int64_t padding = row_padding(*parameter);
    parameter->padded_rows = parameter->shape.rank() == 2 ? parameter->shape[0] + padding : 0;
    segments_.push_back({.parameter = parameter,
                         .begin = elements_,
                         .size = size,
                         .decay = by_rule && !matches_any(no_decay, parameter->path),
                         .keep_f32 = parameter->keep_f32,
                         .lr_factor = lr_factor(lr_scale, parameter->path)});
    const std::int64_t room = size + (padding == 0 ? 0 : padding * parameter->shape[1]);
    elements_ += (room + kBlock - 1) / kBlock * kBlock;
    if (!parameter->tally) parameters_ += size;
  }
}

void ParameterStore::allocate(Ctx& ctx) {
  const DType state = state_dtype(ctx.precision), compute = compute_dtype(ctx.precision);
  const Device host = ctx.device.is_meta() ? ctx.device : kCpu;
  const auto initial = [&](const nn::Parameter& parameter, const Tensor& to) {
    if (!host.is_meta()) {
      nn::fill_initial(to, parameter.init, ctx.seed, parameter.path, ctx.stream.host());
    }
  };
  // The device's memory comes first: a model that is too large for it is told at once, and not when
  // the host has made initial values that it may not be able to hold either.
  masters_ = Tensor::empty({elements_}, state, ctx.device, "masters");
  const Tensor flat =
      ctx.device.is_cuda() ? Tensor::empty({elements_}, state, host, "masters") : masters_;
  std::int64_t filled = 0;
  for (const Segment& segment : segments_) {
    const std::int64_t end = segment.begin + segment.size;
    initial(*segment.parameter, flat.slice(0, segment.begin, end));
    const bool last = &segment == &segments_.back();
    filled = last ? elements_ : (&segment + 1)->begin;
    if (!host.is_meta()) {
      const Tensor padding = flat.slice(0, end, filled);
      std::memset(padding.view().data, 0, static_cast<std::size_t>(padding.bytes()));
    }
  }
  FOVEA_ASSERT(filled == elements_);
  if (ctx.device.is_cuda()) transfer(masters_, flat, ctx.stream);
  computes_ =
      compute == state ? masters_ : Tensor::empty({elements_}, compute, ctx.device, "computes");
  for (nn::Parameter* parameter : frozen_) {
    const Tensor own = Tensor::empty(parameter->shape, state, host, "frozen");
    initial(*parameter, own);
    parameter->master = on_device(ctx, own);
    parameter->compute = compute == state || parameter->keep_f32
                             ? parameter->master
                             : Tensor::empty(parameter->shape, compute, ctx.device, "frozen");
    parameter->grad = nullptr;
  }
}

void ParameterStore::attach(StoreMode mode) {
  for (const Segment& segment : segments_) {
    nn::Parameter& parameter = *segment.parameter;
    const auto part = [&](const Tensor& flat) {
      return flat.slice(0, segment.begin, segment.begin + segment.size).reshape(parameter.shape);
    };
    parameter.master = part(masters_);
    parameter.compute = segment.keep_f32 ? parameter.master : part(computes_);
    parameter.grad = nullptr;
    if (mode == StoreMode::train) {
      parameter.grad = std::make_shared<Grad>();
      parameter.grad->is_parameter = true;
      gradients_.push_back(parameter.grad);
    }
  }
}

void ParameterStore::allocate_moments(Ctx& ctx, const MomentCut& moments) {
  moments_ = moments ? moments(elements_) : MomentRange{0, elements_};
  const auto is_cut = [&](std::int64_t at) { return at % kNormChunk == 0 || at == elements_; };
  FOVEA_ASSERT(0 <= moments_.begin && moments_.begin <= moments_.end && moments_.end <= elements_ &&
               is_cut(moments_.begin) && is_cut(moments_.end));
  const std::int64_t held = moments_.end - moments_.begin;
  first_ = zeros(ctx, held, state_dtype(ctx.precision), "first_moment");
  second_ = zeros(ctx, held, state_dtype(ctx.precision), "second_moment");
  allocate_blocks(ctx);
  for (const Segment& segment : segments_)
    attach_forgetting(segment);
}

// What every block of elements has of its parameter.
void ParameterStore::allocate_blocks(Ctx& ctx) {
  const auto filled = [&]<class T>(DType dtype, const char* tag, T padding, auto value_of) {
    Tensor out =
        Tensor::empty({elements_ / kBlock}, dtype, ctx.device.is_meta() ? ctx.device : kCpu, tag);
    if (ctx.device.is_meta()) return out;
    T* const blocks = out.data<T>();
    std::fill(blocks, blocks + out.numel(), padding);
    for (const Segment& segment : segments_) {
      const std::int64_t end = (segment.begin + segment.size + kBlock - 1) / kBlock;
      std::fill(blocks + segment.begin / kBlock, blocks + end, static_cast<T>(value_of(segment)));
    }
    return on_device(ctx, out);
  };
  decay_ = filled(DType::u8, "decay_mask", std::uint8_t{0},
                  [](const Segment& segment) { return segment.decay; });
  const bool groups = std::any_of(segments_.begin(), segments_.end(),
                                  [](const Segment& segment) { return segment.lr_factor != 1; });
  if (!groups) return;
  lr_factors_ = filled(DType::f32, "lr_factors", 1.0f,
                       [](const Segment& segment) { return segment.lr_factor; });
}

namespace {

// The part of a segment that a range of elements covers; empty if end <= begin.
MomentRange covered(const Segment& segment, const MomentRange& range) {
  return {std::max(segment.begin, range.begin), std::min(segment.begin + segment.size, range.end)};
}

}  // namespace

// By value: a parameter may outlive its store.
void ParameterStore::attach_forgetting(const Segment& segment) const {
  const MomentRange own = covered(segment, moments_);
  segment.parameter->forget = [own, first = first_, second = second_, at = moments_.begin,
                               begin = segment.begin](Ctx& c, const Tensor& keep) {
    if (own.end <= own.begin || c.device.is_meta()) return;
    Tensor factors = Tensor::empty({own.end - own.begin}, first.dtype(), kCpu);
    copy_host(factors.view(),
              keep.reshape({keep.numel()}).slice(0, own.begin - begin, own.end - begin).view());
    const Tensor there = on_device(c, factors);
    for (const Tensor& moments : {first, second}) {
      const Tensor part = moments.slice(0, own.begin - at, own.end - at);
      FOVEA_ON(c.device, mul_forward(c.stream.ref(), part.view(), part.view(), there.view()));
    }
  };
}

void ParameterStore::take_tallies(Ctx& ctx, const Tensor& gradient) const {
  for (const Segment& segment : segments_) {
    const MomentRange own = covered(segment, moments_);
    if (!segment.parameter->tally || own.end <= own.begin) continue;
    const Tensor from = gradient.slice(0, own.begin, own.end),
                 to = masters_.slice(0, own.begin, own.end);
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), from.view()));
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), from.view(), 0.0));
  }
}

void ParameterStore::bind_gradients(const Tensor& flat) {
  if (!(flat.shape() == masters_.shape()) || flat.dtype() != masters_.dtype()) {
    throw ShapeError(cat("bind_gradients: ", name_of(flat.dtype()), " ", flat.shape().str(),
                         ", but the store has ", name_of(masters_.dtype()), " ",
                         masters_.shape().str()));
  }
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Segment& segment = segments_[i];
    gradients_[i]->uses = 0;  // whatever an abandoned forward left
    gradients_[i]->value = flat.slice(0, segment.begin, segment.begin + segment.size)
                               .reshape(segment.parameter->shape);
  }
}

void ParameterStore::refresh(Ctx& ctx) {
  if (computes_.dtype() != masters_.dtype()) {
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), computes_.view(), masters_.view()));
  }
  for (const nn::Parameter* parameter : frozen_) {
    if (parameter->compute.dtype() == parameter->master.dtype()) continue;
    FOVEA_ON(ctx.device,
             copy(ctx.stream.ref(), parameter->compute.view(), parameter->master.view()));
  }
}

}  // namespace fovea::optim
