#pragma once
// One call of linear attention as its kernels see it.
//
// Tokens are cut into chunks. The states between them are made in three steps: the sums of every
// chunk by itself, all at once; a scan over the chunks, which adds them up, decayed; and the
// outputs of every tile of queries, from the state before its chunk and the pairs inside. Three
// forms differ in what they scan:
//   causal:                   keys from the left, one side; pairs j <= i inside a chunk
//   bidirectional:            all keys at once, one side with a single state; no pairs
//   bidirectional, segments:  keys from the left and from the right, two sides; all pairs inside
// The backward pass scans queries the other way in the same form. Segments: what leaves a chunk on
// a side belongs to the segment at that edge of the chunk (`out`), what enters it to the one at the
// neighbour's edge (`in`); a state passes a chunk where both are one.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/cuda/linear/tile.cuh"
#include "kernels/linear_attention.h"

namespace fovea::cuda {

constexpr int kMostSides = 2;

// ChunkSums of features times columns, one direction. `Mirror` of a side of keys: the same of
// queries.
struct ChunkSums {
  float* local = nullptr;       // [B,S,chunks,mp,pv]: of each chunk by itself
  float* local_z = nullptr;     // [B,S,chunks,mp]: of the column behind the values
  const float* mass = nullptr;  // [B,S,chunks]: about how large the chunk's sums are
  void* states = nullptr;       // T [B,S,states,mp,pv], divided by `undo`
  float* z = nullptr;           // [B,S,states,mp]
  // T [B,S,states,mp/64,2,64], of 16-bit keys: z divided by `undo`, in two parts of 16 bits
  void* z_parts = nullptr;
  float* undo = nullptr;  // [B,S,states]: a power of two
};

struct ScanSide {
  const int *in = nullptr, *out = nullptr;  // segments [B,chunks]; null: one segment
  const float* keep = nullptr;              // [B,S,chunks]: what a chunk leaves of a state
  ChunkSums keys, queries;
};

// What the backward pass knows of the queries.
struct QueryRows {
  float* delta = nullptr;  // [B,H,N]: <dout, o> - dlse, 0 where the denominator does not divide
  float* rho = nullptr;    // [B,H,N]: 1 / denominator; 0 for an invalid query
  float* rest = nullptr;   // [B,H,N]: <dy, y>; see linear_attention.cpp
  float* top = nullptr;    // [B,S,query chunks]: a power of two, see below
};

// Before they meet 16-bit numbers, rho is divided by `top`, the largest of the chunk's queries
// whose denominator is above the floor. Those at the floor may be larger, but not by more than f16
// bears.
constexpr float kMostRho = 256;
template <class T>
__device__ __forceinline__ float capped(float rho) {
  return __is_same(T, f16) ? fminf(rho, kMostRho) : rho;
}
// A product with such a rho, as the largest that f16 holds where it is larger.
template <class T>
__device__ __forceinline__ float within(float x) {
  constexpr float kMost = 65504;
  return __is_same(T, f16) ? fminf(fmaxf(x, -kMost), kMost) : x;
}

struct LinearCall {
  TileRows a, b, v, o, rounding, dout, da, db, dv;
  bool db_of_states = false;  // db has a head for each state
  bool rounded = false;       // da and db are bf16
  float* den = nullptr;
  const float* dlse = nullptr;  // [B,H,N]
  Tokens query_tokens, key_tokens;
  int batch = 0, heads = 0, states = 0, key_heads = 0, value_heads = 0;
  int queries = 0, keys = 0, features = 0, values = 0;
  int padded_features = 0, padded_values = 0;  // mp, pv: whole tiles
  int chunk = 0;                               // tokens, whole tiles
  int key_chunks = 0, query_chunks = 0;
  int state_count = 0;                 // a sample and head: one a chunk, or a single one
  bool causal = false, pairs = false;  // pairs: those inside a chunk count
  Normaliser normaliser = Normaliser::clamp;
  float floor = 0;
  const float *decay = nullptr, *weight = nullptr;    // [B,S,M]
  float* gamma = nullptr;                             // [B,S,M]: decay summed up inside the chunk
  float* counts = nullptr;                            // [B,S,chunks]: valid keys; sqrt_n
  float *carried = nullptr, *carried_mass = nullptr;  // the caller's state, and its largest number
  int sides = 1;
  ScanSide side[kMostSides];
  QueryRows rows;
  float *ddecay = nullptr, *dweight = nullptr;

  __host__ __device__ int group() const { return heads / states; }
  __host__ __device__ int query_tiles() const { return (queries + kTileSide - 1) / kTileSide; }
  __host__ __device__ int key_tiles() const { return (keys + kTileSide - 1) / kTileSide; }
  __device__ int key_head(int s) const { return s / (states / key_heads); }
  __device__ int value_head(int s) const { return s / (states / value_heads); }
  __device__ std::int64_t row_of(int b_, int h) const {
    return (std::int64_t{b_} * heads + h) * queries;
  }
  __device__ std::int64_t key_of(int b_, int s) const {
    return (std::int64_t{b_} * states + s) * keys;
  }
  // The chunk's entry in [B,S,n].
  __device__ std::int64_t chunk_of(int b_, int s, int t, int n) const {
    return (std::int64_t{b_} * states + s) * n + t;
  }
  __device__ std::int64_t state_of(int b_, int s, int t) const {
    return (std::int64_t{b_} * states + s) * state_count + (state_count == 1 ? 0 : t);
  }
  // 2^weight of a key.
  __device__ float key_weight(std::int64_t key) const {
    return weight == nullptr ? 1.0f : exp2f(weight[key]);
  }
};

// Segments that a token of a chunk compares; everything belongs to one where there are none.
struct EdgeIds {
  int in = 0, out = 0;
};
__device__ __forceinline__ EdgeIds edges_of(const LinearCall& call, const ScanSide& side, int b,
                                            int chunks, int t) {
  if (side.in == nullptr) return {};
  const std::int64_t at = std::int64_t{b} * chunks + t;
  return {side.in[at], side.out[at]};
}

// The steps, each in its file.
using LinearStep = void(StreamRef, const LinearCall&);
LinearStep linear_marks;  // of keys: gamma, edges, keep, mass
void linear_sums(StreamRef, DType, const LinearCall&, bool queries);  // local sums, then the scan
void linear_query_rows(StreamRef, DType, const LinearCall&);          // delta, rho, rest
LinearStep linear_query_marks;                                        // top and mass, from rho
// db [B,Hb,M,m] from that of states.
void linear_add_states(StreamRef, const LinearCall&, float* db);
// columns [B,S,M]: scratch; may be dweight itself. db is of states.
void linear_weight_gradients(StreamRef, DType, const LinearCall&, float* columns);
LinearStep linear_outputs_f32, linear_outputs_bf16, linear_outputs_f16;
LinearStep linear_query_gradients_f32, linear_query_gradients_bf16, linear_query_gradients_f16;
LinearStep linear_key_gradients_f32, linear_key_gradients_bf16, linear_key_gradients_f16;

}  // namespace fovea::cuda
