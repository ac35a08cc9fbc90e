#include "kernels/cuda/linear/narrow_query_gradients.cuh"

namespace fovea::cuda {

void linear_query_gradients_f16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_query_gradients<f16>(stream, call)
                  : linear_query_gradients<f16>(stream, call);
}

}  // namespace fovea::cuda
