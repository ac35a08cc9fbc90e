#include "train/checkpoint_writer.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_moments.h"
#include "train/checkpoint_tensors.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<data::NamedTensor>;

const std::map<std::string, std::string> kFormat{{"format", "fovea"}};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::int64_t bytes_of(const Tensors& tensors) {
  std::int64_t out = 0;
  for (const data::NamedTensor& named : tensors)
    out += named.tensor.bytes();
  return out;
}

// The same tensors in host memory; those that lie there already are shared.
void bring_to_host(Stream& stream, Tensors& tensors) {
  for (data::NamedTensor& named : tensors) {
    if (named.tensor.device().is_cuda()) named.tensor = named.tensor.to(kCpu, stream);
  }
}

// Each element of the moments must be there once before the folder gets its name: ranks that
// disagree on who writes what would leave holes that nobody misses before a resume.
void require_all_moments(const optim::ParameterStore& store,
                         const std::vector<ManifestFile>& files) {
  std::vector<MomentName> names;
  for (const ManifestFile& file : files) {
    if (!is_optimizer_file(file.name)) continue;
    for (const auto& [name, hash] : file.tensors)
      names.push_back({name, file.name});
  }
  const MomentPlan plan = plan_moments(store.segments(), names);
  if (!plan.wrong.empty())
    throw CheckpointError(cat("the ranks' parts do not make a whole:", plan.wrong));
}

// Only it: where its parent is gone, a new one would hold what nobody finds.
void make_folder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty() && !fs::exists(parent))
    throw IoError(
        cat(parent.string(), ": is not there: it was removed, moved or replaced under this run"));
  fs::create_directory(path);
}

// A folder whose own parent is still there. Files go before their folder: it gets a moment.
bool was_taken_away(const std::string& folder) {
  constexpr int kLooks = 50;
  constexpr std::chrono::milliseconds kBetween{10};
  std::error_code ignored;
  for (int look = 0; look < kLooks; ++look) {
    if (!fs::exists(folder, ignored)) return fs::exists(fs::path(folder).parent_path(), ignored);
    std::this_thread::sleep_for(kBetween);
  }
  return false;
}

}  // namespace

// All that is written, independent of what training changes.
struct CheckpointWriter::Job {
  std::string path, temporary;
  std::vector<std::pair<std::string, std::string>> texts;  // before the tensors
  std::string state;                                       // behind them
  std::map<std::string, std::string> metadata;             // of the model's file
  Tensors model, moments;
  std::function<void()> committed;
};

CheckpointWriter::CheckpointWriter(Stream& stream, nn::Module& model,
                                   const optim::ParameterStore& store,
                                   const CheckpointWriterOptions& options)
    : stream_(stream), model_(model), store_(store), options_(options) {
  FOVEA_ASSERT(0 <= options_.rank && options_.rank < options_.ranks);
  range_ = options_.sharded
               ? optim::MomentRange{store_.moments_begin(), store_.moments_end()}
               : fair_share(store_, bytes_of(model_tensors(model_)), options_.rank, options_.ranks);
  if (!options_.async) return;
  snapshot_.emplace(stream_);
  const Job job = make_job({});
  snapshot_->reserve(job.model.size() + job.moments.size(),
                     static_cast<std::size_t>(bytes_of(job.model) + bytes_of(job.moments)));
}

CheckpointWriter::~CheckpointWriter() {
  thread_.request_stop();
  try {
    wait();
  } catch (const std::exception& e) {
    log::error(e.what());
  }
}

CheckpointWriter::Job CheckpointWriter::make_job(const std::string& path) const {
  Job out;
  out.path = path;
  out.temporary = temporary_folder(path, options_.launch_id, attempts_);
  out.moments = moment_tensors(store_, range_);
  if (options_.rank != 0) return out;
  out.model = model_tensors(model_);
  out.metadata = kFormat;
  for (const auto& [alias, target] : model_.aliases())
    out.metadata.emplace(cat("alias:", alias), target);
  return out;
}

