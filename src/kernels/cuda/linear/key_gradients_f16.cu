#include "kernels/cuda/linear/narrow_key_gradients.cuh"

namespace fovea::cuda {

void linear_key_gradients_f16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_key_gradients<f16>(stream, call)
                  : linear_key_gradients<f16>(stream, call);
}

}  // namespace fovea::cuda
