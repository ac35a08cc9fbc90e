// fovea bench comm: how fast the ranks of a run exchange tensors.

#include "study/bench_comm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "core/error.h"
#include "core/text.h"
#include "dist/world.h"
#include "train/trainer.h"
#include "verbs/verbs.h"
#include "world_options.h"

namespace fovea::apps {
namespace {

constexpr double kMostMebibytes = 65536;

// "1,8,0.5" in bytes, whole floats.
std::vector<std::int64_t> sizes_of(const std::string& text) {
  std::vector<std::int64_t> out;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream number(item);
    double mebibytes = 0;
    const bool whole = (number >> mebibytes) && number.eof();
    if (!whole || !(mebibytes > 0) || mebibytes > kMostMebibytes)
      throw ConfigError(cat("fovea bench comm: --mib is '", text, "', but '", item,
                            "' is no number of MiB in (0, ", kMostMebibytes, "]"));
    out.push_back(4 * std::max<std::int64_t>(1, std::llround(mebibytes * (1 << 18))));
  }
  if (out.empty()) throw ConfigError("fovea bench comm: --mib names no size");
  return out;
}

train::DeviceChoice choice_of(const std::string& device) {
  return device == "cpu"    ? train::DeviceChoice::cpu
         : device == "cuda" ? train::DeviceChoice::cuda
                            : train::DeviceChoice::automatic;
}

}  // namespace

ExitCode bench_comm(const Arguments& arguments, Output& out) {
  std::string device = "auto", mebibytes = "1,8,64,256";
  study::CommOptions options;
  WorldOptions world;
  CommandLine line(
      "bench comm",
      "Times what the processes of a run say to each other: all-reduce, the fixed tree "
      "and an exchange of two, beside what their link carries.");
  line.choice("--device", device, {"auto", "cpu", "cuda"}, "where the tensors are")
      .option("--mib", mebibytes, "sizes of a buffer (default: 1,8,64,256)")
      .option("--seconds", options.seconds, 0.001, 60,
              "of each operation and size, at least (default: 0.3)");
  world.declare(line);
  if (!line.parse(arguments, out)) return ExitCode::ok;
  world.check("fovea bench comm");
  options.bytes = sizes_of(mebibytes);
  if (world.processes() < 2) {
    throw ConfigError(
        "fovea bench comm: needs several processes: give --gpus N or --nproc N, or start it by "
        "torchrun, srun or mpirun");
  }
  if (!world.device().empty()) {
    if (device != "auto" && device != world.device())
      throw ConfigError(cat("fovea bench comm: --device ", device, " contradicts ",
                            device == "cpu" ? "--gpus" : "--nproc"));
    device = world.device();
  }
  if (world.launches()) {
    return world.launch({{"bench", "comm"}, arguments, {"--device", device}, {}, {}}, out);
  }
  train::TrainConfig config;
  config.device = choice_of(device);
  const dist::World here = dist::world_from_environment();
  const study::CommBench bench =
      study::bench_comm(here, train::device_of(config, here.local_rank), options);
  if (here.rank != 0) return ExitCode::ok;
  out.line(study::text_of(bench));
  study::add_to(out.record(), bench);
  return ExitCode::ok;
}

}  // namespace fovea::apps
