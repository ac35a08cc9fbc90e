#include "kernels/cuda/linear/narrow_query_gradients.cuh"

namespace fovea::cuda {

void linear_query_gradients_bf16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_query_gradients<bf16>(stream, call)
                  : linear_query_gradients<bf16>(stream, call);
}

}  // namespace fovea::cuda
