#include "models/generate.h"

#include <algorithm>
#include <limits>
#include <map>

#include "attention/registry.h"
#include "autograd/ops/elementwise.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "models/build.h"

namespace fovea::models {

namespace {

Ctx evaluating(const Ctx& ctx) {
  Ctx out = ctx;
  out.tape = nullptr;
  out.training = false;
  return out;
}

Tensor joined(const Tensor& past, const Tensor& ids) {
  if (!past.defined()) return ids;
  const std::int64_t before = past.size(1), n = ids.size(1);
  Tensor out = Tensor::empty({ids.size(0), before + n}, DType::i32, kCpu);
  copy_host(out.slice(1, 0, before).view(), past.view());
  copy_host(out.slice(1, before, before + n).view(), ids.view());
  return out;
}

std::vector<std::int32_t> most_probable(Ctx& ctx, const Tensor& logits) {
  const std::vector<double> values = logits.to(kCpu, ctx.stream).values();
  const std::int64_t cols = logits.shape().cols();
  std::vector<std::int32_t> out;
  for (auto row = values.begin(); row != values.end(); row += cols) {
    out.push_back(static_cast<std::int32_t>(std::max_element(row, row + cols) - row));
  }
  return out;
}

Tensor ids_of(std::span<const std::vector<std::int32_t>> prompts,
              const std::vector<std::size_t>& which, std::size_t length) {
  Tensor out =
      Tensor::empty({static_cast<std::int64_t>(which.size()), static_cast<std::int64_t>(length)},
                    DType::i32, kCpu);
  std::int32_t* to = out.data<std::int32_t>();
  for (const std::size_t i : which)
    to = std::copy(prompts[i].begin(), prompts[i].end(), to);
  return out;
}

Tensor row_of(std::span<const std::int32_t> ids) {
  Tensor out = Tensor::empty({1, static_cast<std::int64_t>(ids.size())}, DType::i32, kCpu);
  std::copy(ids.begin(), ids.end(), out.data<std::int32_t>());
  return out;
}

// The most tokens that a model sees at once, and what ends there.
struct Sight {
  std::int64_t tokens = attention::kAnyLength;
  std::string what = {};
};

Sight sight_of(const ModelConfig& config) {
  Sight out;
  if (config.position == Position::learned) out = {config.block_size, "learned positions"};
  for (std::size_t layer = 0; layer < config.attention.size(); ++layer) {
    const ModelConfig::AttentionChoice& choice = config.attention[layer];
    const attention::AttentionSpec* const spec =
        choice.spec != nullptr ? choice.spec : attention::find_attention(choice.kind);
    if (spec == nullptr) continue;
    const std::int64_t most = attention::longest(
        *spec, attention_config(config, static_cast<int>(layer), nullptr), choice.options);
    if (most < out.tokens) out = {most, cat("patterns or parameters of attention ", choice.kind)};
  }
  return out;
}

std::string limit_name(const ModelConfig& config) {
  const Sight sight = sight_of(config);
  return sight.tokens == config.block_size ? "model.block_size"
                                           : cat("what ", sight.what, " reach");
}

// One sequence whose beginning may slide out of the model's sight.
class Window {
 public:
  Window(Ctx& ctx, DecoderLm& model, std::int64_t longest)
      : model_(model), size_(sight(model.config(), longest)), cached_(start(ctx, Cache::use)) {}

  // The logits of the token after `ids`, which stand behind all that came before.
  std::vector<double> append(Ctx& ctx, std::span<const std::int32_t> ids) {
    seen_.insert(seen_.end(), ids.begin(), ids.end());
    const auto size = static_cast<std::size_t>(size_);
    if (seen_.size() <= size) return values(ctx, cached_.append(ctx, row_of(ids)));
    log::warn_once(cat("generate: the text is longer than ", limit_name(model_.config()), " (",
                       size_, "); each further token sees the ", size_, " tokens before it"));
    seen_.erase(seen_.begin(), seen_.end() - size_);
    return values(ctx, start(ctx, Cache::none).append(ctx, row_of(seen_)));
  }

 private:
  static int sight(const ModelConfig& config, std::int64_t longest) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    return static_cast<int>(std::min({sight_of(config).tokens, longest, kMost}));
  }
  static std::vector<double> values(Ctx& ctx, const Tensor& logits) {
    return logits.to(kCpu, ctx.stream).values();
  }
  Continuation start(Ctx& ctx, Cache cache) { return {ctx, model_, 1, size_, cache}; }

