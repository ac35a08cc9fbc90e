#include "kernels/cuda/flash/pieces.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 1024;

// Where piece `part` of `parts` of a list begins: the parts share the longer of the list's two
// parts, whole tiles and tiles seen in part, evenly.
struct Cut {
  const std::int32_t* tiles;
  int length, parts;

  __device__ Cut(const FlashPlan& plan, const PlanLists& lists, int b, int head, int tile,
                 int longest) {
    const std::int64_t list = plan.list(b, head);
    const std::int32_t* begin = lists.begin + list * (lists.count + 1) + tile;
    const int full = lists.full[list * lists.count + tile], all = begin[1] - begin[0];
    parts = (all + longest - 1) / longest;
    tiles = lists.tiles + list * lists.capacity + begin[0];
    length = full;
    if (2 * full < all) tiles += full, length = all - full;
  }
  __device__ int at(int part) const {
    if (part == 0) return 0;
    if (part == parts) return kNoTile;
    return tiles[static_cast<std::int64_t>(part) * length / parts];
  }
};

// One block a side, a run of lines a thread. Reads where each line begins twice.
__global__ void __launch_bounds__(kThreads)
    pieces_kernel(const __grid_constant__ FlashCall call, const PieceTable keys,
                  const PieceTable queries) {
  __shared__ int sums[kThreads / kWarp];
  __shared__ long long totals[kThreads / kWarp];
  const bool of_keys = blockIdx.x == 0;
  const PieceTable table = of_keys ? keys : queries;
  if (table.capacity == 0) return;
  const FlashPlan& plan = call.plan;
  const PlanLists lists = of_keys ? plan.of_keys : plan.of_queries;
  const int heads = of_keys ? call.kv_heads : call.heads, group = of_keys ? call.group : 1;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;

  long long total = 0;
  for (int i = thread; i < call.batch * call.heads; i += kThreads) {
    const std::int64_t list = plan.list(i / call.heads, i % call.heads);
    total += lists.begin[list * (lists.count + 1) + lists.count];
  }
  total = warp_sum(total);
  if (lane == 0) totals[thread / kWarp] = total;
  __syncthreads();
  total = 0;
  for (const long long part : totals)
    total += part;
  int longest = kLeastPiece;
  while (static_cast<long long>(longest) * kPieces < total)
    longest *= 2;

  const int lines = call.batch * heads * lists.count, run = (lines + kThreads - 1) / kThreads;
  const int begin = min(thread * run, lines), end = min(begin + run, lines);
  const auto length_of = [&](int line) {
    const int one = line / lists.count, b = one / heads, head = one % heads * group;
    return LineLength(plan, lists, b, head, group, line % lists.count, longest);
  };
  int own = 0;
#pragma unroll 4
  for (int line = begin; line < end; ++line)
    own += length_of(line).pieces;
  int before = own;  // up to this thread's
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int lower = __shfl_up_sync(~0u, before, offset);
    if (lane >= offset) before += lower;
  }
  if (lane == kWarp - 1) sums[thread / kWarp] = before;
  __syncthreads();
  int at = before - own, all = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < thread / kWarp) at += sums[w];
    all += sums[w];
  }
  if (thread == 0) table.header[0] = longest, table.header[1] = all;
  for (int line = begin; own > 0 && line < end; ++line) {
    const LineLength length = length_of(line);
    if (!length.is_cut()) continue;
    const int one = line / lists.count, b = one / heads, first = one % heads * group;
    const int line_at = at;
    for (int h = first; h < first + group; ++h) {
      const Cut cut(plan, lists, b, h, line % lists.count, longest);
      for (int part = 0; part < cut.parts; ++part, ++at)
        table.pieces[at] = {line, h, cut.at(part), cut.at(part + 1), line_at, length.pieces};
    }
  }
}

// Pieces that a side has at most: all entries make kPieces at most, and each of a cut line's lists,
// of which there are as many, one more.
int most_pieces(const FlashCall& call, const PlanLists& lists, int other_tiles, int group) {
  if (other_tiles * group <= kLeastPiece) return 0;
  const std::int64_t entries =
      static_cast<std::int64_t>(call.batch) * call.heads * lists.capacity / kLeastPiece;
  return static_cast<int>(entries < kPieces ? entries : kPieces) * (1 + group);
}

}  // namespace

PieceTables::PieceTables(const FlashCall& call, int key_floats, int query_floats) {
  const auto add = [&](PieceTable& table, const PlanLists& lists, int other_tiles, int group,
                       int floats) {
    if (floats == 0) return;
    table.capacity = most_pieces(call, lists, other_tiles, group);
    table.floats = floats;
    const auto room = static_cast<std::size_t>(table.capacity);
    bytes += 16 + sizeof(Piece) * ((room + 1) / 2 * 2) +
             sizeof(float) * room * static_cast<std::size_t>(floats);
  };
  add(keys, call.plan.of_keys, call.plan.of_queries.count, call.group, key_floats);
  add(queries, call.plan.of_queries, call.plan.of_keys.count, 1, query_floats);
  if (keys.capacity + queries.capacity > 0) blocks = 2 * multiprocessors();
}

void PieceTables::place(float* at) {
  const auto room = [&](std::size_t size) {
    float* here = at;
    at += size / sizeof(float);
    return here;
  };
  for (PieceTable* table : {&keys, &queries}) {
    if (table->capacity == 0) continue;
    const auto most = static_cast<std::size_t>(table->capacity);
    table->header = reinterpret_cast<int*>(room(16));
    table->pieces = reinterpret_cast<Piece*>(room(sizeof(Piece) * ((most + 1) / 2 * 2)));
    table->sums = room(sizeof(float) * most * static_cast<std::size_t>(table->floats));
  }
}

void find_pieces(StreamRef stream, const FlashCall& call, const PieceTables& tables) {
  if (tables.blocks == 0) return;
  pieces_kernel<<<2, kThreads, 0, stream_of(stream)>>>(call, tables.keys, tables.queries);
  check_launch("flash_plan_pieces");
}

}  // namespace fovea::cuda
