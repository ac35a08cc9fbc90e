#include "kernels/cuda/linear/narrow_outputs.cuh"

namespace fovea::cuda {

void linear_outputs_bf16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_outputs<bf16>(stream, call) : linear_outputs<bf16>(stream, call);
}

}  // namespace fovea::cuda
