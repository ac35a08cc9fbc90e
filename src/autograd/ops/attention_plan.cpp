#include "autograd/ops/attention_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "autograd/ops/attention.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

void require(bool ok, const char* name, const Tensor& t, const std::string& wanted) {
  if (!ok)
    throw ShapeError(cat("attention plan: ", name, " is ", name_of(t.dtype()), " ", t.shape().str(),
                         ", but must be ", wanted));
}

struct Tile {
  std::int64_t first_query, column, queries, keys;  // the numbers of real ones
};

// Calls fn(sample, head, tile) for the tiles that the rules reach.
template <class F>
void for_tiles(const TilePlan& plan, const PlanShape& shape, const TileSight& sight, F&& fn) {
  const auto real = [](std::int64_t tile, std::int64_t tokens) {
    return std::min<std::int64_t>(kPlanTile, tokens - tile * kPlanTile);
  };
  for (std::int64_t one = 0; one < std::int64_t{plan.batches} * plan.heads; ++one) {
    const std::int64_t b = one / plan.heads, h = one % plan.heads;
    for (std::int64_t row = 0; row < plan_tiles(shape.queries); ++row) {
      for (std::int64_t column = 0; column < plan_tiles(shape.keys); ++column) {
        if (!sight.reaches(b, h, row, column)) continue;
        fn(b, h, Tile{row * kPlanTile, column, real(row, shape.queries), real(column, shape.keys)});
      }
    }
  }
}

// Samples that a tensor's first axis stands for: 0 shared.
std::int64_t by_sample(const Tensor& t, std::int64_t stride) {
  return t.size(0) == 1 ? 0 : stride;
}

}  // namespace

