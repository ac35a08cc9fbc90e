#include "kernels/cuda/linear/outputs.cuh"

namespace fovea::cuda {

void linear_outputs_f32(StreamRef stream, const LinearCall& call) {
  linear_outputs<float>(stream, call);
}

}  // namespace fovea::cuda
