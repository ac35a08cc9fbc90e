#include "models/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/ops/activation.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/embedding.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "models/build.h"

namespace fovea::models {

namespace {

// first .. first + N - 1 in every row, i32 [B,N].
Tensor positions_from(Ctx& ctx, std::int64_t batch, std::int64_t n, std::int64_t first) {
  if (ctx.device.is_meta()) return ctx.empty({batch, n}, DType::i32);
  Tensor host = Tensor::empty({batch, n}, DType::i32, kCpu);
  for (std::int64_t i = 0; i < batch * n; ++i) {
    host.data<std::int32_t>()[i] = static_cast<std::int32_t>(first + i % n);
  }
  return ctx.device.is_cpu() ? host : host.to(ctx.device, ctx.stream);
}

BlockStream run_block(Ctx& ctx, Block& block, const BlockStream& x, const ForwardInput& in,
                      bool recompute) {
  if (!recompute) return block.forward(ctx, x, in);
  auto again = [&block, in](Ctx& c, std::span<const Var> inputs) {
    const BlockStream y = block.forward(c, {inputs[0], inputs[1], {}}, in);
    std::vector<Var> out{y.residual, y.branch};
    if (y.aux.defined()) out.push_back(y.aux);
    return out;
  };
  const std::vector<Var> out = checkpoint(ctx, std::move(again), {x.residual, x.branch});
  return {out[0], out[1], out.size() > 2 ? out[2] : Var()};
}

}  // namespace

Transformer::Transformer(const ModelConfig& config) : config_(config) {
  wte_ = &child("wte",
                std::make_unique<nn::Embedding>(config.vocab_size, config.n_embd, config.init_std));
  if (config.position == Position::learned) {
    wpe_ = &child(
        "wpe", std::make_unique<nn::Embedding>(config.block_size, config.n_embd, config.init_std));
  }
  nn::SharedParameters shared;
  for (int layer = 0; layer < config.n_layer; ++layer) {
    const ModelConfig::AttentionChoice& choice = config.attention[static_cast<std::size_t>(layer)];
    blocks_.push_back(&child(cat("blocks.", layer),
                             std::make_unique<Block>(block_config(config, layer, &shared),
                                                     attention_spec(choice), choice.options)));
  }
  norm_f_ = &child(
      "norm_f", std::make_unique<nn::Norm>(config.n_embd, block_config(config, 0, &shared).norm));
}

// Row i of `length` lies at (i + 1/2) P / length - 1/2 of the table's P rows, but never outside.
// Source: elsaa.md 6.2.
Var Transformer::stretched_positions(Ctx& ctx, std::int64_t length) {
  const Var table = wpe_->weight().var();
  const std::int64_t rows = table.size(0), width = table.size(1);
  if (ctx.device.is_meta()) return Var(ctx.empty({length, width}, table.dtype()));
  const bool made = stretch_.low.defined() && stretch_.low.size(1) == length &&
                    stretch_.low.device() == ctx.device &&
                    stretch_.low_share.dtype() == table.dtype();
  if (!made) {
    std::vector<double> low, high, low_share, high_share;
    for (std::int64_t i = 0; i < length; ++i) {
      const double at = std::clamp(
          (static_cast<double>(i) + 0.5) * static_cast<double>(rows) / static_cast<double>(length) -
              0.5,
          0.0, static_cast<double>(rows - 1));
      low.push_back(std::floor(at));
      high.push_back(std::min(low.back() + 1, static_cast<double>(rows - 1)));
      low_share.insert(low_share.end(), static_cast<std::size_t>(width), 1 - (at - low.back()));
      high_share.insert(high_share.end(), static_cast<std::size_t>(width), at - low.back());
    }
    const auto on_device = [&](const std::vector<double>& values, Shape shape, DType dtype) {
      const Tensor host = Tensor::from(values, shape, dtype);
      return ctx.device.is_cpu() ? host : host.to(ctx.device, ctx.stream);
    };
    stretch_ = {on_device(low, {1, length}, DType::i32), on_device(high, {1, length}, DType::i32),
                on_device(low_share, {1, length, width}, table.dtype()),
                on_device(high_share, {1, length, width}, table.dtype())};
  }
  const auto part = [&](const Tensor& row, const Tensor& share) {
    return mul(ctx, embedding(ctx, row, table, {}, {}), Var(share));
  };
  const Var sum =
      add(ctx, part(stretch_.low, stretch_.low_share), part(stretch_.high, stretch_.high_share));
  return reshape(ctx, sum, {length, width});
}

Var Transformer::position_table(Ctx& ctx, std::int64_t end, bool whole) {
  if (config_.position == Position::learned) {
    if (end > config_.block_size && config_.interpolate_positions && whole && ctx.tape == nullptr)
      return stretched_positions(ctx, end);
    if (end > config_.block_size) {
      throw ShapeError(cat(config_.kind, ": ", end, " tokens, but learned positions end at ",
                           config_.block_size, " (model.block_size)"));
    }
    return wpe_->weight().var();
  }
  if (config_.position != Position::sinusoidal) return {};
  const DType dtype = ctx.compute();
  std::int64_t longest = 0;
  for (const Tensor& table : sinusoids_) {
    if (table.dtype() != dtype || !(table.device() == ctx.device)) continue;
    if (table.size(0) >= end) return Var(table);
    longest = std::max(longest, table.size(0));
  }
  // At least twice as long as before: a text that grows token by token needs few tables.
  const std::int64_t rows = std::max({end, std::int64_t{config_.block_size}, 2 * longest});
  const Tensor exact = sinusoidal_table(rows, config_.n_embd, acc_of(dtype));
  Tensor rounded = Tensor::empty(exact.shape(), dtype, kCpu, "sinusoids");
  copy_host(rounded.view(), exact.view());
  sinusoids_.push_back(ctx.device.is_cpu() ? rounded : rounded.to(ctx.device, ctx.stream));
  return Var(sinusoids_.back());
}

Var Transformer::embed(Ctx& ctx, const Tensor& ids, const Tensor& positions, std::int64_t end,
                       bool whole) {
  const Var x = wte_->forward(ctx, ids, position_table(ctx, end, whole), positions);
  return dropout(ctx, x, config_.dropout, ctx.key(wte_->path() + ".dropout"));
}

TransformerOutput Transformer::forward(Ctx& ctx, const TransformerInput& in) {
  if (in.ids.rank() != 2) {
    throw ShapeError(cat(config_.kind, ": ids are ", in.ids.shape().str(), ", but must be [B,N]"));
  }
  const std::int64_t past = in.state != nullptr ? in.state->length() : 0;
  const std::int64_t batch = in.ids.size(0), n = in.ids.size(1);
  ForwardInput layer{in.key_valid, in.segments, in.positions};
  if (past > 0 && !in.positions.defined()) layer.positions = positions_from(ctx, batch, n, past);

  TransformerOutput out;
  BlockStream x{embed(ctx, in.ids, layer.positions, past + n, in.state == nullptr), {}, {}};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    layer.state = in.state != nullptr ? in.state->layers[i].get() : nullptr;
    x = run_block(ctx, *blocks_[i], x, layer, in.recompute);
    if (x.aux.defined()) out.aux.push_back(x.aux);
  }
  out.hidden = norm_f_->forward(ctx, x.residual, x.branch).norm;
  return out;
}

std::int64_t Transformer::block_parameters() const {
  std::int64_t count = 0;
  for (const Block* block : blocks_)
    count += block->matmul_parameters();
  return count;
}

}  // namespace fovea::models