// One description of all buffers: cut up, every part would need most of the others' names.
// NOLINTNEXTLINE(readability-function-size)
AttentionPlan::AttentionPlan(const PlanShape& shape, const std::vector<PlanRule>& rules,
                             Device device, Stream& stream, const Tensor& query_order,
                             const Tensor& key_order, bool counts_tokens)
    : shape_(shape), device_(device) {
  const auto heads = static_cast<std::int64_t>(rules.size());
  if (heads == 0 || shape.heads % heads != 0)
    throw ShapeError(cat("attention plan: ", heads, " rules do not fit ", shape.heads, " heads"));
  bool samples = counts_tokens;
  // A tensor's pointer on the device; its shape is that of `wanted` with 1 or B samples in front.
  const auto place = [&](const char* name, const Tensor& t, DType dtype, Shape one, auto*& host,
                         auto*& at, std::int64_t* stride) {
    if (!t.defined()) return;
    const bool lengths = one.rank() == 0;
    const std::int64_t rows = one.numel();
    const bool fits = t.dtype() == dtype && t.is_contiguous() && t.rank() == one.rank() + 1 &&
                      t.numel() == t.size(0) * rows &&
                      (t.size(0) == shape.batch || (t.size(0) == 1 && !lengths));
    require(fits, name, t, cat(name_of(dtype), " [1|B, ", one.str(), "]"));
    samples = samples || lengths || t.size(0) > 1;
    if (stride != nullptr) *stride = by_sample(t, rows);
    using Pointer = std::remove_reference_t<decltype(at)>;
    if (t.device().is_cpu())
      host = static_cast<Pointer>(t.view().data);
    else
      host_sees_ = false;
    const Tensor moved = t.device() == device || device.is_meta() ? t : t.to(device, stream);
    kept_.push_back(t);
    kept_.push_back(moved);
    at = static_cast<Pointer>(moved.view().data);
  };
  std::vector<TileRule> device_rules;
  const bool ordered = query_order.defined();
  std::int64_t capacity = 0;
  for (const PlanRule& r : rules) {
    TileRule host = r.rule, on = r.rule;
    const std::int64_t blocks = (shape.keys + host.block - 1) / host.block;
    const auto both = [&](const char* name, const Tensor& t, DType dtype, Shape one,
                          auto TileRule::*at, std::int64_t TileRule::*stride) {
      std::int64_t apart = 0;
      place(name, t, dtype, one, host.*at, on.*at, &apart);
      if (t.defined() && stride != nullptr) host.*stride = on.*stride = apart;
    };
    both("key_flags", r.key_flags, DType::i64, {plan_tiles(shape.keys)}, &TileRule::key_flags,
         &TileRule::key_flags_batch);
    both("query_flags", r.query_flags, DType::i64, {plan_tiles(shape.queries)},
         &TileRule::query_flags, &TileRule::query_flags_batch);
    if (r.list.defined()) {
      require(r.list.rank() == 3, "list", r.list, "of rank 3");
      host.list_width = on.list_width = static_cast<std::int32_t>(r.list.size(2));
    }
    both("list", r.list, DType::i32, {blocks, host.list_width}, &TileRule::list,
         &TileRule::list_batch);
    if (r.list_words.defined() && host.block != kPlanTile)
      throw ShapeError("attention plan: list_words need blocks of 64");
    both("list_words", r.list_words, DType::i64, {blocks, host.list_width, kPlanTile},
         &TileRule::list_words, &TileRule::list_words_batch);
    both("query_lengths", r.query_lengths, DType::i32, {}, &TileRule::query_lengths, nullptr);
    both("key_lengths", r.key_lengths, DType::i32, {}, &TileRule::key_lengths, nullptr);
    capacity = std::max(capacity, plan_capacity(on, shape.queries, shape.keys, ordered));
    host_rules_.push_back(host);
    device_rules.push_back(on);
  }
  plan_.heads = static_cast<std::int32_t>(heads);
  if (ordered != key_order.defined())
    throw ShapeError("attention plan: orders of queries and keys come together");
  if (ordered) {
    const auto order = [&](const char* name, const Tensor& t, std::int64_t of, std::int64_t n) {
      const bool fits = t.rank() == 3 && t.dtype() == DType::i32 && t.is_contiguous() &&
                        t.device() == device && (t.size(0) == 1 || t.size(0) == shape.batch) &&
                        (t.size(1) == 1 || t.size(1) == of) && t.size(2) == n;
      require(fits, name, t, cat("i32 [1|", shape.batch, ", 1|", of, ", ", n, "] on its device"));
      samples = samples || t.size(0) > 1;
      kept_.push_back(t);
      return t.view();
    };
    plan_.query_order = order("query_order", query_order, shape.heads, shape.queries);
    plan_.key_order = order("key_order", key_order, shape.kv_heads, shape.keys);
    if (query_order.size(1) > 1 || key_order.size(1) > 1) {
      // A list for every head: rules repeat.
      for (std::int64_t h = heads; h < shape.heads; ++h) {
        device_rules.push_back(device_rules[static_cast<std::size_t>(h % heads)]);
        host_rules_.push_back(host_rules_[static_cast<std::size_t>(h % heads)]);
      }
      plan_.heads = static_cast<std::int32_t>(shape.heads);
    }
    host_sees_ = host_sees_ && device.is_cpu();
  }
  const TileRule& first = device_rules.front();
  const auto same_band = [&](const TileRule& r) {
    return r.is_band() && r.left == first.left && (shape.causal || r.right == r.left);
  };
  if (!ordered && std::all_of(device_rules.begin(), device_rules.end(), same_band))
    plan_.band = first.left;
  plan_.batches = samples ? static_cast<std::int32_t>(shape.batch) : 1;
  plan_.counts_tokens = counts_tokens;

  const auto bytes = static_cast<std::int64_t>(sizeof(TileRule));
  const Tensor packed = Tensor::empty({plan_.heads, bytes}, DType::u8, kCpu);
  std::memcpy(packed.view().data, device_rules.data(), device_rules.size() * sizeof(TileRule));
  const auto keep = [&](const Tensor& t) {
    kept_.push_back(t);
    return t.view();
  };
  const auto space = [&](Shape s) {
    return keep(Tensor::empty(s, DType::i32, device, "attention_plan"));
  };
  plan_.rules = keep(device.is_cpu() || device.is_meta() ? packed : packed.to(device, stream));
  const std::int64_t plans = std::int64_t{plan_.batches} * plan_.heads,
                     rows = plan_tiles(shape.queries), columns = plan_tiles(shape.keys);
  plan_.begin = space({plans, rows + 1});
  plan_.full = space({plans, rows});
  plan_.key_tiles = space({plans, capacity});
  plan_.key_begin = space({plans, columns + 1});
  plan_.key_full = space({plans, columns});
  plan_.query_tiles = space({plans, capacity});
  plan_.needed = space({plans});
}

