#include "models/generate.h"

#include <algorithm>
#include <map>

#include "autograd/ops/elementwise.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

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

}  // namespace

Continuation::Continuation(Ctx& ctx, DecoderLm& model, int batch, int max_length, Cache cache)
    : model_(model), max_length_(max_length) {
  const ModelConfig& config = model.config();
  if (config.position == Position::learned && max_length > config.block_size) {
    throw ShapeError(cat("generate: up to ", max_length, " tokens, but learned positions end at ",
                         config.block_size, " (model.block_size)"));
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

}  // namespace fovea::models
