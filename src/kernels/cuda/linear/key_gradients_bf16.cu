#include "kernels/cuda/linear/narrow_key_gradients.cuh"

namespace fovea::cuda {

void linear_key_gradients_bf16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_key_gradients<bf16>(stream, call)
                  : linear_key_gradients<bf16>(stream, call);
}

}  // namespace fovea::cuda
