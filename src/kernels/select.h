#pragma once
// Rows taken from one of two tensors.

#include "kernels/dispatch.h"

namespace fovea {

// out[b,x,y,:] = a[b,x,y,:] where mask[b,x,y] is not 0, else other[b,x,y,:]. out, a and other
// [B,X,Y,D] of one dtype, contiguous; an empty a or other stands for zeros. mask u8
// [1|B, 1|X, 1|Y], any strides. What is not taken has no effect, NaN included.
FOVEA_KERNEL(select_rows, StreamRef, const View& out, const View& mask, const View& a,
             const View& other)

}  // namespace fovea
