#include "train/checkpoint_moments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "train/checkpoint_tensors.h"

namespace fovea::train {

namespace {

constexpr std::array<std::string_view, 2> kPrefixes = {"first/", "second/"};
// Borders stand at multiples of what every parameter's stretch begins at.
constexpr std::int64_t kBlock = 64;

std::string stretch(std::int64_t begin, std::int64_t end) {
  return cat("[", begin, ":", end, "]");
}

std::string piece_name(const MomentPiece& piece) {
  const std::string path =
      cat(kPrefixes[static_cast<std::size_t>(piece.moment)], piece.segment->parameter->path);
  return piece.whole ? path : path + stretch(piece.begin, piece.end);
}

Shape piece_shape(const MomentPiece& piece) {
  return piece.whole ? piece.segment->parameter->shape : Shape{piece.end - piece.begin};
}

bool read_number(std::string_view text, std::int64_t& into) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), into);
  return bad == std::errc() && end == text.data() + text.size();
}

using Segments = std::map<std::string_view, const optim::Segment*>;

// Nothing if no moment of these parameters has that name.
std::optional<MomentPiece> parse_name(std::string_view name, const Segments& segments) {
  MomentPiece out;
  if (!name.starts_with(kPrefixes[0])) out.moment = 1;
  const std::string_view prefix = kPrefixes[static_cast<std::size_t>(out.moment)];
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = name.substr(prefix.size());
  if (const auto found = segments.find(rest); found != segments.end()) {
    out.segment = found->second;
    out.end = out.segment->size;
    out.whole = true;
    return out;
  }
  const std::size_t open = rest.rfind('['), colon = rest.rfind(':');
  if (open == std::string_view::npos || colon == std::string_view::npos || colon < open ||
      !rest.ends_with(']'))
    return std::nullopt;
  const auto found = segments.find(rest.substr(0, open));
  if (found == segments.end() || !read_number(rest.substr(open + 1, colon - open - 1), out.begin) ||
      !read_number(rest.substr(colon + 1, rest.size() - colon - 2), out.end))
    return std::nullopt;
  out.segment = found->second;
  if (out.begin < 0 || out.begin >= out.end || out.end > out.segment->size) return std::nullopt;
  return out;
}

