#pragma once
// AdamW's moments in a checkpoint: "first/<path>" and "second/<path>" with the parameter's shape,
// or, where the border of two ranks' files cuts a parameter, "first/<path>[begin:end]" with
// elements [begin, end) of it, one axis. Which rank wrote what does not matter to who reads.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/stream.h"
#include "data/safetensors.h"
#include "optim/parameter_store.h"

namespace fovea::train {

// optimizer.safetensors, or optimizer-00002-of-00004.safetensors of rank 1 of 4.
std::string optimizer_file(int rank, int ranks);
bool is_optimizer_file(std::string_view name);

// The moments that a rank writes where every rank holds all of them: the bytes are shared out
// evenly, those of the model's file counted, which rank 0 writes alone.
optim::MomentRange fair_share(const optim::ParameterStore& store, std::int64_t model_bytes,
                              int rank, int ranks);
// Elements of `range`, which the store holds, under the names above; views of its buffers.
std::vector<data::NamedTensor> moment_tensors(const optim::ParameterStore& store,
                                              optim::MomentRange range);

// A tensor of a checkpoint that holds moments.
struct MomentPiece {
  std::size_t source = 0;                   // which of the names it was found by
  const optim::Segment* segment = nullptr;  // its parameter
  int moment = 0;                           // 0: first, 1: second
  std::int64_t begin = 0, end = 0;          // elements of the parameter
  bool whole = false;                       // has the parameter's shape, else one axis
};
struct MomentPlan {
  std::vector<MomentPiece> pieces;
  std::string wrong;  // a line for every missing, overlapping and extra piece; empty: none
};
struct MomentName {
  std::string name, file;
};
// Whether the tensors of these names are the moments of the store's parameters, each element once.
MomentPlan plan_moments(std::span<const optim::Segment> segments,
                        std::span<const MomentName> names);

// Fills the moments that the store holds from files that together have all of them; reads only
// tensors of which it needs something. `where` is the subject of messages. Throws CheckpointError
// that lists every missing, overlapping, extra and mis-shaped piece, and leaves the store as it
// was.
void load_moments(Stream& stream, const optim::ParameterStore& store,
                  std::span<const data::SafetensorsFile* const> files, const std::string& where);
// Whether load_moments will read tensors of this file.
bool needs_file(const optim::ParameterStore& store, const data::SafetensorsFile& file);

}  // namespace fovea::train
