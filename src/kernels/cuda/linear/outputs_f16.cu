#include "kernels/cuda/linear/narrow_outputs.cuh"

namespace fovea::cuda {

void linear_outputs_f16(StreamRef stream, const LinearCall& call) {
  is_narrow(call) ? launch_narrow_outputs<f16>(stream, call) : linear_outputs<f16>(stream, call);
}

}  // namespace fovea::cuda
