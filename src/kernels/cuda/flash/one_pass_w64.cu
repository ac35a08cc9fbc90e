#include "kernels/cuda/flash/one_pass.cuh"

namespace fovea::cuda {

void flash_one_pass_w64(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = OnePassShape<5, true>;
  if (dtype == DType::bf16)
    launch_one_pass<bf16, Shape>(stream, call);
  else
    launch_one_pass<f16, Shape>(stream, call);
}

}  // namespace fovea::cuda
