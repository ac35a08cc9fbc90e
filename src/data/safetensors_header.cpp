#include "data/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/strict_json.h"

namespace fovea::data {

namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kDtypes[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
    {"I64", DType::i64}, {"I32", DType::i32}, {"U8", DType::u8},   {"BOOL", DType::u8},
};
constexpr int kMaxDepth = 8;  // a header nests objects in one object

[[noreturn]] void fail(const std::string& path, std::string_view reason) {
  throw IoError(cat(path, ": ", reason));
}

json parse(const std::string& path, std::string_view text) {
  if (text.empty() || text[0] != '{') fail(path, "the header does not begin with {");
  if (text.find('\0') != std::string_view::npos) fail(path, "the header has a NUL byte");
  return parse_strict_json<json>(path, text, kMaxDepth, "the header ");
}

std::uint64_t whole_number(const json& value, std::string_view what) {
  if (!value.is_number_unsigned()) {
    throw IoError(cat(what, " is ", quote(value.dump(-1, ' ', true), 40), ", not a whole number"));
  }
  return value.get<std::uint64_t>();
}

const json& field(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw IoError(cat("has no ", name));
  return *found;
}

void read_dtype(const json& value, SafetensorsEntry& entry) {
  if (!value.is_string()) throw IoError("dtype is not a string");
  entry.stored_dtype = value.get<std::string>();
  std::vector<std::string> known;
  for (const auto& [name, dtype] : kDtypes) {
    if (entry.stored_dtype == name) {
      entry.dtype = dtype;
      return;
    }
    known.emplace_back(name);
  }
  throw IoError(
      cat("dtype ", quote(entry.stored_dtype), " is not supported; known are ", join(known, ", ")));
}

// Throws IoError without the path or the tensor's name; the caller knows them.
SafetensorsEntry read_entry(const json& value) {
  if (!value.is_object()) throw IoError("is not an object");
  SafetensorsEntry entry;
  read_dtype(field(value, "dtype"), entry);
  const json& shape = field(value, "shape");
  if (!shape.is_array()) throw IoError("shape is not a list");
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  // Sizes of 0 are left out of the product, so that strides cannot overflow either.
  std::uint64_t bytes = static_cast<std::uint64_t>(size_of(entry.dtype));
  bool empty = false;
  for (const json& size : shape) {
    const std::uint64_t n = whole_number(size, "a size of the shape");
    if (n > kMost || (n > 0 && bytes > kMost / n)) {
      throw IoError("has a shape whose byte count overflows 63 bits");
    }
    if (n > 0) bytes *= n;
    empty = empty || n == 0;
    entry.shape.push_back(static_cast<std::int64_t>(n));
  }
  if (empty) bytes = 0;
  const json& offsets = field(value, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2)
    throw IoError("data_offsets is not a list of two");
  entry.begin = whole_number(offsets[0], "data_offsets[0]");
  entry.end = whole_number(offsets[1], "data_offsets[1]");
  if (entry.begin > entry.end) {
    throw IoError(cat("begins at byte ", entry.begin, ", after its end at ", entry.end));
  }
  if (entry.end - entry.begin != bytes) {
    throw IoError(cat("has ", entry.end - entry.begin, " bytes, but dtype and shape need ", bytes));
  }
  return entry;
}

std::map<std::string, std::string> read_metadata(const std::string& path, const json& value) {
  if (!value.is_object()) fail(path, "__metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail(path, cat("__metadata__ ", quote(key), " is not a string"));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// Sorts by position and checks that the tensors tile the data: no gap, no overlap, no remainder.
void check_cover(const std::string& path, std::vector<SafetensorsEntry>& entries,
                 std::uint64_t bytes) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) {
      fail(path, cat("tensor ", quote(entry.name), " begins at byte ", entry.begin,
                     " of the data, inside the tensor before it"));
    }
    if (entry.begin > covered) {
      fail(path, cat("bytes ", covered, " to ", entry.begin, " of the data belong to no tensor"));
    }
    covered = entry.end;
  }
  if (covered > bytes)
    fail(path, cat("the data ends at byte ", bytes, " of ", covered, "; the file was cut short"));
  if (covered < bytes) fail(path, cat(bytes - covered, " bytes follow the last tensor"));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t data_bytes) {
  const json root = parse(path, text);
  if (!root.is_object()) fail(path, "the header is not an object");
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      header.metadata = read_metadata(path, value);
      continue;
    }
    try {
      header.entries.push_back(read_entry(value));
    } catch (const IoError& e) {
      fail(path, cat("tensor ", quote(name), ": ", e.what()));
    }
    header.entries.back().name = name;
  }
  check_cover(path, header.entries, data_bytes);
  return header;
}

std::string make_safetensors_header(const std::string& path, std::span<const NamedTensor> tensors,
                                    const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  std::string out = "{";
  std::uint64_t begin = 0;
  try {
    if (!metadata.empty()) out += cat("\"__metadata__\":", json(metadata).dump());
    for (const auto& [name, tensor] : tensors) {
      FOVEA_ASSERT(tensor.defined() && tensor.device().is_cpu() && tensor.is_contiguous());
      if (name == "__metadata__" || !names.insert(name).second) {
        fail(path, cat("cannot be written: tensor name ", quote(name), " is taken"));
      }
      const auto end = begin + static_cast<std::uint64_t>(tensor.bytes());
      const auto* dtype = std::find_if(
          std::begin(kDtypes), std::end(kDtypes),
          [wanted = tensor.dtype()](const auto& known) { return known.second == wanted; });
      FOVEA_ASSERT(dtype != std::end(kDtypes));
      // A Shape prints as JSON: "[2,4]".
      out +=
          cat(out.size() > 1 ? "," : "", json(name).dump(), ":{\"dtype\":\"", dtype->first,
              "\",\"shape\":", tensor.shape().str(), ",\"data_offsets\":[", begin, ",", end, "]}");
      begin = end;
    }
  } catch (const json::exception& e) {
    fail(path,
         cat("cannot be written: a name or the metadata is not UTF-8: ", quote(e.what(), 200)));
  }
  out += "}";
  out.append((8 - out.size() % 8) % 8, ' ');
  return out;
}

}  // namespace fovea::data
