#pragma once
// The running softmax of a warp's rows, and hiding scores.

#include "kernels/cuda/flash/tokens.cuh"

namespace fovea::cuda {

// The reference of a row's exponentials is not its running maximum but one that is at most this
// much (in powers of two) below it, so that accumulators are rarely rescaled. Whether a row's
// reference moves depends on the row alone.
constexpr float kSlack = 8;

// The softmax state of a lane's rows: 2 kM of them, shared by the four lanes of a quad.
template <int kM>
struct RunningSoftmax {
  float reference[kM][2], sum[kM][2];  // powers of two; sums are the lane's own columns

  __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      reference[m][0] = reference[m][1] = __int_as_float(0xff800000);
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Moves references that have fallen behind; true if any of the warp's did, and then `shrink` is
  // what older results have to be multiplied by.
  template <int kN>
  __device__ __forceinline__ bool advance(const float (&s)[kM][kN][4], float scale,
                                          float (&shrink)[kM][2]) {
    float top[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[m][r] = fmaxf(s[m][0][2 * r], s[m][0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < kN; ++n)
          top[m][r] = fmaxf(top[m][r], fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
      }
    }
    // All rows at once: a shuffle's latency is paid twice, not for every row.
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      float other[kM][2];
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i)
        other[i / 2][i % 2] = __shfl_xor_sync(~0u, top[i / 2][i % 2], step);
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i)
        top[i / 2][i % 2] = fmaxf(top[i / 2][i % 2], other[i / 2][i % 2]);
    }
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float scaled = top[m][r] * scale;
        shrink[m][r] = 1;
        if (scaled > reference[m][r] + kSlack) {
          shrink[m][r] = exp2_fast(reference[m][r] - scaled);
          reference[m][r] = scaled;
          sum[m][r] *= shrink[m][r];
          moved = true;
        }
      }
    }
    return __any_sync(~0u, moved);
  }

  // What a lane's row subtracts: a row that saw nothing yet has no reference.
  __device__ __forceinline__ float base(int m, int r) const {
    return reference[m][r] == __int_as_float(0xff800000) ? 0 : reference[m][r];
  }

  // Scores of row block m become weights, and count.
  __device__ __forceinline__ void weigh(float (&s)[4], int m, float scale) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = exp2_fast(fmaf(s[e], scale, -base(m, e / 2)));
      sum[m][e / 2] += s[e];
    }
  }
};

// Sums of values, whose rows shrink as `advance` says.
template <int kM, int kValues>
__device__ __forceinline__ void shrink_rows(float (&o)[kM][kValues][4],
                                            const float (&shrink)[kM][2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kValues; ++n) {
      o[m][n][0] *= shrink[m][0], o[m][n][1] *= shrink[m][0];
      o[m][n][2] *= shrink[m][1], o[m][n][3] *= shrink[m][1];
    }
  }
}

// Sets scores to -inf where a query does not see a key. `columns` and `rows` are the first key and
// query of the lane: its columns are columns + 8 n + {0, 1}, its rows rows + 16 m + {0, 8}. A plan
// has dealt with causality.
template <int kM, int kN, bool kMasked, bool kBanded>
__device__ __forceinline__ void hide_scores(float (&s)[kM][kN][4], const FlashCall& call, int rows,
                                            int columns, unsigned marks,
                                            const int (&segment)[kM][2], bool planned,
                                            bool marked) {
  const float none = __int_as_float(0xff800000);
  int last[kM][2];  // the last visible column, counted from `columns`
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int end = call.keys - 1;
      last[m][r] =
          (call.causal && !planned ? min(rows + 16 * m + 8 * r + call.offset, end) : end) - columns;
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    int4 mark = {};
    if constexpr (kMasked) {
      if (marked) mark = mark_pair(marks, 8 * n + static_cast<int>(threadIdx.x) % 4 * 2);
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        bool left = 8 * n <= last[m][r], right = 8 * n + 1 <= last[m][r];
        if constexpr (kBanded) {
          const int begin = rows + 16 * m + 8 * r + call.offset - call.span - columns;
          left = left && 8 * n >= begin;
          right = right && 8 * n + 1 >= begin;
        }
        if constexpr (kMasked) {
          left = left && (!marked || (mark.y != 0 && mark.x == segment[m][r]));
          right = right && (!marked || (mark.w != 0 && mark.z == segment[m][r]));
        }
        if (!left) s[m][n][2 * r] = none;
        if (!right) s[m][n][2 * r + 1] = none;
      }
    }
  }
}

// The same by the words of a plan's rule: lane l holds that of the warp's row l, bit c for the
// tile's key c.
template <int kM, int kN>
__device__ __forceinline__ void hide_by_words(float (&s)[kM][kN][4], std::uint64_t word) {
  static_assert(kN == 8);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned mine = static_cast<unsigned>(word >> (32 * half));
        const unsigned bits = __shfl_sync(~0u, mine, 16 * m + 8 * r + lane / 4) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float(&pair)[4] = s[m][4 * half + n];
          if ((bits >> (8 * n) & 1) == 0) pair[2 * r] = __int_as_float(0xff800000);
          if ((bits >> (8 * n + 1) & 1) == 0) pair[2 * r + 1] = __int_as_float(0xff800000);
        }
      }
    }
  }
}

}  // namespace fovea::cuda
