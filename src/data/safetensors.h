#pragma once
// The safetensors container: a length, a JSON header, the tensors' bytes.
// Source: https://github.com/huggingface/safetensors (format), read strictly: hostile files end in
// an IoError that names the path and the reason, never in a crash or a wrong tensor.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace fovea::data {

struct SafetensorsEntry {
  std::string name;
  std::string stored_dtype;  // as the file spells it: F32, BF16, BOOL, ...
  DType dtype = DType::f32;  // BOOL is read as u8
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, relative to the data behind the header
};

// An open file: the header is read and checked at once, tensors when asked for.
class SafetensorsFile {
 public:
  // Throws IoError unless every byte behind the header belongs to exactly one tensor, names are
  // unique, and dtypes are F64, F32, F16, BF16, I64, I32, U8 or BOOL.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Null if there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  // A CPU tensor of its own. Throws IoError if there is none of that name (with the nearest), or if
  // it has more than kMaxRank sizes.
  Tensor read(std::string_view name) const;
  // The tensor's bytes as stored.
  void read_bytes(const SafetensorsEntry& entry, void* to) const;

 private:
  InputFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // CPU, contiguous
};

// Writes the tensors in the given order and syncs the file. The same arguments give the same bytes:
// the header has no spaces but the padding that makes the data start at a multiple of 8.
// Throws IoError: two tensors of one name, a name that is not UTF-8, a full disk (nothing is left).
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace fovea::data
