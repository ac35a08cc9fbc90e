#pragma once
// Attention in f32 arithmetic for every case the contract allows: tiles of R x R scores made by 256
// threads, thread (ty, tx) of 16 x 16 owning rows ty + 16 a and columns tx + 16 c. All sums over
// tokens run in ascending tile order inside one block. Rows and columns are slots of a plan.

#include "kernels/cuda/flash/walk.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

constexpr int kGeneralThreads = 256, kGrid = 16;

// R rows a tile; kWidth: room for D and Dv, which are zero-padded to it in shared memory.
template <int kWidth_>
struct GeneralShape {
  static constexpr int kWidth = kWidth_;
  static constexpr int kRows = kWidth <= 64 ? 64 : 32;
  static constexpr int kOwn = kRows / kGrid;           // score rows, and columns, of a thread
  static constexpr int kVectors = kWidth / kGrid / 4;  // groups of 4 output columns of a thread
  static constexpr int kStride = kWidth + 4;           // rows in different banks
  static constexpr int kScoreStride = kRows + 4;
  static constexpr int kTile = kRows * kStride, kScores = kRows * kScoreStride;
};

// Rows of a head as f32; rows past `count` and of tokens that do not exist become zero.
template <class T, class Shape>
__device__ void load_rows(float* to, const HeadRows& x, int b, int h, int first, int count,
                          int width, const Tokens& tokens, const std::int32_t* order, int end) {
  const T* head = x.at<const T>(b, h);
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * Shape::kWidth;
       i += kGeneralThreads) {
    const int row = i / Shape::kWidth, c = i % Shape::kWidth;
    float value = 0;
    if (head != nullptr && first + row < count && c < width) {
      const int token = token_at(order, first + row);
      if (token < end && tokens.is_valid(b, token)) value = to_float(head[token * x.row + c]);
    }
    to[row * Shape::kStride + c] = value;
  }
}

// s[a][c] = <x row ty + 16 a, y row tx + 16 c>.
template <class Shape>
__device__ __forceinline__ void row_products(float (&s)[Shape::kOwn][Shape::kOwn], const float* x,
                                             const float* y, int width) {
  constexpr int kOwn = Shape::kOwn;
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
#pragma unroll
  for (int a = 0; a < kOwn; ++a) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c)
      s[a][c] = 0;
  }
  for (int d = 0; d < width; d += 4) {
    float4 left[kOwn], right[kOwn];
#pragma unroll
    for (int a = 0; a < kOwn; ++a) {
      left[a] = *reinterpret_cast<const float4*>(x + (ty + kGrid * a) * Shape::kStride + d);
      right[a] = *reinterpret_cast<const float4*>(y + (tx + kGrid * a) * Shape::kStride + d);
    }
#pragma unroll
    for (int a = 0; a < kOwn; ++a) {
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
        s[a][c] = fmaf(left[a].x, right[c].x, s[a][c]);
        s[a][c] = fmaf(left[a].y, right[c].y, s[a][c]);
        s[a][c] = fmaf(left[a].z, right[c].z, s[a][c]);
        s[a][c] = fmaf(left[a].w, right[c].w, s[a][c]);
      }
    }
  }
}

// Output columns of a thread: 4 (tx + 16 v) + {0, 1, 2, 3}.
template <class Shape>
struct Sums {
  float at[Shape::kOwn][Shape::kVectors][4] = {};

  // Adds weights [row or column of scores] times rows of x. kTransposed: sums over score rows, and
  // this thread's own index is a score column.
  template <bool kTransposed>
  __device__ __forceinline__ void add(const float* weights, const float* x) {
    const int tx = static_cast<int>(threadIdx.x) % kGrid,
              ty = static_cast<int>(threadIdx.x) / kGrid;
#pragma unroll 4
    for (int j = 0; j < Shape::kRows; ++j) {
      float w[Shape::kOwn];
#pragma unroll
      for (int a = 0; a < Shape::kOwn; ++a) {
        const int own = ty + kGrid * a;
        w[a] = weights[kTransposed ? j * Shape::kScoreStride + own : own * Shape::kScoreStride + j];
      }
#pragma unroll
      for (int v = 0; v < Shape::kVectors; ++v) {
        const float4 y =
            *reinterpret_cast<const float4*>(x + j * Shape::kStride + 4 * (tx + kGrid * v));
#pragma unroll
        for (int a = 0; a < Shape::kOwn; ++a) {
          at[a][v][0] = fmaf(w[a], y.x, at[a][v][0]);
          at[a][v][1] = fmaf(w[a], y.y, at[a][v][1]);
          at[a][v][2] = fmaf(w[a], y.z, at[a][v][2]);
          at[a][v][3] = fmaf(w[a], y.w, at[a][v][3]);
        }
      }
    }
  }

