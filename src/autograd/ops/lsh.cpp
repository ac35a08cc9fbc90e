#include "autograd/ops/lsh.h"

#include "autograd/require.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

Tensor LshTables::round_order(std::int64_t round) const {
  return order.slice(0, round, round + 1).reshape({order.size(1), order.size(2), order.size(3)});
}

LshTables hash_tokens(Ctx& ctx, const Tensor& x, const Tensor& rotations, const Tensor& valid,
                      std::int64_t bucket_size) {
  constexpr const char* kOp = "hash_tokens";
  require_float(kOp, "x", x);
  const bool fits = x.rank() == 4 && rotations.rank() == 3 && rotations.size(1) == x.size(3) &&
                    rotations.size(2) > 0 && rotations.dtype() == DType::f32;
  if (!fits) {
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), " and rotations are ",
                         name_of(rotations.dtype()), " ", rotations.shape().str(),
                         "; needed are [B,H,N,D] and f32 [R,D,C]"));
  }
  const std::int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2),
                     rounds = rotations.size(0);
  if (valid.defined()) require_tensor(kOp, "valid", valid, {batch, tokens}, DType::u8);
  const Shape shape{rounds, batch, heads, tokens}, rows{rounds * batch * heads, tokens};
  LshTables out{.bucket = ctx.empty(shape, DType::i32, kOp),
                .order = ctx.empty(shape, DType::i32, kOp),
                .slot = ctx.empty(shape, DType::i32, kOp),
                .lengths = ctx.empty({batch}, DType::i32, kOp)};
  FOVEA_ON(ctx.device, count_valid(ctx.stream.ref(), out.lengths.view(), valid.view(), tokens));
  FOVEA_ON(ctx.device, lsh_buckets(ctx.stream.ref(), out.bucket.view(), x.view(), rotations.view(),
                                   out.lengths.view(), valid.view(), bucket_size));
  FOVEA_ON(ctx.device, sort_by_key(ctx.stream.ref(), out.order.reshape(rows).view(),
                                   out.slot.reshape(rows).view(), out.bucket.reshape(rows).view(),
                                   2 * rotations.size(2) + 1));
  return out;
}

PlanRule LshTables::rule(Ctx& ctx, const LshPart& part) const {
  constexpr const char* kOp = "lsh_rule";
  const std::int64_t rows = order.size(1) * order.size(2), tokens = order.size(3),
                     tiles = plan_tiles(tokens), width = lsh_list_width(part, tokens);
  const Shape shape{order.size(0), rows, tokens};
  PlanRule out;
  out.rule.block = kPlanTile;
  out.rule.in_slots = !part.windowed;
  out.list = ctx.empty({rows, tiles, width}, DType::i32, kOp);
  out.list_words = ctx.empty({rows, tiles, width, kPlanTile}, DType::i64, kOp);
  FOVEA_ON(ctx.device, lsh_sight(ctx.stream.ref(), out.list.view(), out.list_words.view(),
                                 bucket.reshape(shape).view(), order.reshape(shape).view(),
                                 slot.reshape(shape).view(), lengths.view(), part));
  return out;
}

}  // namespace fovea
