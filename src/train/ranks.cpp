#include "train/ranks.h"

#include <bit>
#include <chrono>

#include "config/yaml.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/rank_checks.h"

namespace fovea::train {

namespace {

// Of a GPU, for reductions that run beside products: more slow the products down, fewer the
// reduction (calibration.md 9).
constexpr int kBlocksBeside = 4;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

dist::SessionOptions session_options(const RunConfig& config, const std::string& command) {
  dist::SessionOptions out;
  out.command = command;
  out.folder = config.out_dir;
  out.lost_after = milliseconds_of(config.distributed.timeout);
  out.join_timeout = milliseconds_of(config.distributed.join_timeout);
  return out;
}

}  // namespace

std::string Ranks::from_first(const std::string& mine) const {
  if (size() == 1) return mine;
  return session->gather(is_first() ? mine : std::string()).front();
}

Ranks alone() {
  const std::shared_ptr<dist::Communicator> one = dist::solo();
  return {dist::Session::join({}, {}), one, one, 1};
}

Ranks imagined(int size) {
  if (size == 1) return alone();
  const std::shared_ptr<dist::Communicator> one = dist::imagined(size);
  return {dist::Session::join({}, {}), one, one, 1};
}

Ranks join_ranks(const dist::World& world, Device device, const RunConfig& config,
                 const std::string& command,
                 std::function<void(ExitCode, const std::string&)> on_lost,
                 std::function<bool()> stop) {
  if (!world.is_distributed()) return alone();
  dist::SessionOptions options = session_options(config, command);
  options.on_failure = std::move(on_lost);
  options.stop = std::move(stop);
  Ranks out;
  out.local_size = world.local_size;
  out.session = dist::Session::join(world, options);
  try {
    require_same_settings(out, config, {});
    if (device.is_cuda()) {
      out.all = dist::nccl(*out.session, device);
      out.beside = dist::nccl(*out.session, device, kBlocksBeside);
    } else {
      out.all = out.beside = dist::gloo(*out.session, options.join_timeout);
    }
  } catch (const Error& e) {
    out.session->fail(e.code(), e.what());
    throw;
  }
  return out;
}

Ranks join_for_messages(const dist::World& world, const RunConfig& config,
                        const std::string& command,
                        const std::map<std::string, std::string>& options) {
  if (!world.is_distributed()) return alone();
  Ranks out;
  out.local_size = world.local_size;
  out.session = dist::Session::join(world, session_options(config, command));
  try {
    require_same_settings(out, config, options);
  } catch (const Error& e) {
    out.session->fail(e.code(), e.what());
    throw;
  }
  return out;
}

void decline_ranks(const dist::World& world, const std::string& folder, const std::string& command,
                   const Error& why, std::function<bool()> stop) noexcept {
  dist::SessionOptions options;
  options.command = command;
  options.folder = folder;
  options.stop = std::move(stop);
  dist::Session::decline(world, options, why.code(), why.what());
}

RunConfig for_ranks(const RunConfig& config, int ranks) {
  if (ranks == 1) return config;
  const TrainConfig& t = config.train;
  RunConfig out = config;
  if (!t.micro_batch_given && t.global_batch_size % ranks == 0)
    out = with_micro_batch(config, t.global_batch_size / ranks);
  const std::int64_t micro = out.train.micro_batch_size, batches = t.global_batch_size / micro;
  const std::string batch = cat("a global batch of ", t.global_batch_size, " in micro-batches of ",
                                micro, " has ", batches);
  if (batches < ranks) {
    const std::int64_t share = t.global_batch_size / ranks;
    throw ConfigError(cat("train.micro_batch_size: ", batch, ", but there are ", ranks,
                          " processes, and each needs one: ",
                          share > 1    ? cat("lower it to ", share, " or less, or ")
                          : share == 1 ? std::string("lower it to 1, or ")
                                       : std::string("raise train.global_batch_size, or "),
                          "start at most ", share > 0 ? batches : t.global_batch_size));
  }
  const bool power = std::has_single_bit(static_cast<unsigned>(ranks));
  if (config.distributed.reproducible && (!power || batches % ranks != 0)) {
    throw ConfigError(cat(
        "distributed.reproducible: ", batch, ", which ", ranks,
        " processes cannot add in one fixed tree: their number must be a power of two that divides "
        "it. Choose another number, another train.micro_batch_size, or distributed.reproducible: "
        "false"));
  }
  if (config.distributed.zero > 0 && !power) {
    throw ConfigError(
        cat("distributed.zero: needs a power of two of processes, but there are ", ranks));
  }
  return out;
}

// Not given, a micro-batch is what the run had before, so that another number of ranks goes on with
// the same bits; else a rank's share.
RunConfig for_ranks(const RunConfig& config, int ranks, const std::string& config_before) {
  if (config.train.micro_batch_given || config_before.empty()) return for_ranks(config, ranks);
  const RunConfig then = RunConfig::of_checkpoint(config::parse(config_before, "state.json"));
  const std::int64_t micro = then.train.micro_batch_size;
  const std::int64_t batches = config.train.global_batch_size / micro;
  if (batches % ranks == 0) return for_ranks(with_micro_batch(config, micro), ranks);
  RunConfig out = for_ranks(config, ranks);
  log::warn(cat("train.micro_batch_size is ", out.train.micro_batch_size, ", but was ", micro,
                ", which ", ranks, " processes cannot share: the same sums in another order, so ",
                "the last bits will differ"));
  return out;
}

MicroRange micro_range(std::int64_t all, int rank, int ranks) {
  return {all * rank / ranks, all * (rank + 1) / ranks};
}

}  // namespace fovea::train
