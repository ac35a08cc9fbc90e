#include "train/checkpoint_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::train {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kWriting = ".writing_";

// ".part_00002" of rank 1, as its files are numbered.
std::string note(const std::string& folder, const char* kind, int rank) {
  char number[16];
  std::snprintf(number, sizeof number, "%05d", rank + 1);
  return cat(folder, "/.", kind, "_", number);
}

// Whole at once: it may be read as soon as it is seen, and its folder put in place and renamed. So
// what the folder lists is on the disk before, and nothing is done with the folder afterwards.
void leave_note(const std::string& path, std::string_view text) {
  const std::string unfinished = cat(path, ".tmp");
  write_file_synced(unfinished, text);
  sync_folder(fs::path(path).parent_path().string());
  fs::rename(unfinished, path);
}

std::string names_of(const std::vector<int>& ranks) {
  std::vector<std::string> out;
  out.reserve(ranks.size());
  for (const int rank : ranks)
    out.push_back(cat(rank));
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(out, ", "));
}

// Of the ranks, those whose part is not there yet. Throws CommunicationError if one has failed:
// what befell it that rank itself knows better.
std::vector<int> still_missing(const std::string& folder, const std::vector<int>& ranks) {
  std::vector<int> out;
  for (const int rank : ranks) {
    if (fs::exists(note(folder, "part", rank))) continue;
    if (const std::string failed = note(folder, "failed", rank); fs::exists(failed))
      throw CommunicationError(cat("rank ", rank, ": ", read_file(failed)));
    out.push_back(rank);
  }
  return out;
}

}  // namespace

ManifestFile write_tensors(const std::string& folder, const std::string& name,
                           std::span<const data::NamedTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  const std::string path = cat(folder, "/", name);
  ManifestFile out{name, 0, 0, {}};
  // Hashed from memory, so that the manifest knows what was meant and not what the disk made of it.
  for (const auto& [tensor_name, tensor] : tensors) {
    out.tensors.emplace_back(
        tensor_name, data::xxh3_64(tensor.view().data, static_cast<std::size_t>(tensor.bytes())));
  }
  data::write_safetensors(path, tensors, metadata);
  out.bytes = fs::file_size(path);
  out.xxh3 = data::xxh3_64_file(path);
  return out;
}

ManifestFile write_text(const std::string& folder, const std::string& name,
                        const std::string& text) {
  write_file_synced(cat(folder, "/", name), text);
  return {name, text.size(), data::xxh3_64(text), {}};
}

void leave_part(const std::string& folder, int rank, const std::vector<ManifestFile>& files) {
  leave_note(note(folder, "part", rank), manifest_json(files));
}

void leave_failure(const std::string& folder, int rank, std::string_view why) noexcept {
  try {
    leave_note(note(folder, "failed", rank), why);
  } catch (const std::exception&) {
    // A disk too full for a line: rank 0 will miss the part, and this rank throws what happened.
  }
}

std::vector<ManifestFile> collect_parts(const std::string& folder, int ranks,
                                        const Patience& patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  constexpr std::chrono::milliseconds kShortest{1}, kLongest{100};
  Clock::time_point end = begin + patience.most;
  bool hurried = false;
  std::vector<int> missing;
  for (int rank = 1; rank < ranks; ++rank)
    missing.push_back(rank);
  for (auto pause = kShortest; !(missing = still_missing(folder, missing)).empty();) {
    const Clock::time_point now = Clock::now();
    if (!hurried && patience.hurry.stop_requested()) {
      hurried = true;
      end = std::min(end, now + kGrace);
    }
    if (now >= end) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - begin);
      throw IoError(cat("after ", waited.count(), " seconds the part of ", names_of(missing),
                        " is missing in ", folder,
                        ": all ranks must reach the run folder on one file system"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongest);
  }
  std::vector<ManifestFile> out;
  for (int rank = 1; rank < ranks; ++rank) {
    const std::string part = note(folder, "part", rank);
    for (ManifestFile& file : parse_manifest(read_file(part), part))
      out.push_back(std::move(file));
    fs::remove(part);
  }
  return out;
}

std::string temporary_folder(const std::string& path, std::uint64_t launch_id,
                             std::int64_t attempt) {
  const fs::path target(path);
  return (target.parent_path() /
          cat(kWriting, target.filename().string(), "_", data::hash_hex(launch_id), "_", attempt))
      .string();
}

void remove_abandoned(const std::string& path, std::uint64_t launch_id) {
  const std::string own = cat("_", data::hash_hex(launch_id), "_");
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(path).parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kWriting) && name.find(own) == std::string::npos &&
        fs::is_directory(entry.symlink_status(ignored)))
      found.push_back(entry.path());
  }
  for (const fs::path& folder : found)
    fs::remove_all(folder, ignored);
}

void put_in_place(const std::string& temporary, const std::string& path) {
  const fs::path target(path);
  const std::string aside =
      (target.parent_path() / cat(".deleting_", target.filename().string())).string();
  std::error_code ignored;  // what is left goes at the next start of the run
  const bool replaces = fs::exists(target);
  if (replaces) {
    fs::remove_all(aside);
    rename_over(path, aside);
  }
  try {
    rename_over(temporary, path);
  } catch (const IoError&) {
    if (replaces) fs::rename(aside, path, ignored);
    throw;
  }
  fs::remove_all(aside, ignored);
}

}  // namespace fovea::train
