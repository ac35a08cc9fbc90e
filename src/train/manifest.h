#pragma once
// manifest.json: the hash of every file and tensor of a checkpoint, and of itself. It is written
// last, so a checkpoint without it is not whole.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::train {

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0, xxh3 = 0;
  std::vector<std::pair<std::string, std::uint64_t>>
      tensors;  // of a safetensors file: name, xxh3 of its bytes
};

constexpr const char* kManifestName = "manifest.json";

std::string manifest_json(const std::vector<ManifestFile>& files);
// Throws CheckpointError if a single byte differs from what manifest_json wrote. `path` is for
// messages.
std::vector<ManifestFile> parse_manifest(std::string_view text, const std::string& path);

// The manifest of a checkpoint, its files not looked at. Throws CheckpointError.
std::vector<ManifestFile> read_manifest(const std::string& folder);
// Compares every byte of a file of `folder` with what its manifest says. Throws CheckpointError
// naming the file, and the tensor where one is to blame.
void verify_file(const std::string& folder, const ManifestFile& file);
// Both, for all files.
std::vector<ManifestFile> verify_manifest(const std::string& folder);

}  // namespace fovea::train
