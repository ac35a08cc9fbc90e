#include "kernels/cuda/flash/plan_backward.cuh"

namespace fovea::cuda {

namespace {

PieceTables tables_of(const FlashCall& call) {
  const bool of_keys = call.dk.data != nullptr || call.dv.data != nullptr;
  return {call, of_keys ? kKeyFloats : 0, call.dq.data != nullptr ? kQueryFloats : 0};
}

}  // namespace

std::size_t plan_backward_bytes(const FlashCall& call) {
  return tables_of(call).bytes;
}

void flash_plan_backward_w64(StreamRef stream, const FlashCall& call, DType dtype) {
  PieceTables tables = tables_of(call);
  tables.place(call.partial);
  if (dtype == DType::bf16)
    launch_plan_backward<bf16>(stream, call, tables);
  else
    launch_plan_backward<f16>(stream, call, tables);
}

}  // namespace fovea::cuda
