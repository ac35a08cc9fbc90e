#include "kernels/cuda/linear/key_gradients.cuh"

namespace fovea::cuda {

void linear_key_gradients_f16(StreamRef stream, const LinearCall& call) {
  linear_key_gradients<f16>(stream, call);
}

}  // namespace fovea::cuda
