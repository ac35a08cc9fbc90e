#pragma once
// One attention call as its kernels see it, and the launchers of the instances.

#include "core/philox.h"
#include "kernels/attention_scores.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/tile_rule.h"

namespace fovea::cuda {

// A [B,H,N,D] operand with unit last stride; strides in elements.
struct HeadRows {
  void* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;

  HeadRows() = default;
  explicit HeadRows(const View& x)
      : data(x.data), batch(x.stride[0]), head(x.stride[1]), row(x.stride[2]) {}
  template <class T>
  __device__ T* at(int b, int h) const {
    return static_cast<T*>(data) + b * batch + h * head;
  }
};

// Which tokens exist, and which segment they belong to; null pointers: all of them, and one.
struct Tokens {
  const std::uint8_t* valid = nullptr;
  std::int64_t valid_batch = 0, valid_token = 0;
  const std::int32_t* segments = nullptr;
  std::int64_t segment_batch = 0, segment_token = 0;

  Tokens() = default;
  Tokens(const View& valid_view, const View& segment_view)
      : valid(valid_view.ptr<std::uint8_t>()),
        valid_batch(valid_view.stride[0]),
        valid_token(valid_view.stride[1]),
        segments(segment_view.ptr<std::int32_t>()),
        segment_batch(segment_view.stride[0]),
        segment_token(segment_view.stride[1]) {}
  __device__ __forceinline__ bool is_valid(int b, int token) const {
    return valid == nullptr || valid[b * valid_batch + token * valid_token] != 0;
  }
  __device__ __forceinline__ int segment(int b, int token) const {
    return segments == nullptr ? 0 : segments[b * segment_batch + token * segment_token];
  }
};

// The lists of a TilePlan in one direction: for every own tile the other side's.
struct PlanLists {
  const std::int32_t *begin = nullptr, *full = nullptr, *tiles = nullptr;
  int count = 0;  // own tiles
  std::int64_t capacity = 0;
};

struct FlashPlan {
  bool present = false, counts_tokens = false;
  int batches = 1, heads = 1;
  PlanLists of_queries, of_keys;
  // The rule and the orders; valid and segments stay with the kernels.
  TileSight sight;

  __device__ __forceinline__ int list(int b, int h) const {
    return b % batches * heads + h % heads;
  }
  // The orders of a head's slots; null: slots are tokens.
  __device__ __forceinline__ const std::int32_t* query_order(int b, int h) const {
    const OrderRows& order = sight.query_order;
    return order.at == nullptr ? nullptr : order.at + b * order.batch + h * order.head;
  }
  __device__ __forceinline__ const std::int32_t* key_order(int b, int kv) const {
    const OrderRows& order = sight.key_order;
    return order.at == nullptr ? nullptr : order.at + b * order.batch + kv * order.head;
  }
  // Tokens from here on do not exist, by the rule of a query head's lengths.
  __device__ __forceinline__ int query_end(int b, int h) const {
    const std::int32_t* lengths = present ? sight.rule(h).query_lengths : nullptr;
    return lengths == nullptr ? kNoToken : lengths[b];
  }
  __device__ __forceinline__ int key_end(int b, int h) const {
    const std::int32_t* lengths = present ? sight.rule(h).key_lengths : nullptr;
    return lengths == nullptr ? kNoToken : lengths[b];
  }
  // For a group of query heads: a key exists if it does for one of them.
  __device__ __forceinline__ int key_end(int b, int first, int group) const {
    int end = 0;
    for (int h = first; h < first + group; ++h)
      end = max(end, key_end(b, h));
    return end;
  }
};

__device__ __forceinline__ int token_at(const std::int32_t* order, int slot) {
  return order == nullptr ? slot : order[slot];
}

struct FlashCall {
  HeadRows q, k, v, o, dout, dq, dk, dv;
  float* lse = nullptr;        // natural, [B,H,N]
  float* rows = nullptr;       // backward: see flash_backward_rows
  float* partial = nullptr;    // sums of the kernels for warpgroups
  bool by_warpgroups = false;  // backward: which form `rows` has
  const float* dlse = nullptr;
  Tokens query_tokens, key_tokens;
  int batch = 0, heads = 0, kv_heads = 0, group = 1;
  int queries = 0, keys = 0, width = 0, value_width = 0;
  int offset = 0;          // key j is visible to query i iff j <= i + offset
  int padded_queries = 0;  // rows a head in `rows`
  float scale = 1;
  bool causal = false;
  // The slow path's extras.
  float softcap = 0;
  HeadRows bias;  // batch or head stride 0 where it broadcasts
  std::int64_t bias_column = 1;
  const float* slopes = nullptr;
  float* dbias = nullptr;
  int bias_batch = 1, bias_heads = 1;
  float dropout = 0, keep_scale = 1;
  Key dropout_key;
  FlashPlan plan;
  // A band: then causal is true, there is no plan, and key j is visible to query i iff also
  // j >= i + offset - span.
  bool banded = false;
  int span = 0;