void CheckpointWriter::save(const std::string& path, const RunState& state,
                            const std::string& config_json,
                            std::span<const data::TokenizerFile> tokenizer,
                            std::function<void()> committed) {
  const Stopwatch stopwatch;
  wait();
  Job job = make_job(path);
  ++attempts_;
  if (options_.rank == 0) {
    job.texts.emplace_back("config.json", config_json);
    for (const data::TokenizerFile& file : tokenizer)
      job.texts.emplace_back(file.name, file.bytes);
    job.state = state_json(state);
    job.committed = std::move(committed);
  }
  stall_ = written_ = 0;
  if (options_.async) {
    snapshot_->take({&job.model, &job.moments});
    running_ = true;
    thread_ = std::jthread([this, job = std::move(job)](const std::stop_token& hurry) mutable {
      try {
        write(job, hurry);
      } catch (...) {
        error_ = std::current_exception();
      }
      job = {};  // the snapshot's memory is free from here on
      running_ = false;
    });
  } else {
    bring_to_host(stream_, job.model);
    bring_to_host(stream_, job.moments);
    write(job, {});
  }
  stall_ = stopwatch.seconds();
}

void CheckpointWriter::write(const Job& job, const std::stop_token& hurry) {
  const Stopwatch stopwatch;
  const auto failed = [&](const std::string& why) {
    abandon(job, why);
    return cat(job.path, ": the checkpoint cannot be written: ", why);
  };
  try {
    make_folder(job.temporary);
    if (options_.rank == 0) {
      write_first(job, hurry);
    } else {
      leave_part(job.temporary, options_.rank, {write_moments(job)});
    }
  } catch (const fs::filesystem_error& e) {
    if (is_given_up(job)) return;
    throw IoError(failed(cat(e.path1().string(), ": ", e.code().message())));
  } catch (const IoError& e) {
    if (is_given_up(job)) return;
    throw IoError(failed(e.what()));
  } catch (const CommunicationError& e) {
    throw CommunicationError(failed(e.what()));
  } catch (const CheckpointError& e) {
    throw CheckpointError(failed(e.what()));
  } catch (const std::exception& e) {
    abandon(job, e.what());
    throw;
  }
  written_ = stopwatch.seconds();
  if (job.committed) job.committed();
}

ManifestFile CheckpointWriter::write_moments(const Job& job) const {
  return write_tensors(job.temporary, optimizer_file(options_.rank, options_.ranks), job.moments,
                       kFormat);
}

void CheckpointWriter::write_first(const Job& job, const std::stop_token& hurry) const {
  const std::string& folder = job.temporary;
  remove_abandoned(job.path, options_.launch_id);
  std::vector<ManifestFile> files;
  for (const auto& [name, text] : job.texts)
    files.push_back(write_text(folder, name, text));
  files.push_back(write_tensors(folder, "model.safetensors", job.model, job.metadata));
  files.push_back(write_moments(job));
  const ManifestFile state = write_text(folder, "state.json", job.state);
  for (ManifestFile& file : collect_parts(folder, options_.ranks, {options_.patience, hurry}))
    files.push_back(std::move(file));
  files.push_back(state);
  require_all_moments(store_, files);
  write_file_synced(cat(folder, "/", kManifestName), manifest_json(files));
  sync_folder(folder);
  put_in_place(folder, job.path);
}

// Rank 0 knows why, and ends all ranks with that; what this one has to say might come first.
bool CheckpointWriter::is_given_up(const Job& job) const {
  if (options_.rank == 0 || !was_taken_away(job.temporary)) return false;
  log::warn(cat(job.path, ": rank 0 has given this checkpoint up, and will say why"));
  return true;
}

void CheckpointWriter::abandon(const Job& job, const std::string& why) const noexcept {
  std::error_code ignored;
  if (options_.rank == 0) {
    fs::remove_all(job.temporary, ignored);
  } else {
    leave_failure(job.temporary, options_.rank, why);
  }
}

bool CheckpointWriter::poll() {
  if (running_) return false;
  wait();
  return true;
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace fovea::train
