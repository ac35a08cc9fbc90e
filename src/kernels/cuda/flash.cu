// Picks the kernel of an attention call: tensor cores where dtype, width and layout allow and no
// score needs more than a mask, f32 arithmetic otherwise. The choice depends on shapes, strides and
// what is present alone.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/flash.h"
#include "kernels/tile_plan.h"

namespace fovea::cuda {

namespace {

constexpr int kRowTile = 128;  // what rows a head are padded to in scratch memory

PlanLists lists_of(const View& begin, const View& full, const View& tiles) {
  PlanLists lists;
  lists.begin = begin.ptr<std::int32_t>();
  lists.full = full.ptr<std::int32_t>();
  lists.tiles = tiles.ptr<std::int32_t>();
  lists.count = static_cast<int>(full.dim[1]);
  lists.capacity = tiles.dim[1];
  return lists;
}

FlashCall describe(const View& q, const View& k, const View& v, const AttentionScores& scores,
                   const char* launcher) {
  FlashCall call;
  call.q = HeadRows(q), call.k = HeadRows(k), call.v = HeadRows(v);
  call.query_tokens = Tokens(scores.query_valid, scores.query_segments);
  call.key_tokens = Tokens(scores.key_valid, scores.key_segments);
  const std::int64_t most = std::int64_t{1} << 30;
  if (q.dim[2] > most || k.dim[2] > most || q.dim[0] * q.dim[1] > most)
    refuse(launcher, "more than 2^30 tokens or heads");
  call.batch = static_cast<int>(q.dim[0]);
  call.heads = static_cast<int>(q.dim[1]);
  call.kv_heads = static_cast<int>(k.dim[1]);
  call.group = call.heads / call.kv_heads;
  call.queries = static_cast<int>(q.dim[2]);
  call.keys = static_cast<int>(k.dim[2]);
  call.width = static_cast<int>(q.dim[3]);
  call.value_width = static_cast<int>(v.dim[3]);
  call.offset = call.keys - call.queries;
  call.padded_queries = (call.queries + kRowTile - 1) / kRowTile * kRowTile;
  call.scale = static_cast<float>(scores.scale);
  call.causal = scores.causal;
  call.softcap = static_cast<float>(scores.softcap);
  if (const View& bias = scores.bias; bias) {
    call.bias = HeadRows(bias);
    if (bias.dim[0] == 1) call.bias.batch = 0;
    if (bias.dim[1] == 1) call.bias.head = 0;
    call.bias_column = bias.stride[3];
    call.bias_batch = static_cast<int>(bias.dim[0]);
    call.bias_heads = static_cast<int>(bias.dim[1]);
  }
  call.slopes = scores.alibi_slopes.ptr<float>();
  call.dropout = static_cast<float>(scores.dropout);
  call.keep_scale = static_cast<float>(1 / (1 - scores.dropout));
  call.dropout_key = scores.dropout_key;
  if (const TilePlan* plan = scores.plan; plan != nullptr) {
    call.plan.present = true;
    call.plan.counts_tokens = plan->counts_tokens;
    call.plan.batches = plan->batches;
    call.plan.heads = plan->heads;
    call.plan.of_queries = lists_of(plan->begin, plan->full, plan->key_tiles);
    call.plan.of_keys = lists_of(plan->key_begin, plan->key_full, plan->query_tiles);
    call.plan.sight =
        tile_sight(*plan, scores, q.dim[2], k.dim[2], q.dim[1], k.dim[1], /*tokens=*/false);
  }
  if (call.width > 256 || call.value_width > 256)
    refuse(launcher, "heads wider than 256; use model.attention.kernel: materialised");
  return call;
}

// Rows that can be moved 16 bytes at a time. Strides of axes of one element mean nothing.
bool walks_by_16_bytes(const View& x) {
  if (!x) return true;
  if (reinterpret_cast<unsigned long long>(x.data) % 16 != 0 || x.dim[3] % 8 != 0) return false;
  if (x.dim[3] != 1 && x.stride[3] != 1) return false;
  for (int axis = 0; axis < 3; ++axis) {
    if (x.dim[axis] != 1 && x.stride[axis] % 8 != 0) return false;
  }
  return true;
}

bool takes_tensor_cores(const View& q, const View& k, const View& v,
                        const AttentionScores& scores) {
  return (q.dtype == DType::bf16 || q.dtype == DType::f16) && scores.scale > 0 &&
         scores.softcap <= 0 && scores.dropout <= 0 && !scores.bias && !scores.alibi_slopes &&
         walks_by_16_bytes(q) && walks_by_16_bytes(k) && walks_by_16_bytes(v);
}

struct Instance {
  int width, value_width;
  FlashLauncher *forward, *backward;
  FlashSplitLauncher* decode;
  FlashLauncher* ordered = nullptr;
  int ordered_width = 0;                                           // what it pads the width to
  FlashLauncher *forward_band = nullptr, *ordered_band = nullptr;  // both or none
};

// The first that fits is the cheapest that fits.
constexpr Instance kInstances[] = {
    {32, 32, flash_forward_32_32, flash_backward_32_32, flash_decode_32_32},
    {16, 64, flash_forward_16_64, flash_backward_16_64, flash_decode_16_64, flash_ordered_32_64, 32,
     flash_forward_band_16_64, flash_ordered_band_32_64},
    {32, 64, flash_forward_32_64, flash_backward_32_64, flash_decode_32_64, flash_ordered_32_64, 32,
     flash_forward_band_32_64, flash_ordered_band_32_64},
    {64, 64, flash_forward_64_64, flash_backward_64_64, flash_decode_64_64, flash_ordered_64_64, 64,
     flash_forward_band_64_64, flash_ordered_band_64_64},
    {16, 128, flash_forward_16_128, flash_backward_16_128, flash_decode_16_128,
     flash_ordered_32_128, 32},
    {32, 128, flash_forward_32_128, flash_backward_32_128, flash_decode_32_128,
     flash_ordered_32_128, 32},
    {64, 128, flash_forward_64_128, flash_backward_64_128, flash_decode_64_128,
     flash_ordered_64_128, 64},
    {128, 128, flash_forward_128_128, flash_backward_128_128, flash_decode_128_128,
     flash_ordered_128_128, 128, flash_forward_band_128_128, flash_ordered_band_128_128},
    {192, 128, flash_forward_192_128, flash_backward_192_128, flash_decode_192_128},
    {256, 256, flash_forward_256_256, flash_backward_256_256, flash_decode_256_256},
};

const Instance& instance_for(const FlashCall& call) {
  const Instance* at = kInstances;
  while (call.width > at->width || call.value_width > at->value_width)
    ++at;
  return *at;
}

// Few queries leave most of a query tile empty and most multiprocessors idle: their keys are split
// from so many on. About kSplitBlocks blocks, whatever the device: the bits follow from the split.
constexpr int kSplitMostQueries = 16, kSplitLeastKeys = 1024, kSplitBlocks = 1024;
constexpr int kSplitKeys = 512;  // of a part at least

bool takes_split(const FlashCall& call) {
  return call.queries <= kSplitMostQueries && call.keys >= kSplitLeastKeys && !call.plan.present;
}

FlashSplit split_of(const FlashCall& call) {
  constexpr int kRows = 16;
  FlashSplit split;
  split.row_tiles = (call.group * call.queries + kRows - 1) / kRows;
  const std::int64_t blocks =
      static_cast<std::int64_t>(call.batch) * call.kv_heads * split.row_tiles;
  const std::int64_t wanted = (kSplitBlocks + blocks - 1) / blocks;
  const std::int64_t most = (call.keys + kSplitKeys - 1) / kSplitKeys;
  const int parts = static_cast<int>(wanted < most ? wanted : most);
  split.keys_a_part = ((call.keys + parts - 1) / parts + kPlanTile - 1) / kPlanTile * kPlanTile;
  split.parts = (call.keys + split.keys_a_part - 1) / split.keys_a_part;
  return split;
}

bool is_64_wide(const FlashCall& call) {
  const int widest = call.width > call.value_width ? call.width : call.value_width;
  return widest > 32 && widest <= 64;
}

bool takes_plan_kernels(const FlashCall& call) {
  return call.plan.present && is_64_wide(call) && has_one_pass();
}

// One block walks a whole head: worth it where heads fill the multiprocessors of an H100 or H200
// almost a whole number of times, and while the f32 dQ of the heads at work fits their L2 cache.
constexpr int kPassBlocks = 132, kPassMostQueries = 2048;

bool takes_one_pass(const FlashCall& call) {
  if (!is_64_wide(call) || call.group != 1 || call.masked()) return false;
  if (call.queries == 0 || call.queries > kPassMostQueries || call.keys == 0) return false;
  if (call.causal && call.offset < 0) return false;  // some query sees nothing
  if (call.dq.data == nullptr || call.dk.data == nullptr || call.dv.data == nullptr) return false;
  const std::int64_t heads = static_cast<std::int64_t>(call.batch) * call.heads;
  const std::int64_t turns = (heads + kPassBlocks - 1) / kPassBlocks;
  return heads * 5 >= turns * kPassBlocks * 3 && has_one_pass();
}

// The same for any number of heads and for wider ones: blocks of one head work at once, and wait
// for each other's dQ, which does not pay where there are few.
constexpr int kOrderedLeast = 512;      // queries and keys
constexpr int kOrderedFirstKeys = 128;  // of which a band must show one

bool takes_ordered(const FlashCall& call) {
  if (instance_for(call).ordered == nullptr || call.masked()) return false;
  if (call.queries < kOrderedLeast || call.keys < kOrderedLeast) return false;
  if (call.causal && call.offset < 0) return false;  // some query sees nothing
  if (call.dq.data == nullptr || call.dk.data == nullptr || call.dv.data == nullptr) return false;
  return has_one_pass();
}

// Makes the call one of a band, without a plan, if its plan is known to be one and its instance
// takes bands; every query then sees its own position at least. Whatever the number of queries and
// whether tokens are marked: so a row's bits depend on neither.
bool becomes_band(FlashCall& call, const AttentionScores& scores) {
  if (!call.plan.present || scores.plan->band < 0 || call.offset < 0) return false;
  if (instance_for(call).forward_band == nullptr || call.queries == 0) return false;
  const int left = scores.plan->band < call.keys ? scores.plan->band : call.keys - 1;
  const int right = call.causal ? 0 : left;
  call.banded = call.causal = true;
  call.offset += right;
  call.span = left + right;
  call.plan = FlashPlan();
  return true;
}

// The backward pass of a band. Else the plan's own kernels take it.
bool takes_ordered_band(FlashCall& call, const AttentionScores& scores) {
  FlashCall band = call;
  if (!becomes_band(band, scores) || !takes_ordered(band)) return false;
  if (band.offset - band.span >= kOrderedFirstKeys) return false;  // keys that no query sees
  call = band;
  return true;
}

}  // namespace

void flash_forward(StreamRef stream, const View& o, const View& lse, const View& q, const View& k,
                   const View& v, const AttentionScores& scores) {
  if (lse.numel() == 0) return;
  FlashCall call = describe(q, k, v, scores, "flash_forward");
  call.o = HeadRows(o);
  call.lse = lse.ptr<float>();
  if (!takes_tensor_cores(q, k, v, scores) || !walks_by_16_bytes(o))
    return flash_forward_general(stream, call, q.dtype);
  becomes_band(call, scores);
  if (takes_plan_kernels(call)) {
    if (const std::size_t bytes = plan_forward_bytes(call); bytes > 0)
      call.partial = static_cast<float*>(scratch(stream, bytes, "flash_forward"));
    return flash_plan_forward_w64(stream, call, q.dtype);
  }
  const Instance& instance = instance_for(call);
  if (call.banded) return instance.forward_band(stream, call, q.dtype);
  if (!takes_split(call)) return instance.forward(stream, call, q.dtype);
  FlashSplit split = split_of(call);
  if (split.parts > 1) {
    const std::size_t floats = static_cast<std::size_t>(lse.numel()) *
                               static_cast<std::size_t>(split.parts) *
                               static_cast<std::size_t>(call.value_width + 2);
    split.partial = static_cast<float*>(scratch(stream, sizeof(float) * floats, "flash_forward"));
  }
  instance.decode(stream, call, split, q.dtype);
}

void flash_backward(StreamRef stream, const AttentionGradients& gradients, const View& dout,
                    const View& dlse, const View& q, const View& k, const View& v, const View& o,
                    const View& lse, const AttentionScores& scores) {
  if (q.dim[0] * q.dim[1] == 0) return;
  FlashCall call = describe(q, k, v, scores, "flash_backward");
  call.o = HeadRows(o);
  call.lse = lse.ptr<float>();
  call.dout = HeadRows(dout);
  call.dlse = dlse.ptr<float>();
  const auto wanted = [](const View& x) { return x && x.numel() > 0; };
  if (wanted(gradients.dq)) call.dq = HeadRows(gradients.dq);
  if (wanted(gradients.dk)) call.dk = HeadRows(gradients.dk);
  if (wanted(gradients.dv)) call.dv = HeadRows(gradients.dv);
  if (wanted(gradients.dbias)) call.dbias = gradients.dbias.ptr<float>();
  const bool fast = takes_tensor_cores(q, k, v, scores) && dout && walks_by_16_bytes(dout) &&
                    walks_by_16_bytes(o) && walks_by_16_bytes(gradients.dq) &&
                    walks_by_16_bytes(gradients.dk) && walks_by_16_bytes(gradients.dv);
  const bool banded = fast && takes_ordered_band(call, scores);
  const bool whole_heads = fast && !banded && takes_one_pass(call);
  const bool by_plan = fast && takes_plan_kernels(call);
  const bool ordered = banded || (fast && !whole_heads && takes_ordered(call));
  call.by_warpgroups = whole_heads || by_plan || ordered;
  const Instance& instance = instance_for(call);
  const std::size_t partial = whole_heads ? one_pass_bytes(call)
                              : by_plan   ? plan_backward_bytes(call)
                              : ordered   ? ordered_bytes(call, instance.ordered_width)
                                          : 0;
  const std::size_t rows =
      2 * static_cast<std::size_t>(call.batch) * static_cast<std::size_t>(call.heads) *
      static_cast<std::size_t>(call.padded_queries > 0 ? call.padded_queries : 1);
  call.rows =
      static_cast<float*>(scratch(stream, sizeof(float) * rows + partial, "flash_backward"));
  call.partial = call.rows + rows;
  if (!fast) return flash_backward_general(stream, call, q.dtype);
  if (call.queries > 0) flash_backward_rows(stream, call, q.dtype);
  if (whole_heads) return flash_one_pass_w64(stream, call, q.dtype);
  if (by_plan) return flash_plan_backward_w64(stream, call, q.dtype);
  (banded    ? instance.ordered_band
   : ordered ? instance.ordered
             : instance.backward)(stream, call, q.dtype);
}

}  // namespace fovea::cuda