  __host__ __device__ __forceinline__ bool marked() const {
    return query_tokens.valid != nullptr || key_tokens.valid != nullptr ||
           query_tokens.segments != nullptr;
  }
  bool masked() const { return plan.present || marked(); }
};

// How the keys of a call with few queries are split: parts of keys_a_part keys, a multiple of 64,
// of each 16 rows of a key head.
struct FlashSplit {
  int parts = 1, keys_a_part = 0, row_tiles = 1;
  float* partial = nullptr;  // [B,H,N,parts, value width + 2]: sums, reference, mass; if parts > 1
};

// The block that works on `tile` of `head`. Blocks are numbered in sections of heads whose operands
// fit the L2 cache together; within a section the tiles come one after another, so that a launcher
// that numbers long tiles first ends with short ones.
struct TileOrder {
  int heads = 0, tiles = 0, section = 1;

  struct Place {
    int head, tile;
  };
  __device__ __forceinline__ Place at(int block) const {
    const int first = block / (section * tiles) * section;
    const int here = min(section, heads - first), rest = block - first * tiles;
    return {first + rest % here, rest / here};
  }
};

// Half of the L2 cache of an A100 or H200: the other half holds what is being written.
constexpr std::int64_t kSectionBytes = std::int64_t{20} << 20;

inline int section_heads(std::int64_t bytes_per_head, std::int64_t heads) {
  const std::int64_t fit = kSectionBytes / (bytes_per_head > 0 ? bytes_per_head : 1);
  return static_cast<int>(fit < 1 ? 1 : fit < heads ? fit : heads);
}

constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// Tensor-core kernels by the widths that D and Dv are padded to; dtype is bf16 or f16.
using FlashLauncher = void(StreamRef stream, const FlashCall& call, DType dtype);
FlashLauncher flash_forward_32_32, flash_forward_16_64, flash_forward_32_64, flash_forward_64_64,
    flash_forward_16_128, flash_forward_32_128, flash_forward_64_128, flash_forward_128_128,
    flash_forward_192_128, flash_forward_256_256;
FlashLauncher flash_backward_32_32, flash_backward_16_64, flash_backward_32_64,
    flash_backward_64_64, flash_backward_16_128, flash_backward_32_128, flash_backward_64_128,
    flash_backward_128_128, flash_backward_192_128, flash_backward_256_256;

// Of a band.
FlashLauncher flash_forward_band_16_64, flash_forward_band_32_64, flash_forward_band_64_64,
    flash_forward_band_128_128;

// For few queries: flash.cu says when. split.partial must be set.
using FlashSplitLauncher = void(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                                DType dtype);
FlashSplitLauncher flash_decode_32_32, flash_decode_16_64, flash_decode_32_64, flash_decode_64_64,
    flash_decode_16_128, flash_decode_32_128, flash_decode_64_128, flash_decode_128_128,
    flash_decode_192_128, flash_decode_256_256;

// One pass over pairs of tiles, on devices of compute capability 9.0; padded width 64, no masks,
// one query head a key head, and every query sees the first key. Takes call.partial.
void flash_one_pass_w64(StreamRef stream, const FlashCall& call, DType dtype);
bool has_one_pass();                                // whether the current device does
std::size_t one_pass_bytes(const FlashCall& call);  // of call.partial

// One pass with dQ added in the order of the keys, on devices that has_one_pass() names; no masks,
// and every query sees the first key. Takes call.partial.
FlashLauncher flash_ordered_32_64, flash_ordered_64_64, flash_ordered_32_128, flash_ordered_64_128,
    flash_ordered_128_128;
// The same for a band, of which every key tile of 128 shows a key to some query.
FlashLauncher flash_ordered_band_32_64, flash_ordered_band_64_64, flash_ordered_band_128_128;
std::size_t ordered_bytes(const FlashCall& call, int padded_width);  // of call.partial

// By a plan, on the same devices; padded width 64. They take call.partial.
void flash_plan_forward_w64(StreamRef stream, const FlashCall& call, DType dtype);
void flash_plan_backward_w64(StreamRef stream, const FlashCall& call, DType dtype);
std::size_t plan_forward_bytes(const FlashCall& call);
std::size_t plan_backward_bytes(const FlashCall& call);

// Fills call.rows, two planes [2][B,H,padded_queries], in the order of slots: -lse / scale (by
// warpgroups: -lse log2 e), -inf where the row sends no gradient; and -delta = dlse - <dout, o>, 0
// there.
void flash_backward_rows(StreamRef stream, const FlashCall& call, DType dtype);

// f32 arithmetic for whatever the others do not take: any width up to 256, a cap, bias, ALiBi,
// dropout.
void flash_forward_general(StreamRef stream, const FlashCall& call, DType dtype);
void flash_backward_general(StreamRef stream, const FlashCall& call, DType dtype);

}  // namespace fovea::cuda
