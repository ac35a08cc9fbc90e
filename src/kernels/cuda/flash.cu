// Picks the kernel of an attention call: tensor cores where dtype, width and layout allow and no
// score needs more than a mask, f32 arithmetic otherwise. The choice depends on shapes, strides and
// what is present alone.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/flash.h"

namespace fovea::cuda {

namespace {

constexpr int kRowTile = 128;  // what rows a head are padded to in scratch memory

FlashCall describe(const View& q, const View& k, const View& v, const AttentionScores& scores,
                   const char* launcher) {
  FlashCall call;
  call.q = HeadRows(q), call.k = HeadRows(k), call.v = HeadRows(v);
  call.query_tokens = Tokens(scores.query_valid, scores.query_segments);
  call.key_tokens = Tokens(scores.key_valid, scores.key_segments);
  const std::int64_t most = std::int64_t{1} << 30;
  if (q.dim[2] > most || k.dim[2] > most || q.dim[0] * q.dim[1] > most)
    refuse(launcher, "more than 2^30 tokens or heads");
  call.batch = static_cast<int>(q.dim[0]);
  call.heads = static_cast<int>(q.dim[1]);
  call.kv_heads = static_cast<int>(k.dim[1]);
  call.group = call.heads / call.kv_heads;
  call.queries = static_cast<int>(q.dim[2]);
  call.keys = static_cast<int>(k.dim[2]);
  call.width = static_cast<int>(q.dim[3]);
  call.value_width = static_cast<int>(v.dim[3]);
  call.offset = call.keys - call.queries;
  call.padded_queries = (call.queries + kRowTile - 1) / kRowTile * kRowTile;
  call.scale = static_cast<float>(scores.scale);
  call.causal = scores.causal;
  if (const View& bias = scores.bias; bias) {
    call.bias = HeadRows(bias);
    if (bias.dim[0] == 1) call.bias.batch = 0;
    if (bias.dim[1] == 1) call.bias.head = 0;
    call.bias_column = bias.stride[3];
    call.bias_batch = static_cast<int>(bias.dim[0]);
    call.bias_heads = static_cast<int>(bias.dim[1]);
  }
  call.slopes = scores.alibi_slopes.ptr<float>();
  call.dropout = static_cast<float>(scores.dropout);
  call.keep_scale = static_cast<float>(1 / (1 - scores.dropout));
  call.dropout_key = scores.dropout_key;
  if (call.width > 256 || call.value_width > 256)
    refuse(launcher, "heads wider than 256; use model.attention.kernel: materialised");
  return call;
}

// Rows that can be moved 16 bytes at a time. Strides of axes of one element mean nothing.
bool walks_by_16_bytes(const View& x) {
  if (!x) return true;
  if (reinterpret_cast<unsigned long long>(x.data) % 16 != 0 || x.dim[3] % 8 != 0) return false;
  if (x.dim[3] != 1 && x.stride[3] != 1) return false;
  for (int axis = 0; axis < 3; ++axis) {
    if (x.dim[axis] != 1 && x.stride[axis] % 8 != 0) return false;
  }
  return true;
}

bool takes_tensor_cores(const View& q, const View& k, const View& v,
                        const AttentionScores& scores) {
  return (q.dtype == DType::bf16 || q.dtype == DType::f16) && q.dim[3] <= 128 && v.dim[3] <= 128 &&
         scores.scale > 0 && scores.dropout <= 0 && !scores.bias && !scores.alibi_slopes &&
         walks_by_16_bytes(q) && walks_by_16_bytes(k) && walks_by_16_bytes(v);
}

int padded_width(const FlashCall& call) {
  const int width = call.width > call.value_width ? call.width : call.value_width;
  return width <= 32 ? 32 : width <= 64 ? 64 : 128;
}

// One block walks a whole head: worth it where heads fill the multiprocessors of an H100 or H200
// almost a whole number of times, and while the f32 dQ of the heads at work fits their L2 cache.
constexpr int kPassBlocks = 132, kPassMostQueries = 2048;

bool takes_one_pass(const FlashCall& call) {
  if (padded_width(call) != 64 || call.group != 1 || call.masked()) return false;
  if (call.queries == 0 || call.queries > kPassMostQueries || call.keys == 0) return false;
  if (call.causal && call.offset < 0) return false;  // some query sees nothing
  if (call.dq.data == nullptr || call.dk.data == nullptr || call.dv.data == nullptr) return false;
  const std::int64_t heads = static_cast<std::int64_t>(call.batch) * call.heads;
  const std::int64_t turns = (heads + kPassBlocks - 1) / kPassBlocks;
  return heads * 5 >= turns * kPassBlocks * 3 && has_one_pass();
}

}  // namespace

void flash_forward(StreamRef stream, const View& o, const View& lse, const View& q, const View& k,
                   const View& v, const AttentionScores& scores) {
  if (lse.numel() == 0) return;
  FlashCall call = describe(q, k, v, scores, "flash_forward");
  call.o = HeadRows(o);
  call.lse = lse.ptr<float>();
  if (!takes_tensor_cores(q, k, v, scores) || !walks_by_16_bytes(o))
    return flash_forward_general(stream, call, q.dtype);
  switch (padded_width(call)) {
    case 32:
      return flash_forward_w32(stream, call, q.dtype);
    case 64:
      return flash_forward_w64(stream, call, q.dtype);
    default:
      return flash_forward_w128(stream, call, q.dtype);
  }
}

void flash_backward(StreamRef stream, const AttentionGradients& gradients, const View& dout,
                    const View& dlse, const View& q, const View& k, const View& v, const View& o,
                    const View& lse, const AttentionScores& scores) {
  if (q.dim[0] * q.dim[1] == 0) return;
  FlashCall call = describe(q, k, v, scores, "flash_backward");
  call.o = HeadRows(o);
  call.lse = lse.ptr<float>();
  call.dout = HeadRows(dout);
  call.dlse = dlse.ptr<float>();
  const auto wanted = [](const View& x) { return x && x.numel() > 0; };
  if (wanted(gradients.dq)) call.dq = HeadRows(gradients.dq);
  if (wanted(gradients.dk)) call.dk = HeadRows(gradients.dk);
  if (wanted(gradients.dv)) call.dv = HeadRows(gradients.dv);
  if (wanted(gradients.dbias)) call.dbias = gradients.dbias.ptr<float>();
  const bool fast = takes_tensor_cores(q, k, v, scores) && dout && walks_by_16_bytes(dout) &&
                    walks_by_16_bytes(o) && walks_by_16_bytes(gradients.dq) &&
                    walks_by_16_bytes(gradients.dk) && walks_by_16_bytes(gradients.dv);
  call.one_pass = fast && takes_one_pass(call);
  const std::size_t rows =
      2 * static_cast<std::size_t>(call.batch) * static_cast<std::size_t>(call.heads) *
      static_cast<std::size_t>(call.padded_queries > 0 ? call.padded_queries : 1);
  call.rows = static_cast<float*>(scratch(
      stream, sizeof(float) * rows + (call.one_pass ? one_pass_bytes(call) : 0), "flash_backward"));
  call.partial = call.rows + rows;
  if (!fast) return flash_backward_general(stream, call, q.dtype);
  if (call.queries > 0) flash_backward_rows(stream, call, q.dtype);
  if (call.one_pass) return flash_one_pass_w64(stream, call, q.dtype);
  switch (padded_width(call)) {
    case 32:
      return flash_backward_w32(stream, call, q.dtype);
    case 64:
      return flash_backward_w64(stream, call, q.dtype);
    default:
      return flash_backward_w128(stream, call, q.dtype);
  }
}

}  // namespace fovea::cuda
