// Linear attention: cuts scratch memory and runs the steps of linear/call.cuh.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/linear_attention.h"

namespace fovea::cuda {

namespace {

// Keys of a chunk where all of them end in one state: enough chunks to fill a
// device, few enough that their sums are small beside the features.
constexpr int kWholeChunk = 1024;
constexpr int kMostValues = 256;

// Hands out pieces of scratch memory; with a null base it only counts.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(std::int64_t count) {
    T* out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return out;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::size_t bytes_ = 0;
};

LinearStep* by_type(DType dtype, LinearStep* f32, LinearStep* bf16, LinearStep* f16) {
  return dtype == DType::f32 ? f32 : dtype == DType::bf16 ? bf16 : f16;
}

LinearCall describe(const View& a, const View& b, const View& v, const LinearSums& how,
                    const char* launcher) {
  LinearCall call;
  const std::int64_t most = std::int64_t{1} << 30;
  if (a.dim[2] > most || b.dim[2] > most || a.dim[0] * a.dim[1] > 65535)
    refuse(launcher, "more than 2^30 tokens, or 65535 heads of all samples");
  if (v.dim[3] > kMostValues) refuse(launcher, "values wider than 256");
  call.a = TileRows(a), call.b = TileRows(b), call.v = TileRows(v);
  call.query_tokens = Tokens(how.query_valid, how.query_segments);
  call.key_tokens = Tokens(how.key_valid, how.key_segments);
  call.batch = static_cast<int>(a.dim[0]);
  call.heads = static_cast<int>(a.dim[1]);
  call.key_heads = static_cast<int>(b.dim[1]);
  call.value_heads = static_cast<int>(v.dim[1]);
  call.states = static_cast<int>(how.decay    ? how.decay.dim[1]
                                 : how.weight ? how.weight.dim[1]
                                              : b.dim[1]);
  call.queries = call.a.count, call.keys = call.b.count;
  call.features = call.a.width, call.values = call.v.width;
  const auto tiles = [](int n) { return (n + kTileSide - 1) / kTileSide; };
  call.padded_features = tiles(call.features) * kTileSide;
  call.padded_values = (tiles(call.values) == 3 ? 4 : tiles(call.values)) * kTileSide;
  call.causal = how.causal;
  const bool segments = bool(how.query_segments);
  if (segments && call.queries != call.keys)
    refuse(launcher, "segments of cross-attention have no kernel here");
  if (segments && how.normaliser == Normaliser::sqrt_n)
    refuse(launcher, "segments under the sqrt_n normaliser have no kernel here");
  call.pairs = how.causal || segments;
  call.sides = segments && !how.causal ? 2 : 1;
  call.chunk = !call.pairs ? kWholeChunk : how.chunk < 2 * kTileSide ? kTileSide : 2 * kTileSide;
  call.key_chunks = (call.keys + call.chunk - 1) / call.chunk;
  call.query_chunks = (call.queries + call.chunk - 1) / call.chunk;
  call.state_count = call.pairs ? call.key_chunks : 1;
  call.normaliser = how.normaliser;
  call.floor = static_cast<float>(how.floor);
  call.decay = how.decay.ptr<float>();
  call.weight = how.weight.ptr<float>();
  return call;
}

// What forward and backward both need, and the sums of queries for the latter.
void cut(LinearCall& call, Pieces& pieces, std::int64_t element, bool segments, bool backward) {
  const std::int64_t heads = std::int64_t{call.batch} * call.states;
  const std::int64_t size = std::int64_t{call.padded_features} * call.padded_values;
  const std::int64_t chunks =
      call.key_chunks > call.query_chunks ? call.key_chunks : call.query_chunks;
  if (call.decay != nullptr) call.gamma = pieces.take<float>(heads * call.keys);
  if (call.normaliser == Normaliser::sqrt_n)
    call.counts = pieces.take<float>(heads * call.key_chunks);
  float* const local = pieces.take<float>(heads * chunks * size);
  float* const local_z = pieces.take<float>(heads * chunks * call.padded_features);
  const auto cut_sums = [&](ChunkSums& sums, bool keys) {
    sums.local = local, sums.local_z = local_z;
    sums.mass = pieces.take<float>(heads * chunks);
    sums.states = pieces.take<char>(heads * call.state_count * size * element);
    sums.z = pieces.take<float>(heads * call.state_count * call.padded_features);
    sums.undo = pieces.take<float>(heads * call.state_count);
    if (element == 2 && keys)
      sums.z_parts =
          pieces.take<char>(heads * call.state_count * call.padded_features * 2 * element);
  };
  for (int which = 0; which < call.sides; ++which) {
    ScanSide& side = call.side[which];
    if (segments) {
      side.in = pieces.take<int>(std::int64_t{call.batch} * call.key_chunks);
      side.out = pieces.take<int>(std::int64_t{call.batch} * call.key_chunks);
    }
    side.keep = pieces.take<float>(heads * call.key_chunks);
    cut_sums(side.keys, true);
    if (backward) cut_sums(side.queries, false);
  }
  if (call.carried != nullptr) call.carried_mass = pieces.take<float>(heads);
  if (!backward) return;
  const std::int64_t rows = std::int64_t{call.batch} * call.heads * call.queries;
  call.rows.delta = pieces.take<float>(rows);
  call.rows.rho = pieces.take<float>(rows);
  call.rows.rest = pieces.take<float>(rows);
  call.rows.top = pieces.take<float>(heads * call.query_chunks);
}

}  // namespace

