#pragma once
// One softmax out of several: attention over disjoint sets of keys, put together by their
// log-sum-exp. Source: baselines.md 15.3, 8.3.

#include "kernels/dispatch.h"

namespace fovea {

constexpr int kMostMerged = 16;

// What is merged, part after part; all of one shape and layout.
struct MergeParts {
  int count = 0;
  View o[kMostMerged];    // [B,N,H,Dv] one float dtype, contiguous
  View lse[kMostMerged];  // [B,H,N] of acc, contiguous
};

// What a row takes that sees no key in any part; all views empty: 0 and -inf.
struct MergeAlone {
  View v;          // [B,H,N,Dv] as o, any strides
  View valid;      // u8 [B,N] or empty: only rows with valid != 0 take it
  double lse = 0;  // the row's log-sum-exp then
};

// L = log sum_p exp lse_p,  o = sum_p exp(lse_p - L) o_p, in the parts' order. o as a part's,
// assigned; lse [B,H,N] of acc.
FOVEA_KERNEL(merge_forward, StreamRef, const View& o, const View& lse, const MergeParts& parts,
             const MergeAlone& alone)
// Assigns the gradients of every part to `into` and that of alone.v to dv [B,H,N,Dv] (any strides;
// empty: not wanted). dout [B,N,H,Dv] or dlse [B,H,N] (contiguous) may be empty: zero. lse is the
// forward's.
FOVEA_KERNEL(merge_backward, StreamRef, const MergeParts& into, const View& dv, const View& dout,
             const View& dlse, const View& lse, const MergeParts& parts, const MergeAlone& alone)
// out = x[0] + x[1] + ..., in acc, in order. x [R,n], out [n], one float dtype, contiguous; R at
// least 1.
FOVEA_KERNEL(sum_parts, StreamRef, const View& out, const View& x)

namespace meta {

inline void count_parts(StreamRef stream, const MergeParts& parts) {
  for (int p = 0; p < parts.count; ++p)
    count(stream, parts.o[p], parts.lse[p]);
}
inline void merge_forward(StreamRef stream, const View& o, const View& lse, const MergeParts& parts,
                          const MergeAlone& /*alone*/) {
  count(stream, o, lse);
  count_parts(stream, parts);
}
inline void merge_backward(StreamRef stream, const MergeParts& into, const View& dv,
                           const View& dout, const View& dlse, const View& lse,
                           const MergeParts& parts, const MergeAlone& /*alone*/) {
  count(stream, dv, dout, dlse, lse);
  count_parts(stream, into);
  count_parts(stream, parts);
}

}  // namespace meta

}  // namespace fovea
