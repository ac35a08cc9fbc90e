#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_w32(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_forward<ForwardShape<32, 64, 2, 2, true>, ForwardShape<32, 64, 2, 2, true>>(stream, call,
                                                                                     dtype);
}

}  // namespace fovea::cuda
