#pragma once
// What RFA's maps share: the norm of a row and its sines and cosines.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr float kNormEps = 1e-3f;

// As the CPU's: x = n pi / 2 + r, |r| <= pi / 4, and Taylor polynomials of degrees 9 and 8; to
// within 2 units in the last place of 1 for |x| below 1e4. The library's takes any x, and several
// times the code.
__device__ __forceinline__ void sine_cosine(float x, float& sine, float& cosine) {
  const float n = rintf(x * 0.636619772f);
  float r = fmaf(n, -1.5703125f, x);
  r = fmaf(n, -4.83751296e-4f, r);
  r = fmaf(n, -7.54978995e-8f, r);
  const float square = r * r;
  float s = 1.0f / 362880;
  s = fmaf(s, square, -1.0f / 5040);
  s = fmaf(s, square, 1.0f / 120);
  s = fmaf(s, square, -1.0f / 6);
  s = fmaf(s * square, r, r);
  float c = 1.0f / 40320;
  c = fmaf(c, square, -1.0f / 720);
  c = fmaf(c, square, 1.0f / 24);
  c = fmaf(c, square, -0.5f);
  c = fmaf(c, square, 1.0f);
  const int quarter = static_cast<int>(n);
  const bool swapped = (quarter & 1) != 0;
  sine = swapped ? c : s;
  cosine = swapped ? s : c;
  if ((quarter & 2) != 0) sine = -sine;
  if (((quarter + 1) & 2) != 0) cosine = -cosine;
}

}  // namespace fovea::cuda
