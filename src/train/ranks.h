#pragma once
// The processes of one run, as training and evaluation need them.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dist/communicator.h"
#include "dist/session.h"
#include "train/run_config.h"

namespace fovea::train {

struct Ranks {
  std::shared_ptr<dist::Session> session;      // messages of the host
  std::shared_ptr<dist::Communicator> all;     // tensors
  std::shared_ptr<dist::Communicator> beside;  // the same, for use beside the backward pass
  int local_size = 1;                          // of them on this machine

  int rank() const { return all->rank(); }
  int size() const { return all->size(); }
  bool is_first() const { return rank() == 0; }
  // What rank 0 says, on every rank. All ranks call it.
  std::string from_first(const std::string& mine) const;
};

Ranks alone();
// Rank 0 of `size`, on meta.
Ranks imagined(int size);
// Waits for all ranks of the run. on_lost: see dist::SessionOptions::on_failure. Throws
// CommunicationError.
Ranks join_ranks(const dist::World& world, Device device, const RunConfig& config,
                 std::function<void(ExitCode, const std::string&)> on_lost);

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
