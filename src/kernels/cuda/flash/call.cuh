#pragma once
// One attention call as its kernels see it, and the launchers of the instances.

#include "core/philox.h"
#include "kernels/attention_scores.h"
#include "kernels/cuda/launch.cuh"

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

struct FlashCall {
  HeadRows q, k, v, o, dout, dq, dk, dv;
  float* lse = nullptr;      // natural, [B,H,N]
  float* rows = nullptr;     // backward: see flash_backward_rows
  float* partial = nullptr;  // one pass: see OnePass
  bool one_pass = false;
  const float* dlse = nullptr;
  Tokens query_tokens, key_tokens;
  int batch = 0, heads = 0, kv_heads = 0, group = 1;
  int queries = 0, keys = 0, width = 0, value_width = 0;
  int offset = 0;          // key j is visible to query i iff j <= i + offset
  int padded_queries = 0;  // rows a head in `rows`
  float scale = 1;
  bool causal = false;
  // The slow path's extras.
  HeadRows bias;  // batch or head stride 0 where it broadcasts
  std::int64_t bias_column = 1;
  const float* slopes = nullptr;
  float* dbias = nullptr;
  int bias_batch = 1, bias_heads = 1;
  float dropout = 0, keep_scale = 1;
  Key dropout_key;

  bool masked() const {
    return query_tokens.valid != nullptr || key_tokens.valid != nullptr ||
           query_tokens.segments != nullptr;
  }
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

// Tensor-core kernels by padded width (D, Dv <= the number); dtype is bf16 or f16.
void flash_forward_w32(StreamRef stream, const FlashCall& call, DType dtype);
void flash_forward_w64(StreamRef stream, const FlashCall& call, DType dtype);
void flash_forward_w128(StreamRef stream, const FlashCall& call, DType dtype);
void flash_backward_w32(StreamRef stream, const FlashCall& call, DType dtype);
void flash_backward_w64(StreamRef stream, const FlashCall& call, DType dtype);
void flash_backward_w128(StreamRef stream, const FlashCall& call, DType dtype);

// One pass over pairs of tiles, on devices of compute capability 9.0; padded width 64, no masks,
// one query head a key head, and every query sees the first key. Takes call.partial.
void flash_one_pass_w64(StreamRef stream, const FlashCall& call, DType dtype);
bool has_one_pass();                                // whether the current device does
std::size_t one_pass_bytes(const FlashCall& call);  // of call.partial

// Fills call.rows, two planes [2][B,H,padded_queries]: -lse / scale (one pass: -lse log2 e), -inf
// where the row sends no gradient; and -delta = dlse - <dout, o>, 0 there.
void flash_backward_rows(StreamRef stream, const FlashCall& call, DType dtype);

// f32 arithmetic for whatever the others do not take: any width up to 256, bias, ALiBi, dropout.
void flash_forward_general(StreamRef stream, const FlashCall& call, DType dtype);
void flash_backward_general(StreamRef stream, const FlashCall& call, DType dtype);

}  // namespace fovea::cuda
