#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_w64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_forward<ForwardShape<64, 64, 2, 2, true>, ForwardShape<64, 64, 2, 2, false>>(stream, call,
                                                                                      dtype);
}

}  // namespace fovea::cuda
