#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

namespace {

using Double = ForwardShape<128, 128, 2, 2, false, 2>;
using Single = ForwardShape<128, 128, 2, 2, false, 1>;
using Masked = ForwardShape<128, 128, 1, 2, true, 1>;

// Whether a multiprocessor has room for two blocks with two stages: an H100 or H200 has, an A100
// has not.
bool has_room() {
  static const bool has = [] {
    int device = 0, bytes = 0;
    check_call(cudaGetDevice(&device), "cudaGetDevice");
    check_call(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
               "cudaDeviceGetAttribute");
    constexpr unsigned kReserved = 1024;  // by the driver, a block
    return static_cast<unsigned>(bytes) >= 2 * (Double::bytes(false) + kReserved);
  }();
  return has;
}

}  // namespace

// Stages decide nothing but the time.
void flash_forward_128_128(StreamRef stream, const FlashCall& call, DType dtype) {
  if (has_room())
    launch_forward<Double, Masked>(stream, call, dtype);
  else
    launch_forward<Single, Masked>(stream, call, dtype);
}

}  // namespace fovea::cuda
