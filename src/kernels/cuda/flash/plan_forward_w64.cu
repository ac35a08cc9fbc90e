#include "kernels/cuda/flash/plan_forward.cuh"

namespace fovea::cuda {

std::size_t plan_forward_bytes(const FlashCall& call) {
  return PieceTables(call, 0, kForwardFloats).bytes;
}

void flash_plan_forward_w64(StreamRef stream, const FlashCall& call, DType dtype) {
  PieceTables tables(call, 0, kForwardFloats);
  tables.place(call.partial);
  if (dtype == DType::bf16)
    launch_plan_forward<bf16>(stream, call, tables);
  else
    launch_plan_forward<f16>(stream, call, tables);
}

}  // namespace fovea::cuda
