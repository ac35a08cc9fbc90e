#pragma once
// The files of a checkpoint while several ranks write them into one temporary folder.

#include <chrono>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "data/safetensors.h"
#include "train/manifest.h"

namespace fovea::train {

// Write a synced file into the folder; return what the manifest says of it. Throw IoError.
ManifestFile write_tensors(const std::string& folder, const std::string& name,
                           std::span<const data::NamedTensor> tensors,
                           const std::map<std::string, std::string>& metadata);
ManifestFile write_text(const std::string& folder, const std::string& name,
                        const std::string& text);

// Says to rank 0 that these files of this rank (> 0) are on the disk.
void leave_part(const std::string& folder, int rank, const std::vector<ManifestFile>& files);
// Says to rank 0 that this rank's part will not come; does what it can.
void leave_failure(const std::string& folder, int rank, std::string_view why) noexcept;

struct Patience {
  std::chrono::milliseconds most;
  std::stop_token hurry;  // asks for an end within kGrace
};
constexpr std::chrono::milliseconds kGrace{5'000};
// The files of ranks 1 to ranks - 1, in the order of ranks, as soon as all parts are there; removes
// what said so. Throws IoError that names the ranks whose part is missing, CommunicationError that
// names one whose part failed, with its reason.
std::vector<ManifestFile> collect_parts(const std::string& folder, int ranks,
                                        const Patience& patience);

// ".writing_<name>_<launch>_<attempt>" beside `path`.
std::string temporary_folder(const std::string& path, std::uint64_t launch_id,
                             std::int64_t attempt);
// Removes temporary folders beside `path` that other launches left.
void remove_abandoned(const std::string& path, std::uint64_t launch_id);
// Gives the folder its name; an older one of that name goes.
void put_in_place(const std::string& temporary, const std::string& path);

}  // namespace fovea::train
