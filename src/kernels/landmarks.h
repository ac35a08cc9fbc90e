#pragma once
// Landmarks of a sequence, the pseudo-inverse between them, and a convolution along the tokens.
// Source: baselines.md 14.

#include "kernels/dispatch.h"

namespace fovea {

// Cuts the n valid tokens of every sample, in their order, into m segments: l = floor(n / m), the
// first m - (n mod m) of l tokens, the others of l + 1; if n <= m, into n segments of one token.
//   begin i32 [B, m + 1]: segment s stands in tokens [begin[s], begin[s + 1]), begin[0] = 0, and
//   begin[m] = N = `tokens`; size i32 [B,m]: its valid tokens; present u8 [B,m]: size > 0;
//   single u8 [B]: n <= m. valid u8 [B,N], any strides, or empty: all valid. Contiguous outputs.
FOVEA_KERNEL(landmark_cut, StreamRef, const View& begin, const View& size, const View& present,
             const View& single, const View& valid, std::int64_t tokens)

// out[b,h,s,:] = the mean over the valid tokens of segment s of x[b, h Hx / H, :, :], 0 where there
// are none. x [B,Hx,N,D], out [B,H,m,D] of one float dtype, any strides. Summed in acc, in order.
FOVEA_KERNEL(segment_mean_forward, StreamRef, const View& out, const View& x, const View& begin,
             const View& size, const View& valid)
// dx [B,Hx,N,D] is assigned, 0 at invalid tokens.
FOVEA_KERNEL(segment_mean_backward, StreamRef, const View& dx, const View& dout, const View& begin,
             const View& size, const View& valid)

// out[b] = flags[b] != 0 ? yes[b] : no[b]; an empty choice is 0. out, yes, no [B, ...] of one
// dtype, contiguous; flags u8 [B].
FOVEA_KERNEL(choose_samples, StreamRef, const View& out, const View& flags, const View& yes,
             const View& no)

// norm = (largest column sum of |a|) (largest row sum of |a|) of every matrix, z = a^T / norm:
// where the iteration for the pseudo-inverse begins. a, z [P,m,m], norm [P], one float dtype,
// contiguous.
FOVEA_KERNEL(pinv_start, StreamRef, const View& z, const View& norm, const View& a)
// da += dz^T / norm.
FOVEA_KERNEL(pinv_start_backward, StreamRef, const View& da, const View& dz, const View& norm)
// out = alpha I - x. x, out [P,m,m] of one float dtype, contiguous; out may be x.
FOVEA_KERNEL(identity_minus, StreamRef, const View& out, const View& x, double alpha)

// out[b,h,i,:] = o[b,h,i,:] + sum over t of w[h,t] v[b, h Hk / H, i + t - floor(T / 2), :], over
// valid tokens only; an invalid i keeps o. o, out [B,H,N,Dv], v [B,Hk,N,Dv], w [H,T] contiguous,
// one float dtype, strides of o, out and v free.
FOVEA_KERNEL(token_conv_forward, StreamRef, const View& out, const View& o, const View& v,
             const View& w, const View& valid)
// dv is assigned, dw [H,T] of acc accumulated, samples and tokens in order; empty: not wanted.
FOVEA_KERNEL(token_conv_backward, StreamRef, const View& dv, const View& dw, const View& dout,
             const View& v, const View& w, const View& valid)

namespace meta {

inline void count_taps(StreamRef stream, const View& o, const View& w, double times) {
  static_cast<CostCounter*>(stream.native)->flops +=
      2 * times * static_cast<double>(o.numel()) * static_cast<double>(w.dim[1]);
}
inline void token_conv_forward(StreamRef stream, const View& out, const View& o, const View& v,
                               const View& w, const View& valid) {
  count(stream, out, o, v, w, valid);
  count_taps(stream, out, w, 1);
}
inline void token_conv_backward(StreamRef stream, const View& dv, const View& dw, const View& dout,
                                const View& v, const View& w, const View& valid) {
  count(stream, dv, dw, dout, v, w, valid);
  count_taps(stream, dout, w, 2);
}

}  // namespace meta

}  // namespace fovea
