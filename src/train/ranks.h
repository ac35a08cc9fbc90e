#pragma once
// The processes of one run, as training and evaluation need them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/error.h"
#include "dist/communicator.h"
#include "dist/session.h"
#include "train/run_config.h"

namespace fovea::train {

struct Ranks {
  std::shared_ptr<dist::Session> session;      // messages of the host
  std::shared_ptr<dist::Communicator> all;     // tensors; null where none are exchanged
  std::shared_ptr<dist::Communicator> beside;  // the same, for use beside the backward pass
  int local_size = 1;                          // of them on this machine

  int rank() const { return all ? all->rank() : session->rank(); }
  int size() const { return all ? all->size() : session->size(); }
  bool is_first() const { return rank() == 0; }
  // What rank 0 says, on every rank. All ranks call it.
  std::string from_first(const std::string& mine) const;
};

Ranks alone();
// Rank 0 of `size`, on meta.
Ranks imagined(int size);
// Waits for all ranks of the run. command, on_lost, stop: see dist::SessionOptions. Throws what
// dist::Session::join() throws, and ConfigError where ranks have other settings.
Ranks join_ranks(const dist::World& world, Device device, const RunConfig& config,
                 const std::string& command,
                 std::function<void(ExitCode, const std::string&)> on_lost,
                 std::function<bool()> stop = {});
// The same for ranks that exchange no tensors, which thus need no connections to each other.
// `options`: what else has to be the same on all of them, by name.
Ranks join_for_messages(const dist::World& world, const RunConfig& config,
                        const std::string& command,
                        const std::map<std::string, std::string>& options);
// Instead of these, when this rank cannot take part: the others end at once with the error's code
// and text. `folder`: the run's, or empty if that is not known yet.
void decline_ranks(const dist::World& world, const std::string& folder, const std::string& command,
                   const Error& why, std::function<bool()> stop = {}) noexcept;

// The configuration for that many ranks: train.micro_batch_size, where it was not given, becomes a
// rank's share of the global batch. Throws ConfigError where the batch cannot be divided as
// distributed.* asks.
RunConfig for_ranks(const RunConfig& config, int ranks);
// The same for a run that goes on: `config_before` is its checkpoint's (YAML), or empty. Where
// train.micro_batch_size is not given it stays what it was, so that another number of ranks makes
// the same bits.
RunConfig for_ranks(const RunConfig& config, int ranks, const std::string& config_before);

// The micro-batches [first, last) of a rank, of `all`.
struct MicroRange {
  std::int64_t first = 0, last = 0;
};
MicroRange micro_range(std::int64_t all, int rank, int ranks);

}  // namespace fovea::train
