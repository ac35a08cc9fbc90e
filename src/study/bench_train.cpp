#include "study/bench_train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <unistd.h>

#include "core/cuda_runtime.h"
#include "core/isa.h"
#include "core/text.h"
#include "study/bench_task.h"
#include "study/rates.h"
#include "study/timing.h"
#include "train/trainer.h"

namespace fovea::study {

namespace {

// Steps until everything is planned, captured and replayed.
constexpr std::int64_t kWarmSteps = 8;

std::vector<std::pair<std::string, std::size_t>> peaks(const train::Trainer& trainer,
                                                       Device device) {
  std::map<std::string, std::size_t> sums;
  for (const MemoryStats& stats :
       {persistent_allocator(device).stats(), trainer.activation_memory()}) {
    for (const TagBytes& tag : stats.by_tag)
      sums[tag.tag] += tag.at_peak;
  }
  std::vector<std::pair<std::string, std::size_t>> out;
  for (const auto& [tag, bytes] : sums) {
    if (bytes > 0) out.emplace_back(tag, bytes);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string why_no_graph(const train::Trainer& trainer, Device device, bool allowed) {
  if (!device.is_cuda()) return "there are none on the cpu";
  if (!allowed) return "not asked for";
  std::string why = trainer.micro_graph().refused();
  if (why.empty()) why = trainer.last_graph().refused();
  if (why.empty()) why = trainer.update_graph().refused();
  if (why.empty() && trainer.update_graph().replays() == 0) why = "too few steps";
  return why;
}

// Ranks must make equally many steps, so their number is agreed on. The slowest rank counts.
Timing time_together(train::Trainer& trainer, double seconds,
                     const std::function<void()>& before_end) {
  using Clock = std::chrono::steady_clock;
  // A group ends with an empty pipeline, which costs part of a step: groups are long.
  constexpr int kGroups = 3, kFewest = 16;
  dist::Session& session = *trainer.ranks().session;
  const auto steps = [&](std::int64_t n) {
    session.barrier();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < n; ++i)
      trainer.advance();
    trainer.flush();
    trainer.stream().synchronize();
    const double own = std::chrono::duration<double>(Clock::now() - start).count();
    double slowest = 0;
    for (const std::string& each : session.gather(cat(own)))
      slowest = std::max(slowest, std::stod(each));
    return slowest / static_cast<double>(n);
  };
  Timing out;
  out.warm_up = 2 * kWarmSteps;
  steps(kWarmSteps);
  const double estimate = steps(kWarmSteps);
  const std::int64_t group = std::max<std::int64_t>(
      kFewest, static_cast<std::int64_t>(std::ceil(seconds / kGroups / estimate)));
  std::vector<double> times;
  times.reserve(kGroups);
  for (int i = 0; i < kGroups; ++i)
    times.push_back(steps(group));
  before_end();
  std::sort(times.begin(), times.end());
  out.ms = times[kGroups / 2] * 1e3;
  out.pieces = kGroups * group;
  return out;
}

double in_gib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out.setf(std::ios::fixed);
  out.precision(digits);
  out << value;
  return out.str();
}

}  // namespace

double seconds_since_process_start() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text;
  double up = 0;
  if (!std::getline(stat, text) || !(uptime >> up)) return 0;
  // Behind the name in parentheses come the fields from the third on; the start is the 22nd.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    fields >> field;
  const double ticks = std::stod(field);
  return std::max(0.0, up - ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

TrainBench bench_train(const BenchShape& base, const BenchSettings& settings, double seconds) {
  return bench_train(base, settings, seconds, dist::World{});
}

TrainBench bench_train(const BenchShape& base, const BenchSettings& settings, double seconds,
                       const dist::World& world) {
  TrainBench out;
  out.shape = sized(base, settings);
  const train::RunConfig config = bench_config(out.shape, settings);
  const Device device = train::device_of(config.train, world.local_rank);
  const train::Ranks ranks = train::join_ranks(world, device, config, "fovea bench train", {});
  train::Trainer trainer(train::for_ranks(config, ranks.size()), device,
                         make_bench_task(out.shape, config), ranks);

  out.loss = trainer.step().loss;
  out.first_loss_seconds = seconds_since_process_start();
  const GpuWatch watch(device);
  const Timing timing = ranks.size() > 1
                            ? time_together(trainer, seconds, [&] { out.gpu = watch.now(); })
                            : time_on(trainer.stream(), [&] { trainer.advance(); },
                                      {.warm_seconds = device.is_cuda() ? 0.6 : 0,
                                       .seconds = seconds,
                                       .warm_least = device.is_cuda() ? kWarmSteps : 1,
                                       .group_seconds = 0.1,
                                       .before_end = [&] { out.gpu = watch.now(); }});
  trainer.flush();
  ranks.session->leave();

  out.precision = name_of(config.train.precision);
  out.attention = config.model.attention.front().kind;
  out.device = device.is_cuda() ? cuda::device_info(device.index).name : cpu_name();
  out.reproducible = config.distributed.reproducible;
  out.ranks = ranks.size();
  out.micro_batches = trainer.feed().global_micro_batches();
  out.parameters = trainer.store().parameters();
  out.ms = timing.ms;
  out.steps = timing.pieces;
  out.warm_up_steps = timing.warm_up + 1;
  out.tokens_per_second =
      static_cast<double>(out.shape.batch * ranks.size() * out.shape.seq) / timing.ms * 1e3;
  const double promised = device.is_cuda() ? promised_rate(out.device) : 0;
  if (promised > 0) out.mfu = bench_flops(out.shape, out.parameters) / timing.ms * 1e3 / promised;
  if (out.shape.h200_floor_ms > 0 && out.device.find("H200") != std::string::npos &&
      config.train.precision == Precision::bf16_mixed)
    out.floor_ms = out.shape.h200_floor_ms;
  out.peak_bytes = trainer.memory().total();
  if (device.is_cuda()) {
    const cuda::DeviceInfo info = cuda::device_info(device.index);
    out.device_bytes = info.memory - info.free_memory;
  }
  out.peak_by_tag = peaks(trainer, device);
  out.graph_replays = trainer.micro_graph().replays() + trainer.last_graph().replays() +
                      trainer.update_graph().replays();
  out.no_graph = why_no_graph(trainer, device, config.train.graphs);
  return out;
}

void add_to(train::JsonObject& record, const TrainBench& result) {
  const auto optional = [&](std::string_view key, const std::optional<double>& value) {
    record.raw(key, value ? train::json_number(*value) : "null");
  };
  record.add("shape", result.shape.name).add("batch", result.shape.batch);
  record.add("seq", result.shape.seq).add("micro_batches", result.micro_batches);
  record.add("precision", result.precision).add("attention", result.attention);
  record.add("ranks", result.ranks);
  record.add("reproducible", result.reproducible).add("device", result.device);
  record.add("parameters", result.parameters).add("ms", result.ms);
  record.add("tokens_per_second", result.tokens_per_second);
  optional("mfu", result.mfu);
  optional("floor_ms", result.floor_ms);
  record.add("steps", result.steps).add("warm_up_steps", result.warm_up_steps);
  record.add("loss", result.loss).add("first_loss_seconds", result.first_loss_seconds);
  record.add("peak_bytes", result.peak_bytes).add("device_bytes", result.device_bytes);
  train::JsonObject tags;
  for (const auto& [tag, bytes] : result.peak_by_tag)
    tags.add(tag, bytes);
  record.raw("peak_by_tag", tags.str());
  record.add("graphs", result.graph_replays).add("no_graph", result.no_graph);
  add_to(record, result.gpu);
}

std::string text_of(const TrainBench& result) {
  const BenchShape& shape = result.shape;
  std::string out =
      cat(shape.name, ": ", shape.encoder ? "encoder" : "decoder", " of ", shape.layers,
          " layers, width ", shape.width, ", ", human_count(static_cast<double>(result.parameters)),
          " parameters; batch ", shape.batch,
          result.micro_batches > 1 ? cat(" in ", result.micro_batches, " micro-batches") : "",
          ", length ", shape.seq, ", ", result.precision, ", attention ", result.attention, "\n",
          "device     ", result.device,
          result.ranks > 1 ? cat(" x ", result.ranks, ", a batch each") : "", "\n", "step       ",
          fixed(result.ms, 3), " ms, ", human_count(result.tokens_per_second), " tokens/s");
  if (result.mfu) out += cat(", MFU ", fixed(100 * *result.mfu, 1), "%");
  if (result.floor_ms) out += cat("; floor ", fixed(*result.floor_ms, 1), " ms");
  out += cat("\ntimed      ", result.steps, " steps behind ", result.warm_up_steps, " of warm-up; ",
             result.reproducible ? "reproducible" : "fast", " accumulation\n", "memory     ",
             fixed(in_gib(result.peak_bytes), 2), " GiB at the peak");
  if (result.device_bytes > 0)
    out += cat(" (", fixed(in_gib(result.device_bytes), 2), " GiB in use on the device)");
  for (std::size_t i = 0; i < std::min<std::size_t>(4, result.peak_by_tag.size()); ++i) {
    const auto& [tag, bytes] = result.peak_by_tag[i];
    out += cat(i == 0 ? ": " : ", ", tag, " ", human_bytes(static_cast<double>(bytes)));
  }
  out += cat("\ngraphs     ", result.no_graph.empty() ? cat(result.graph_replays, " replays")
                                                      : cat("none: ", result.no_graph));
  if (result.gpu.clock_mhz || result.gpu.power_w) {
    out += cat("\nclock      ", result.gpu.clock_mhz.value_or(0), " MHz, ",
               fixed(result.gpu.power_w.value_or(0), 0), " W");
  } else if (!result.gpu.why.empty()) {
    out += cat("\nclock      unknown: ", result.gpu.why);
  }
  out += cat("\nfirst loss ", fixed(result.loss, 4), " after ", fixed(result.first_loss_seconds, 2),
             " s of the process");
  return out;
}

}  // namespace fovea::study
