#include "kernels/cuda/linear/key_gradients.cuh"

namespace fovea::cuda {

void linear_key_gradients_f32(StreamRef stream, const LinearCall& call) {
  linear_key_gradients<float>(stream, call);
}

}  // namespace fovea::cuda
