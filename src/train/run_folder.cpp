#include "train/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"

namespace fovea::train {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr int kLooks = 20;
constexpr std::chrono::milliseconds kBetweenLooks{50};

int lock_folder(const std::string& path) {
  const std::string file = cat(path, "/.lock");
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw IoError(cat(file, ": cannot be opened: ", std::generic_category().message(errno)));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int code = errno;
  ::close(descriptor);
  if (code == EWOULDBLOCK) {
    throw ConfigError(cat(
        path, ": another process trains in this folder: wait for it, or choose another out_dir"));
  }
  throw IoError(cat(file, ": cannot be locked: ", std::generic_category().message(code)));
}

// What a process that failed or was killed was writing or deleting. Whether there was any.
bool remove_leftovers(const std::string& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".writing_") || name.starts_with(".deleting_"))
      found.push_back(entry.path());
  }
  for (const fs::path& path : found)
    fs::remove_all(path);
  return !found.empty();
}

// Out of the way in one step, then gone: a kill in between leaves no half checkpoint of that name.
void remove_checkpoint(const std::string& path) {
  const fs::path from(path);
  const fs::path aside = from.parent_path() / cat(".deleting_", from.filename().string());
  rename_over(path, aside.string());
  fs::remove_all(aside);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

std::vector<CheckpointName> checkpoints_in(const std::string& run_folder) {
  std::vector<CheckpointName> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cat(run_folder, "/ckpt"), error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with(kStepPrefix)) continue;
    const auto [end, bad] =
        std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
    if (bad != std::errc() || end != name.data() + name.size() || name != checkpoint_name(step))
      continue;
    out.push_back({step, entry.path().string()});
  }
  std::sort(out.begin(), out.end(),
            [](const CheckpointName& a, const CheckpointName& b) { return a.step < b.step; });
  return out;
}

bool is_in_use(const std::string& run_folder) {
  const std::string file = cat(run_folder, "/.lock");
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw IoError(cat(file, ": cannot be opened: ", std::generic_category().message(errno)));
  }
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

RunFolder::RunFolder(const std::string& path, bool owner) : path_(path) {
  try {
    fs::create_directories(file("logs"));
    fs::create_directories(file("ckpt"));
    if (!owner) return;
    lock_ = lock_folder(path_);
    remove_leftovers(file("ckpt"));
    remove_leftovers(path_);
  } catch (const fs::filesystem_error& e) {
    if (lock_ >= 0) ::close(lock_);
    throw IoError(cat(path_, ": the run folder cannot be written: ", e.code().message()));
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string RunFolder::file(std::string_view name) const {
  return cat(path_, "/", name);
}

std::string RunFolder::checkpoint(std::int64_t step) const {
  return cat(path_, "/ckpt/", checkpoint_name(step));
}

std::string RunFolder::log_of(int rank) const {
  const std::string digits = cat(rank);
  return cat(path_, "/logs/rank_", std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0'),
             digits, ".log");
}

void RunFolder::require_there() const {
  struct stat ours {
  }, there{};
  if (lock_ < 0 || ::fstat(lock_, &ours) != 0) return;
  const std::string lock = file(".lock");
  if (::stat(lock.c_str(), &there) == 0 && there.st_dev == ours.st_dev &&
      there.st_ino == ours.st_ino)
    return;
  throw IoError(cat(path_,
                    ": the run folder was removed, moved or replaced under this run, whose "
                    "results would be lost: put it back or choose another out_dir, and "
                    "start the run again"));
}

void RunFolder::clear_up() const noexcept {
  if (lock_ < 0) return;
  bool found = true;
  for (int look = 0; look < kLooks && (found || look < 2); ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    try {
      require_there();  // else it may be another run's
      found = remove_leftovers(file("ckpt"));
      found = remove_leftovers(path_) || found;
    } catch (const fs::filesystem_error&) {
      found = true;  // somebody wrote there meanwhile
    } catch (const Error&) {
      return;
    }
  }
}

void RunFolder::write(std::string_view name, std::string_view text) const {
  require_there();
  const std::string temporary = file(cat(".writing_", name));
  write_file_synced(temporary, text);
  rename_over(temporary, file(name));
}

void RunFolder::set_latest(std::int64_t step) const {
  const std::string temporary = file("ckpt/.writing_latest"), link = file("ckpt/latest");
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(checkpoint_name(step), temporary, error);
  if (error) {
    log::warn_once(
        cat(link, ": not written, the file system has no symbolic links (", error.message(), ")"));
    return;
  }
  rename_over(temporary, link);
}

void RunFolder::prune(std::int64_t keep_last, std::int64_t keep_every,
                      std::int64_t best_step) const {
  const std::vector<CheckpointName> all = checkpoints_in(path_);
  const auto newest = static_cast<std::int64_t>(all.size()) - std::max<std::int64_t>(1, keep_last);
  for (std::int64_t i = 0; i < newest; ++i) {
    const CheckpointName& name = all[static_cast<std::size_t>(i)];
    if (name.step == best_step || (keep_every > 0 && name.step % keep_every == 0)) continue;
    try {
      remove_checkpoint(name.path);
    } catch (const fs::filesystem_error& e) {
      throw IoError(cat(name.path, ": the checkpoint cannot be deleted: ", e.code().message()));
    }
  }
}

int RunFolder::discard_beyond(std::int64_t step) const {
  int count = 0;
  for (const CheckpointName& name : checkpoints_in(path_)) {
    if (name.step <= step) continue;
    const std::string aside = file(cat("ckpt/discarded_", checkpoint_name(name.step)));
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    rename_over(name.path, aside);
    ++count;
  }
  return count;
}

}  // namespace fovea::train
