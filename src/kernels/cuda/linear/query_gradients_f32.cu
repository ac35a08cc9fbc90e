#include "kernels/cuda/linear/query_gradients.cuh"

namespace fovea::cuda {

void linear_query_gradients_f32(StreamRef stream, const LinearCall& call) {
  linear_query_gradients<float>(stream, call);
}

}  // namespace fovea::cuda