  DecoderLm& model_;
  int size_;
  Continuation cached_;
  std::vector<std::int32_t> seen_;  // at most size_
};

}  // namespace

Continuation::Continuation(Ctx& ctx, DecoderLm& model, int batch, int max_length, Cache cache)
    : model_(model), max_length_(max_length) {
  const ModelConfig& config = model.config();
  if (const Sight sight = sight_of(config); max_length > sight.tokens) {
    throw ShapeError(cat("generate: up to ", max_length, " tokens, but ", sight.what, " end at ",
                         sight.tokens,
                         sight.tokens == config.block_size ? " (model.block_size)" : ""));
  }
  if (cache == Cache::none) return;
  Ctx eval = evaluating(ctx);
  state_ = model.start(eval, batch, max_length);
  if (state_ == nullptr) {
    log::warn_once(
        "generate: a layer's attention cannot decode step by step; every token runs the "
        "whole sequence again");
  }
}

Tensor Continuation::append(Ctx& ctx, const Tensor& ids) {
  Ctx eval = evaluating(ctx);
  const std::int64_t past = state_ != nullptr ? state_->length()
                            : all_.defined()  ? all_.size(1)
                                              : 0;
  if (ids.rank() != 2 || ids.size(1) < 1 || past + ids.size(1) > max_length_) {
    throw ShapeError(cat("generate: ids ", ids.shape().str(), " behind ", past,
                         " tokens of at most ", max_length_));
  }
  if (state_ == nullptr) all_ = joined(all_, ids);
  const Tensor& host = state_ != nullptr ? ids : all_;
  DecoderInput in;
  in.ids = eval.device.is_cpu() ? host : host.to(eval.device, eval.stream);
  in.state = state_.get();
  const Var hidden = model_.hidden(eval, in);
  const std::int64_t n = hidden.size(1);
  const Var last = permute(eval, Var(hidden.value().slice(1, n - 1, n)), {0, 1, 2});
  return model_.head(eval, last).value().reshape({hidden.size(0), model_.config().vocab_size});
}

std::vector<std::vector<std::int32_t>> greedy(Ctx& ctx, DecoderLm& model,
                                              std::span<const std::vector<std::int32_t>> prompts,
                                              int new_tokens, Cache cache) {
  std::vector<std::vector<std::int32_t>> out(prompts.size());
  std::map<std::size_t, std::vector<std::size_t>> by_length;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw ShapeError(cat("generate: prompt ", i, " has no token"));
    by_length[prompts[i].size()].push_back(i);
  }
  if (new_tokens < 1) return out;
  for (const auto& [length, which] : by_length) {
    Continuation batch(ctx, model, static_cast<int>(which.size()),
                       static_cast<int>(length) + new_tokens, cache);
    Tensor next = ids_of(prompts, which, length);
    for (int step = 0; step < new_tokens; ++step) {
      const std::vector<std::int32_t> best = most_probable(ctx, batch.append(ctx, next));
      next = Tensor::empty({static_cast<std::int64_t>(which.size()), 1}, DType::i32, kCpu);
      std::copy(best.begin(), best.end(), next.data<std::int32_t>());
      for (std::size_t row = 0; row < which.size(); ++row)
        out[which[row]].push_back(best[row]);
    }
  }
  return out;
}

void continue_prompt(Ctx& ctx, DecoderLm& model, std::span<const std::int32_t> prompt,
                     const Sampler& sampler, std::int64_t new_tokens,
                     const std::function<bool(std::int32_t)>& take) {
  if (prompt.empty()) throw ShapeError("generate: the prompt has no token");
  if (new_tokens < 1) return;
  // The last token is chosen and not run.
  Window window(ctx, model, static_cast<std::int64_t>(prompt.size()) + new_tokens - 1);
  std::vector<double> logits = window.append(ctx, prompt);
  for (std::int64_t step = 0;; ++step) {
    const std::int32_t id = sampler.next(logits, step);
    if (!take(id) || step + 1 == new_tokens) return;
    logits = window.append(ctx, {&id, 1});
  }
}

}  // namespace fovea::models
