#include "kernels/cuda/linear/outputs.cuh"

namespace fovea::cuda {

void linear_outputs_f16(StreamRef stream, const LinearCall& call) {
  linear_outputs<f16>(stream, call);
}

}  // namespace fovea::cuda