  template <class T>
  __device__ void store(const HeadRows& to, int b, int h, int first, int count, int width,
                        const float (&multiplier)[Shape::kOwn], const std::int32_t* order) const {
    if (to.data == nullptr) return;
    const int tx = static_cast<int>(threadIdx.x) % kGrid,
              ty = static_cast<int>(threadIdx.x) / kGrid;
    T* head = to.at<T>(b, h);
#pragma unroll
    for (int a = 0; a < Shape::kOwn; ++a) {
      const int row = first + ty + kGrid * a;
      if (row >= count) continue;
      const int token = token_at(order, row);
#pragma unroll
      for (int v = 0; v < Shape::kVectors; ++v) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int c = 4 * (tx + kGrid * v) + e;
          if (c < width) head[token * to.row + c] = from_float<T>(at[a][v][e] * multiplier[a]);
        }
      }
    }
  }
};

// What a plan, or causality, says of a pair of tiles; kSeenInPart: pairs have to ask.
template <class Shape>
__device__ __forceinline__ unsigned state_of(const FlashCall& call, int b, int h, int first_query,
                                             int first_key) {
  if (!call.plan.present) {
    const int last = min(first_query + Shape::kRows, call.queries) - 1;
    return call.causal && first_key > last + call.offset ? kUnseen : kSeenInPart;
  }
  const PlanLists& lists = call.plan.of_queries;
  const int list = call.plan.list(b, h), own = first_query / kPlanTile;
  const std::int32_t* tiles = lists.tiles + list * lists.capacity;
  const std::int32_t* begin =
      lists.begin + static_cast<std::int64_t>(list) * (lists.count + 1) + own;
  const int whole = begin[0] + lists.full[static_cast<std::int64_t>(list) * lists.count + own];
  for (int part = 0; part < 2; ++part) {
    int low = part == 0 ? begin[0] : whole, high = part == 0 ? whole : begin[1];
    while (low < high) {
      const int middle = (low + high) / 2;
      if (tiles[middle] == first_key / kPlanTile) return part == 0 ? kSeenWhole : kSeenInPart;
      if (tiles[middle] < first_key / kPlanTile)
        low = middle + 1;
      else
        high = middle;
    }
  }
  return kUnseen;
}

// A query of a pair of tiles: its token, and which of the 64 keys around the tile a plan shows it.
struct QueryRow {
  int token = 0;
  std::uint64_t word = ~std::uint64_t{0};

  __device__ __forceinline__ QueryRow(const FlashCall& call, int b, int h, int slot, int first_key,
                                      unsigned state)
      : token(slot) {
    if (!call.plan.present || slot >= call.queries) return;
    token = token_at(call.plan.query_order(b, h), slot);
    if (state == kSeenInPart) word = rule_word(call.plan.sight, b, h, slot, first_key / kPlanTile);
  }
};

// Where the cap's argument lies on tanh, from a product of a query and a key; call.softcap > 0.
__device__ __forceinline__ float cap_tanh(const FlashCall& call, float product) {
  return tanhf(product * call.scale / call.softcap);
}

// The score of a query and the key in slot j from their product; -inf where hidden.
template <class T>
__device__ __forceinline__ float score_of(const FlashCall& call, int b, int h, int slot,
                                          const QueryRow& query, int j, float product) {
  const float none = __int_as_float(0xff800000);
  const int i = query.token;
  if (slot >= call.queries || j >= call.keys) return none;
  if (call.plan.present) {
    if ((query.word >> (j % kPlanTile) & 1) == 0) return none;
    j = token_at(call.plan.key_order(b, h / call.group), j);
  } else if (call.causal && j > i + call.offset) {
    return none;
  }
  if (!call.query_tokens.is_valid(b, i) || !call.key_tokens.is_valid(b, j)) return none;
  if (call.query_tokens.segments != nullptr &&
      call.query_tokens.segment(b, i) != call.key_tokens.segment(b, j))
    return none;
  const float score =
      call.softcap > 0 ? call.softcap * cap_tanh(call, product) : product * call.scale;
  float extra = 0;
  if (call.slopes != nullptr)
    extra = -call.slopes[h] * static_cast<float>(abs(i + call.offset - j));
  if (call.bias.data != nullptr)
    extra += to_float(call.bias.at<const T>(b, h)[i * call.bias.row + j * call.bias_column]);
  return score + extra;
}

