#include "data/safetensors.h"

#include <bit>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/safetensors_header.h"

namespace fovea::data {

static_assert(std::endian::native == std::endian::little,
              "safetensors bytes are copied as they are");

namespace {

// The format's own limit.
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < kLengthBytes) {
    throw IoError(cat(path, ": has ", file_.size(), " bytes, too few for a header length"));
  }
  std::uint64_t length = 0;
  file_.read_at(0, &length, sizeof length);
  if (length > kMaxHeader) {
    throw IoError(cat(path, ": header length ", length, " is above the limit of ", kMaxHeader));
  }
  if (length > file_.size() - kLengthBytes) {
    throw IoError(cat(path, ": header of ", length, " bytes ends beyond the file of ", file_.size(),
                      " bytes"));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file_.read_at(kLengthBytes, text.data(), text.size());
  data_begin_ = kLengthBytes + length;
  SafetensorsHeader header = parse_safetensors_header(path, text, file_.size() - data_begin_);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    by_name_.emplace(entries_[i].name, i);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const SafetensorsEntry& known : entries_)
      names.push_back(known.name);
    const std::string near = nearest(name, names);
    throw IoError(cat(path(), ": has no tensor ", quote(name),
                      near.empty() ? std::string() : cat("; the nearest is ", quote(near))));
  }
  if (entry->shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw IoError(cat(path(), ": tensor ", quote(name), " has ", entry->shape.size(),
                      " axes, but at most ", kMaxRank, " are supported"));
  }
  Shape shape;
  for (const std::int64_t size : entry->shape)
    shape.push_back(size);
  Tensor tensor = Tensor::empty(shape, entry->dtype, kCpu, "safetensors");
  read_bytes(*entry, tensor.data<char>());
  return tensor;
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, void* to) const {
  file_.read_at(data_begin_ + entry.begin, to, static_cast<std::size_t>(entry.end - entry.begin));
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_safetensors_header(path, tensors, metadata);
  OutputFile file(path);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header);
  for (const NamedTensor& named : tensors) {
    file.write(named.tensor.data<char>(), static_cast<std::size_t>(named.tensor.bytes()));
  }
  file.finish();
}

}  // namespace fovea::data
