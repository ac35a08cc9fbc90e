#include "train/micro_batch.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "config/yaml.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/dry_run.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

// The largest divisor of the global batch that leaves a micro-batch for every rank.
std::int64_t largest_share(std::int64_t global, int ranks) {
  std::int64_t out = std::max<std::int64_t>(1, global / ranks);
  while (global % out != 0)
    --out;
  return out;
}

// The number behind "MemAvailable:" of /proc/meminfo, in bytes.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    std::istringstream rest(line.substr(line.find(':') + 1));
    std::size_t kib = 0;
    return rest >> kib ? kib * 1024 : kUnknown;
  }
  return kUnknown;
}

// A control group's file of one number; "max" and a file that is not there are no limit.
std::size_t number_in(const char* path) {
  std::ifstream file(path);
  std::size_t bytes = 0;
  return file >> bytes ? bytes : kUnknown;
}

// What a container may still take.
std::size_t container_memory() {
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max"),
                    used = number_in("/sys/fs/cgroup/memory.current");
  return limit == kUnknown || used == kUnknown ? kUnknown : limit - std::min(limit, used);
}

std::string bytes_text(std::size_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

RunConfig decided(const RunConfig& config, std::int64_t sequences, std::size_t memory) {
  log::info(cat("train.micro_batch_size: auto is ", sequences, ", the most that fit into ",
                static_cast<int>(kFillable * 100), " % of ", bytes_text(memory)));
  return with_micro_batch(config, sequences);
}

// The checkpoint's number, where the ranks can share its micro-batches; else 0.
std::int64_t kept(const RunConfig& config, int ranks, const std::string& config_before) {
  if (config_before.empty()) return 0;
  const RunConfig then = RunConfig::from(config::parse(config_before, "state.json"));
  const std::int64_t micro = then.train.micro_batch_size;
  if (config.train.global_batch_size % (micro * ranks) == 0) return micro;
  log::warn(cat("train.micro_batch_size was ", micro, ", which ", ranks,
                " processes cannot share: another one makes the same sums in another order, so the "
                "last bits will differ"));
  return 0;
}

}  // namespace

std::int64_t fitting_micro_batch(const RunConfig& config, int ranks, std::size_t memory) {
  const auto most = static_cast<std::size_t>(kFillable * static_cast<double>(memory));
  std::size_t least = kUnknown;
  std::int64_t least_size = 0;
  for (std::int64_t size = largest_share(config.train.global_batch_size, ranks);; size /= 2) {
    const std::size_t peak = dry_run(with_micro_batch(config, size), ranks).memory.total();
    if (peak <= most) return size;
    if (peak < least) {
      least = peak;
      least_size = size;
    }
    if (size % 2 != 0) break;
  }
  throw OutOfMemory(cat("train.micro_batch_size: auto: none fits; the least is ", bytes_text(least),
                        ", with ", least_size, " sequences at once, but there are ",
                        bytes_text(memory), ", of which ", static_cast<int>(kFillable * 100),
                        " % may be filled; a smaller data.seq_len, train.recompute: true, or "
                        "distributed.zero: 1 on several processes, need less"));
}

std::size_t usable_memory(Device device, int local_size) {
  if (device.is_cuda()) return cuda::device_info(device.index).memory;
  const std::size_t here = std::min(available_memory(), container_memory());
  if (here == kUnknown) {
    throw DeviceError(
        "train.micro_batch_size: auto: this machine does not tell how much memory is available; "
        "give a number");
  }
  return here / static_cast<std::size_t>(std::max(1, local_size));
}

RunConfig with_fitting_micro_batch(const RunConfig& config, const Ranks& ranks, Device device,
                                   const std::string& config_before) {
  if (!config.train.micro_batch_auto) return config;
  if (const std::int64_t micro = kept(config, ranks.size(), config_before); micro > 0)
    return with_micro_batch(config, micro);
  std::size_t least = kUnknown;
  for (const std::string& mine :
       ranks.session->gather(cat(usable_memory(device, ranks.local_size)))) {
    least = std::min(least, static_cast<std::size_t>(std::stoull(mine)));
  }
  const std::string size = ranks.from_first(
      ranks.is_first() ? cat(fitting_micro_batch(config, ranks.size(), least)) : std::string());
  return decided(config, std::stoll(size), least);
}

RunConfig with_fitting_micro_batch(const RunConfig& config, int ranks) {
  if (!config.train.micro_batch_auto) return config;
  const std::size_t memory = usable_memory(device_of(config.train), ranks);
  return decided(config, fitting_micro_batch(config, ranks, memory), memory);
}

}  // namespace fovea::train
