#pragma once
// Writes a run's checkpoints: all ranks together, behind training if asked to.
//
// All ranks write into one folder with a temporary name: rank 0 the model, the texts and its share
// of the moments, the others theirs. Each says by a small file that its part is on the disk; rank 0
// waits for all parts, writes the one manifest and gives the folder its name. Until then there is
// no checkpoint of that name, whoever dies.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>

#include "core/stream.h"
#include "nn/module.h"
#include "optim/parameter_store.h"
#include "train/checkpoint_tokenizer.h"
#include "train/manifest.h"
#include "train/run_state.h"
#include "train/snapshot.h"

namespace fovea::train {

struct CheckpointWriterOptions {
  int rank = 0, ranks = 1;
  // Of this start of the run, the same on all ranks and another at the next start: what temporary
  // folders are told apart by.
  std::uint64_t launch_id = 0;
  // Copy the state, and write while training goes on.
  bool async = false;
  // Every rank's store holds other moments (ZeRO), and it writes these. Else all hold all, and
  // share the writing.
  bool sharded = false;
  // How long rank 0 waits for the other ranks' parts once its own is written.
  std::chrono::milliseconds patience{600'000};
};

// Seconds of the newest save: how long save() kept its caller, and how long the writing took until
// the checkpoint had its name (on ranks other than 0: until the part was there; 0: not ended yet).
struct SaveTimes {
  double stall = 0, written = 0;
};

// All functions are called by one thread. What befalls the writing is thrown once by the next
// save(), poll() or wait() of the rank where it happened: IoError, CheckpointError (rank 0 names
// the ranks whose part is missing), or CommunicationError for what befell another rank. There is no
// checkpoint of that name then, and older ones are as they were.
class CheckpointWriter {
 public:
  // With `async` the memory for the copies is taken now: of the stores' state that this rank
  // writes. Stream, model and store must outlive the writer. Throws OutOfMemory, DeviceError.
  CheckpointWriter(Stream& stream, nn::Module& model, const optim::ParameterStore& store,
                   const CheckpointWriterOptions& options);
  // Ends what is under way; rank 0 waits for the other ranks a few seconds only. Errors go to the
  // log.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes the checkpoint `path`, replacing an older one of that name, once an earlier save has
  // ended. Its parent folder belongs to this run: rank 0 removes there what other starts of the run
  // left under temporary names. Called by all ranks in the same order with equal paths; the texts
  // and `committed` count on rank 0 only. `tokenizer`: further files, none of which has the name of
  // one that checkpoint.h lists.
  // With `async` it returns when the state is copied; masters, moments and buffers may change then.
  // `committed` is called when the checkpoint has its name, by the writing thread (so it must touch
  // nothing that training touches without a lock), and may throw.
  void save(const std::string& path, const RunState& state, const std::string& config_json,
            std::span<const data::TokenizerFile> tokenizer = {},
            std::function<void()> committed = {});
  // Whether nothing is under way; does not wait.
  bool poll();
  // Until nothing is under way on this rank. That of the others does not show here: after a
  // barrier behind wait(), the checkpoint has its name on all.
  void wait();
  SaveTimes times() const { return {stall_, written_}; }  // also called by `committed`

 private:
  struct Job;
  Job make_job(const std::string& path) const;
  void write(const Job& job, const std::stop_token& hurry);
  void write_first(const Job& job, const std::stop_token& hurry) const;
  ManifestFile write_moments(const Job& job) const;
  bool is_given_up(const Job& job) const;
  void abandon(const Job& job, const std::string& why) const noexcept;

  Stream& stream_;
  nn::Module& model_;
  const optim::ParameterStore& store_;
  CheckpointWriterOptions options_;
  optim::MomentRange range_;
  std::int64_t attempts_ = 0;
  std::optional<Snapshot> snapshot_;
  std::atomic<double> stall_{0}, written_{0};
  std::atomic<bool> running_{false};
  std::exception_ptr error_;  // of the thread; read once it is joined
  std::jthread thread_;
};

}  // namespace fovea::train