// What the pieces of one moment of one parameter leave open or have twice.
std::string faults_of(const optim::Segment& segment, int moment,
                      std::vector<const MomentPiece*> pieces, std::span<const MomentName> names) {
  std::sort(pieces.begin(), pieces.end(), [](const MomentPiece* a, const MomentPiece* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  const std::string path =
      cat(kPrefixes[static_cast<std::size_t>(moment)], segment.parameter->path);
  if (pieces.empty() && segment.size > 0)
    return cat("\n  missing     ", path, " ", segment.parameter->shape.str());
  std::string out;
  const MomentPiece* furthest = nullptr;
  for (const MomentPiece* piece : pieces) {
    const std::int64_t covered = furthest == nullptr ? 0 : furthest->end;
    if (piece->begin > covered)
      out += cat("\n  missing     ", path, stretch(covered, piece->begin));
    if (piece->begin < covered) {
      out += cat("\n  overlapping ", names[piece->source].name, " (", names[piece->source].file,
                 ") and ", names[furthest->source].name, " (", names[furthest->source].file, ")");
    }
    if (piece->end > covered) furthest = piece;
  }
  const std::int64_t covered = furthest == nullptr ? 0 : furthest->end;
  if (covered < segment.size) out += cat("\n  missing     ", path, stretch(covered, segment.size));
  return out;
}

// The part of a piece whose moments the store holds, in elements of the flat buffers.
optim::MomentRange held(const optim::ParameterStore& store, const MomentPiece& piece) {
  const std::int64_t at = piece.segment->begin;
  const std::int64_t begin = std::max(store.moments_begin(), at + piece.begin);
  return {begin, std::max(begin, std::min(store.moments_end(), at + piece.end))};
}

struct Source {
  const data::SafetensorsFile* file;
  const data::SafetensorsEntry* entry;
};

}  // namespace

std::string optimizer_file(int rank, int ranks) {
  if (ranks == 1) return "optimizer.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "optimizer-%05d-of-%05d.safetensors", rank + 1, ranks);
  return name;
}

bool is_optimizer_file(std::string_view name) {
  return name == "optimizer.safetensors" ||
         (name.starts_with("optimizer-") && name.ends_with(".safetensors"));
}

optim::MomentRange fair_share(const optim::ParameterStore& store, std::int64_t model_bytes,
                              int rank, int ranks) {
  const std::int64_t elements = store.elements();
  if (ranks == 1) return {0, elements};
  const std::int64_t each = 2 * size_of(store.first_moment().dtype());  // bytes of an element
  const std::int64_t blocks = elements / kBlock;
  const std::int64_t share = (model_bytes + elements * each) / ranks;
  const std::int64_t first =
      std::clamp<std::int64_t>((share - model_bytes) / (each * kBlock), 0, blocks);
  const auto border = [&](int r) {  // before the moments of rank r
    return r == 0 ? 0 : (first + (blocks - first) * (r - 1) / (ranks - 1)) * kBlock;
  };
  return {border(rank), rank + 1 == ranks ? elements : border(rank + 1)};
}

std::vector<data::NamedTensor> moment_tensors(const optim::ParameterStore& store,
                                              optim::MomentRange range) {
  FOVEA_ASSERT(store.moments_begin() <= range.begin && range.begin <= range.end &&
               range.end <= store.moments_end());
  std::vector<data::NamedTensor> out;
  for (const int moment : {0, 1}) {
    const Tensor& flat = moment == 0 ? store.first_moment() : store.second_moment();
    for (const optim::Segment& segment : store.segments()) {
      MomentPiece piece{.segment = &segment, .moment = moment};
      piece.begin = std::max<std::int64_t>(0, range.begin - segment.begin);
      piece.end = std::min(segment.size, range.end - segment.begin);
      if (piece.begin >= piece.end) continue;
      piece.whole = piece.begin == 0 && piece.end == segment.size;
      const std::int64_t at = segment.begin - store.moments_begin();
      out.push_back({piece_name(piece),
                     flat.slice(0, at + piece.begin, at + piece.end).reshape(piece_shape(piece))});
    }
  }
  return out;
}

MomentPlan plan_moments(std::span<const optim::Segment> segments,
                        std::span<const MomentName> names) {
  Segments by_path;
  for (const optim::Segment& segment : segments)
    by_path.emplace(segment.parameter->path, &segment);
  MomentPlan out;
  std::string extra;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::optional<MomentPiece> piece = parse_name(names[i].name, by_path);
    if (piece) {
      piece->source = i;
      out.pieces.push_back(*piece);
    } else {
      extra += cat("\n  extra       ", names[i].name);
    }
  }
  std::map<std::pair<int, const optim::Segment*>, std::vector<const MomentPiece*>> groups;
  for (const MomentPiece& piece : out.pieces)
    groups[{piece.moment, piece.segment}].push_back(&piece);
  for (const int moment : {0, 1}) {
    for (const optim::Segment& segment : segments)
      out.wrong += faults_of(segment, moment, groups[{moment, &segment}], names);
  }
  out.wrong += extra;
  return out;
}

bool needs_file(const optim::ParameterStore& store, const data::SafetensorsFile& file) {
  std::vector<MomentName> names;
  for (const data::SafetensorsEntry& entry : file.entries())
    names.push_back({entry.name, {}});
  const MomentPlan plan = plan_moments(store.segments(), names);
  return std::any_of(plan.pieces.begin(), plan.pieces.end(), [&](const MomentPiece& piece) {
    const optim::MomentRange range = held(store, piece);
    return range.begin < range.end;
  });
}

void load_moments(Stream& stream, const optim::ParameterStore& store,
                  std::span<const data::SafetensorsFile* const> files, const std::string& where) {
  std::vector<MomentName> names;
  std::vector<Source> sources;
  for (const data::SafetensorsFile* file : files) {
    const std::string name = file->path().substr(file->path().rfind('/') + 1);
    for (const data::SafetensorsEntry& entry : file->entries()) {
      names.push_back({entry.name, name});
      sources.push_back({file, &entry});
    }
  }
  MomentPlan plan = plan_moments(store.segments(), names);
  for (const MomentPiece& piece : plan.pieces)
    plan.wrong +=
        misfit(*sources[piece.source].entry, piece_shape(piece), store.first_moment().dtype());
  if (!plan.wrong.empty()) throw CheckpointError(cat(where, ": is of another model:", plan.wrong));
  if (store.first_moment().device().is_meta()) return;
  for (const MomentPiece& piece : plan.pieces) {
    const optim::MomentRange range = held(store, piece);
    if (range.begin >= range.end) continue;
    const Source& source = sources[piece.source];
    const std::int64_t at = piece.segment->begin + piece.begin, to = store.moments_begin();
    const Tensor stored = source.file->read(source.entry->name).reshape({piece.end - piece.begin});
    const Tensor& flat = piece.moment == 0 ? store.first_moment() : store.second_moment();
    transfer(flat.slice(0, range.begin - to, range.end - to),
             stored.slice(0, range.begin - at, range.end - at), stream);
  }
}

}  // namespace fovea::train