void linear_attention_forward(StreamRef stream, const LinearOutputs& outputs, const View& state,
                              const View& a, const View& b, const View& v, const LinearSums& sums) {
  constexpr const char* kLauncher = "linear_attention_forward";
  if (outputs.o.numel() == 0) return;
  LinearCall call = describe(a, b, v, sums, kLauncher);
  call.o = TileRows(outputs.o), call.rounding = TileRows(outputs.rounding);
  call.den = outputs.den.ptr<float>();
  call.carried = state.ptr<float>();
  const bool segments = bool(sums.query_segments);
  Pieces count(nullptr);
  cut(call, count, size_of(v.dtype), segments, false);
  Pieces pieces(scratch(stream, count.bytes(), kLauncher));
  cut(call, pieces, size_of(v.dtype), segments, false);
  linear_marks(stream, call);
  linear_sums(stream, v.dtype, call, false);
  by_type(v.dtype, linear_outputs_f32, linear_outputs_bf16, linear_outputs_f16)(stream, call);
}

void linear_attention_backward(StreamRef stream, const LinearGradients& d, const View& dout,
                               const View& dlse, const View& a, const View& b, const View& v,
                               const LinearOutputs& outputs, const LinearSums& sums) {
  constexpr const char* kLauncher = "linear_attention_backward";
  if (a.numel() == 0 && b.numel() == 0) return;
  LinearCall call = describe(a, b, v, sums, kLauncher);
  const bool weighed = d.ddecay || d.dweight;
  call.o = TileRows(outputs.o), call.rounding = TileRows(outputs.rounding),
  call.dout = TileRows(dout);
  call.den = outputs.den.ptr<float>();
  call.dlse = dlse.ptr<const float>();
  call.da = TileRows(d.da), call.db = TileRows(d.db), call.dv = TileRows(d.dv);
  call.ddecay = d.ddecay.ptr<float>();
  call.dweight = d.dweight.ptr<float>();
  const bool segments = bool(sums.query_segments);
  call.rounded = (d.da ? d.da : d.db).dtype == DType::bf16;
  if (call.rounded && (weighed || !rounds_gradients(a, v, sums)))
    refuse(kLauncher, "rounded gradients of these features have no kernel here");
  // Gradients of weights come from those of each state's key features.
  const bool shared_keys = call.states != call.key_heads;
  const bool own_db = weighed && (!d.db || shared_keys);
  float* columns = call.dweight;
  const auto cut_all = [&](Pieces& pieces) {
    cut(call, pieces, size_of(v.dtype), segments, true);
    const std::int64_t keys = std::int64_t{call.batch} * call.states * call.keys;
    if (weighed && call.dweight == nullptr) columns = pieces.take<float>(keys);
    if (own_db) call.db.data = pieces.take<float>(keys * call.features);
  };
  Pieces count(nullptr);
  cut_all(count);
  Pieces pieces(scratch(stream, count.bytes(), kLauncher));
  cut_all(pieces);
  if (own_db) {
    call.db.row = call.features;
    call.db.head = std::int64_t{call.keys} * call.features;
    call.db.batch = call.db.head * call.states;
    call.db.count = call.keys;
    call.db.width = call.features;
    call.db.packed = call.features % 8 == 0;
    call.db_of_states = true;
  }
  linear_marks(stream, call);
  linear_sums(stream, v.dtype, call, false);
  linear_query_rows(stream, v.dtype, call);
  linear_query_marks(stream, call);
  linear_sums(stream, v.dtype, call, true);
  if (call.da.data != nullptr)
    by_type(v.dtype, linear_query_gradients_f32, linear_query_gradients_bf16,
            linear_query_gradients_f16)(stream, call);
  if (call.db.data != nullptr || call.dv.data != nullptr)
    by_type(v.dtype, linear_key_gradients_f32, linear_key_gradients_bf16, linear_key_gradients_f16)(
        stream, call);
  if (weighed) linear_weight_gradients(stream, v.dtype, call, columns);
  if (own_db && d.db) linear_add_states(stream, call, d.db.ptr<float>());
}

}  // namespace fovea::cuda
