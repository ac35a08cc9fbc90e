#include "kernels/cuda/linear/outputs.cuh"

namespace fovea::cuda {

void linear_outputs_bf16(StreamRef stream, const LinearCall& call) {
  linear_outputs<bf16>(stream, call);
}

}  // namespace fovea::cuda