// What dropout multiplies the probability of a query and the key in slot j by.
__device__ __forceinline__ float kept(const FlashCall& call, int b, int h, int i, int j) {
  if (call.dropout <= 0) return 1;
  if (call.plan.present) j = token_at(call.plan.key_order(b, h / call.group), j);
  const std::int64_t sample =
      (call.dropout_key.at != nullptr ? call.dropout_key.at->first_sample : 0) + b;
  const std::int64_t element =
      ((sample * call.heads + h) * call.queries + i) * static_cast<std::int64_t>(call.keys) + j;
  const std::uint32_t bits = random_bits(call.dropout_key, static_cast<std::uint64_t>(element));
  return uniform_float(bits) >= call.dropout ? call.keep_scale : 0;
}

// Probabilities as they met v, and of one pair of tiles d scores; kProducts: times the cap's slope,
// as the products of queries and keys get them.
template <class T, class Shape, bool kProducts>
__device__ __forceinline__ void gradient_scores(const FlashCall& call, int b, int h,
                                                int first_query, int first_key, const float* q,
                                                const float* k, const float* dout, const float* v,
                                                unsigned state,
                                                float (&p)[Shape::kOwn][Shape::kOwn],
                                                float (&ds)[Shape::kOwn][Shape::kOwn]) {
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
  row_products<Shape>(p, q, k, (call.width + 3) / 4 * 4);
  row_products<Shape>(ds, dout, v, (call.value_width + 3) / 4 * 4);
  const std::int64_t head = static_cast<std::int64_t>(b) * call.heads + h;
  const float* rows = call.rows + head * call.padded_queries;
  const float* deltas =
      rows + static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
#pragma unroll
  for (int a = 0; a < Shape::kOwn; ++a) {
    const int i = first_query + ty + kGrid * a;
    const bool real = i < call.queries;
    const QueryRow query(call, b, h, i, first_key, state);
    const float lse = real ? rows[i] : __int_as_float(0x7f800000), delta = real ? deltas[i] : 0;
#pragma unroll
    for (int c = 0; c < Shape::kOwn; ++c) {
      const int j = first_key + tx + kGrid * c;
      const float product = p[a][c];
      const float probability = expf(score_of<T>(call, b, h, i, query, j, product) - lse);
      const float keep = probability > 0 ? kept(call, b, h, query.token, j) : 1;
      ds[a][c] = probability * (ds[a][c] * keep - delta);
      if (kProducts && call.softcap > 0) {
        const float t = cap_tanh(call, product);
        ds[a][c] *= 1 - t * t;
      }
      p[a][c] = probability * keep;
    }
  }
}

template <class Shape>
__device__ __forceinline__ void put_scores(float* to, const float (&s)[Shape::kOwn][Shape::kOwn]) {
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
#pragma unroll
  for (int a = 0; a < Shape::kOwn; ++a) {
#pragma unroll
    for (int c = 0; c < Shape::kOwn; ++c)
      to[(ty + kGrid * a) * Shape::kScoreStride + tx + kGrid * c] = s[a][c];
  }
}

template <class Shape>
constexpr int kBackwardFloats = 4 * Shape::kTile + 2 * Shape::kScores;

inline int tiles_of(int tokens, int rows) {
  return (tokens + rows - 1) / rows;
}

// The parts of flash_backward_general: dq and dbias.
void flash_backward_general_queries(StreamRef stream, const FlashCall& call, DType dtype);

template <class F>
void for_width(const FlashCall& call, F&& fn) {
  const int width = call.width > call.value_width ? call.width : call.value_width;
  if (width <= 64) return fn(GeneralShape<64>{});
  if (width <= 128) return fn(GeneralShape<128>{});
  return fn(GeneralShape<256>{});
}

__device__ __forceinline__ float* general_shared() {
  extern __shared__ float4 general_memory[];
  return reinterpret_cast<float*>(general_memory);
}

template <class Kernel>
void launch_general(StreamRef stream, Kernel kernel, std::int64_t blocks, int floats,
                    const FlashCall& call, const char* launcher) {
  if (blocks == 0) return;
  const unsigned bytes = static_cast<unsigned>(floats) * sizeof(float);
  launch_shared(stream, launcher, kernel, static_cast<unsigned>(blocks), kGeneralThreads, bytes,
                call);
}

}  // namespace fovea::cuda