TilePlan AttentionPlan::samples(std::int64_t first, std::int64_t count) const {
  FOVEA_ASSERT(plan_.batches == shape_.batch && first >= 0 && first + count <= shape_.batch);
  TilePlan out = plan_;
  out.batches = static_cast<std::int32_t>(count);
  const auto part = [&](View& view, std::int64_t rows) {
    if (!view) return;
    view.data = view.ptr<char>() + first * rows * view.stride[0] * size_of(view.dtype);
    view.dim[0] = count * rows;
  };
  for (View* view : {&out.begin, &out.full, &out.key_tiles, &out.key_begin, &out.key_full,
                     &out.query_tiles, &out.needed})
    part(*view, plan_.heads);
  for (View* order : {&out.query_order, &out.key_order}) {
    if (*order && order->dim[0] == shape_.batch) part(*order, 1);
  }
  return out;
}

void AttentionPlan::build(Ctx& ctx, const AttentionScores& scores) {
  FOVEA_ON(ctx.device, tile_plan_build(ctx.stream.ref(), plan_, scores, shape_.queries, shape_.keys,
                                       shape_.heads, shape_.kv_heads));
}

void AttentionPlan::build(Ctx& ctx, const AttentionMask& mask) {
  AttentionScores scores;
  scores.causal = shape_.causal;
  scores.key_valid = mask.key_valid.view();
  scores.query_valid = mask.query_valid.view();
  if (!mask.query_valid.defined() && shape_.queries == shape_.keys)
    scores.query_valid = scores.key_valid;
  scores.query_segments = mask.query_segments.view();
  scores.key_segments =
      mask.key_segments.defined() ? mask.key_segments.view() : mask.query_segments.view();
  build(ctx, scores);
}

void AttentionPlan::build(Ctx& ctx) {
  AttentionScores scores;
  scores.causal = shape_.causal;
  build(ctx, scores);
}

TileSight AttentionPlan::host_sight() const {
  AttentionScores scores;
  scores.causal = shape_.causal;
  TileSight sight =
      tile_sight(plan_, scores, shape_.queries, shape_.keys, shape_.heads, shape_.kv_heads, false);
  sight.rules = host_rules_.data();
  return sight;
}

double AttentionPlan::count_pairs() const {
  if (!host_sees_) return -1;
  const TileSight sight = host_sight();
  double pairs = 0;
  for_tiles(plan_, shape_, sight, [&](std::int64_t b, std::int64_t h, Tile tile) {
    for (std::int64_t i = tile.first_query; i < tile.first_query + tile.queries; ++i)
      pairs += std::popcount(sight.row(b, h, i, tile.column));
  });
  return pairs / static_cast<double>(plan_.batches * plan_.heads);
}

double AttentionPlan::count_tiled_pairs() const {
  if (!host_sees_) return -1;
  const TileSight sight = host_sight();
  double pairs = 0;
  for_tiles(plan_, shape_, sight, [&](std::int64_t b, std::int64_t h, Tile tile) {
    for (std::int64_t i = tile.first_query; i < tile.first_query + tile.queries; ++i) {
      if (sight.row(b, h, i, tile.column) == 0) continue;
      pairs += static_cast<double>(tile.queries * tile.keys);
      return;
    }
  });
  return pairs / static_cast<double>(plan_.batches * plan_.heads);
}

std::shared_ptr<const AttentionPlan> PlanCache::get(
    Ctx& ctx, const PlanShape& shape,
    const std::function<std::vector<PlanRule>(const PlanShape&)>& rules,
    const std::function<PlanOrders(const PlanShape&)>& orders) {
  const std::tuple key{shape, static_cast<int>(ctx.device.kind), int{ctx.device.index}};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  const PlanOrders order = orders ? orders(shape) : PlanOrders{};
  const auto placed = [&](const Tensor& t) {
    if (!t.defined() || ctx.device.is_cpu()) return t;
    return ctx.device.is_meta() ? Tensor::empty(t.shape(), t.dtype(), ctx.device)
                                : t.to(ctx.device, ctx.stream);
  };
  const std::vector<PlanRule> listed = rules(shape);
  const auto made = std::make_shared<AttentionPlan>(shape, listed, ctx.device, ctx.stream,
                                                    placed(order.query), placed(order.key));
  if (!ctx.device.is_meta()) {
    made->build(ctx);
  } else {
    const bool ordered = order.query.defined();  // then only the host's own orders can be read
    made->set_pairs(
        ordered
            ? AttentionPlan(shape, listed, kCpu, ctx.stream, order.query, order.key).count_pairs()
            : made->count_pairs());
  }
  if (ctx.training || plans_.size() < kMostKept) plans_.emplace(key, made);
  return made;
}

}  // namespace fovea
