#pragma once
// Kernel (linear) attention: sums of key features times values instead of N x M weights.
//   o_i = sum_j w_ij v_j / D_i,  D_i = sum_j w_ij,  w_ij = <a_i, b_j> 2^(weight_j + decay between)
// over all keys, or j <= i. Source: baselines.md 9; decay: 13 and 18.8.

#include "kernels/dispatch.h"

namespace fovea {

// What a row of sums is divided by.
enum class Normaliser : std::uint8_t {
  clamp,   // max(D, floor), without a gradient where the floor holds
  add,     // D + floor
  sqrt_n,  // the square root of the number of valid keys; bidirectional only
};

// How keys are summed. Views may be empty.
struct LinearSums {
  bool causal = false;  // key j is visible to query i iff j <= i; then N = M
  Normaliser normaliser = Normaliser::clamp;
  double floor = 1e-6;
  std::int64_t chunk = 128;  // tokens that are multiplied pair by pair between two states
  View key_valid;            // u8 [B,M]: 0 hides a key
  View query_valid;          // u8 [B,N]: 0 makes a row of zeros that sends no gradient
  View query_segments;       // i32 [B,N]: only equal segments see each other; both or none.
  View key_segments;         // i32 [B,M]  A segment is one run of tokens: its id does not return.
  // log2 of what a state keeps of its past when token j joins it, at most 0; causal only.
  View decay;   // acc [B,S,M]
  View weight;  // acc [B,S,M]: log2 of a key's weight
};

// What the forward pass makes and the backward pass reads again.
struct LinearOutputs {
  View o;         // [B,H,N,Dv] as v, unit last stride: the normalised sums
  View rounding;  // the same: what a 16-bit o lost of them; may be empty
  View den;       // [B,H,N] of acc, contiguous: D before the normaliser's floor (sqrt_n: what it
                  // divides by)
};

// Gradients to assign; an empty view means "not wanted".
struct LinearGradients {
  // acc, contiguous: they divide by sums, which 16 bits may not hold. On a GPU both may be bf16
  // where rounds_gradients and neither ddecay nor dweight is wanted.
  View da, db;
  View dv;               // as v, unit last stride
  View ddecay, dweight;  // acc, contiguous
};

// Whether gradients of features may leave linear_attention_backward as bf16: nothing comes on top
// of them.
inline bool rounds_gradients(const View& a, const View& v, const LinearSums& sums) {
  return v.dtype == DType::bf16 && a.dim[1] == v.dim[1] && v.dim[3] <= 64 &&
         (sums.causal || !sums.query_segments);
}

// Assigns the outputs.
//   a [B,H,N,m], b [B,Hb,M,m], v [B,Hk,M,Dv] one float type, unit last stride, others free;
//   there are S states a sample, the most of Hb and the heads of decay and weight: H is a multiple
//   of S, S of Hb, Hb of Hk, and query head h reads state h / (H/S), features and values likewise.
//   state acc [B,S,m,Dv+1], contiguous, or empty: causal sums go on from it and leave it as it is
//   after the last token; its last column sums the features.
// Sums and states are of acc. A row's bits depend on its own sample, its query and the keys up to
// it: not on later tokens, on padding behind, on other samples or on threads. What hidden tokens
// hold has no effect, NaN included. A query that sees no key is 0.
FOVEA_KERNEL(linear_attention_forward, StreamRef, const LinearOutputs& outputs, const View& state,
             const View& a, const View& b, const View& v, const LinearSums& sums)

// The gradient of <o, dout> + <log D, dlse>; dlse acc [B,H,N], contiguous, may be empty: zero. It
// has no effect where the floor holds D. `outputs` are the forward's, which began without a state;
// without their rounding gradients of features lose a digit in 16 bit. States are made again, chunk
// by chunk: O(N) memory.
FOVEA_KERNEL(linear_attention_backward, StreamRef, const LinearGradients& gradients,
             const View& dout, const View& dlse, const View& a, const View& b, const View& v,
             const LinearOutputs& outputs, const LinearSums& sums)

// Makes weights of at most 1 out of key features that were divided by 2^exponent each, without
// changing any ratio.
//   causal:  top_j = max(top_(j-1) - slope, exponent_j),  decay_j = top_(j-1) - slope - top_j,
//            weight_j = exponent_j - top_j
//   else:    weight_j = exponent_j - the largest exponent of its segment
//   exponent acc [B,Hk,M] whole numbers; decay, weight acc [B,S,M], contiguous, S a multiple of Hk;
//   decay empty unless causal. slopes acc [S] or empty: ALiBi's, in units of log2, causal only.
//   top acc [B,S] or empty: in: the maximum so far (-inf: none), out: after the last token.
//   tops acc [B,S,M] or empty: top after every token.
//   Invalid tokens get 0 and change nothing; a segment starts anew.
// All numbers stay whole without slopes, so that scaling by them rounds nothing.
FOVEA_KERNEL(key_scale, StreamRef, const View& decay, const View& weight, const View& top,
             const View& tops, const View& exponent, const View& slopes, const LinearSums& sums)

// lse_i = log den_i + ln 2 (exponent_i + top_i) + add, -inf where den_i <= 0: the logarithm of a
// causal row's sum of weights, before features were divided.
//   lse, den, exponent acc [B,H,N]; tops acc [B,S,N], H a multiple of S; all contiguous.
FOVEA_KERNEL(log_mass, StreamRef, const View& lse, const View& den, const View& exponent,
             const View& tops, double add)

// RFA's gate: decay = log2 sigmoid(z), weight = log2(1 - sigmoid(z)); both 0 at invalid tokens.
//   z [B,M,S] any float type, contiguous; decay, weight acc [B,S,M], contiguous. Source: 13.
FOVEA_KERNEL(gate_forward, StreamRef, const View& decay, const View& weight, const View& z,
             const View& key_valid)
// dz as z, assigned; ddecay or dweight may be empty.
FOVEA_KERNEL(gate_backward, StreamRef, const View& dz, const View& ddecay, const View& dweight,
             const View& z, const View& key_valid)

namespace meta {

// `products` products of features with sums, for every key and every query.
inline void count_sums(StreamRef stream, const View& a, const View& b, const View& v,
                       const LinearSums& sums, double keys, double queries) {
  const std::int64_t states = sums.decay    ? sums.decay.dim[1]
                              : sums.weight ? sums.weight.dim[1]
                                            : b.dim[1];
  const double size = static_cast<double>(a.dim[3] * (v.dim[3] + 1));
  static_cast<CostCounter*>(stream.native)->flops +=
      2 * size * static_cast<double>(a.dim[0]) *
      (keys * static_cast<double>(states * b.dim[2]) +
       queries * static_cast<double>(a.dim[1] * a.dim[2]));
}
inline void linear_attention_forward(StreamRef stream, const LinearOutputs& out, const View& state,
                                     const View& a, const View& b, const View& v,
                                     const LinearSums& sums) {
  count(stream, out.o, out.rounding, out.den, state, a, b, v, sums.decay, sums.weight);
  count_sums(stream, a, b, v, sums, 1, 1);
}
inline void linear_attention_backward(StreamRef stream, const LinearGradients& d, const View& dout,
                                      const View& dlse, const View& a, const View& b, const View& v,
                                      const LinearOutputs& out, const LinearSums& sums) {
  count(stream, d.da, d.db, d.dv, d.ddecay, d.dweight, dout, dlse, a, b, v, out.o, out.rounding,
        out.den, sums.decay, sums.weight);
  count_sums(stream, a, b, v, sums, 2, 2);
}

}  // namespace meta

}  // namespace fovea
