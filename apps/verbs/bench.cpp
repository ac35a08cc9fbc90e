// fovea bench: how fast this machine computes, each time with its limit beside it.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command_line.h"
#include "core/cuda_runtime.h"
#include "core/file.h"
#include "core/isa.h"
#include "core/text.h"
#include "dist/world.h"
#include "study/bench_gemm.h"
#include "study/bench_op.h"
#include "study/bench_train.h"
#include "study/rates.h"
#include "train/trainer.h"
#include "verbs/verbs.h"
#include "world_options.h"

namespace fovea::apps {
namespace {

const std::vector<std::string> kDevices = {"auto", "cpu", "cuda"};

std::vector<std::string> shape_names() {
  std::vector<std::string> out;
  for (const study::BenchShape& shape : study::bench_shapes())
    out.emplace_back(shape.name);
  return out;
}

Device device_named(const std::string& name) {
  train::TrainConfig config;
  if (name == "cpu") config.device = train::DeviceChoice::cpu;
  if (name == "cuda") config.device = train::DeviceChoice::cuda;
  return train::device_of(config);
}

constexpr const char* kTableFolder = "configs/tuning";

std::string table_path(const std::string& gpu) {
  std::filesystem::create_directories(kTableFolder);
  return cat(kTableFolder, "/", train::tuning_file_name(gpu));
}

// What both `train` and `gemm` are told about the step.
struct StepOptions {
  std::string shape;
  int batch = 0, micro = 0, seq = 0;
  study::BenchSettings settings;

  void declare(CommandLine& line, const std::string& usual) {
    line.choice("--shape", shape, shape_names(), cat("the model; ", usual))
        .option("--batch", batch, 1, "sequences a step (default: the shape's)")
        .option("--micro", micro, 1, "sequences computed at once (default: all)")
        .option("--seq", seq, 1, "tokens of a sequence (default: the shape's)")
        .option("--precision", settings.precision,
                "as train.precision (default: bf16-mixed on a GPU, else fp32)")
        .option("--attention", settings.attention,
                "as model.attention: a kind, or {kind: short, dim: 32} (default: standard)");
  }
  const study::BenchSettings& resolved() {
    settings.batch = batch;
    settings.micro = micro;
    settings.seq = seq;
    return settings;
  }
};

ExitCode bench_train(const Arguments& arguments, Output& out) {
  StepOptions options;
  std::string compare = "reproducible";
  double seconds = 0;
  bool no_graphs = false;
  CommandLine line("bench train",
                   "Times whole training steps on random tokens: a fresh batch, forward, backward, "
                   "clipping and AdamW, hot.");
  options.declare(line, "gpt2-124m on a GPU, else small");
  line.option("--seconds", seconds, 0.01, 600,
              "of timed steps, at least (default: 2 on a GPU, else 1)")
      .choice("--device", options.settings.device, kDevices, "where to compute")
      .option("--threads", options.settings.threads, 1, "CPU threads (default: one a core)")
      .flag("--no-graphs", no_graphs, "launch every kernel of a step, as train.cuda_graphs: false")
      .choice("--compare", compare, {"reproducible", "fast", "both"},
              "how micro-batches are added up, as distributed.reproducible; both: one after the "
              "other")
      .option("--zero", options.settings.zero, 0, "as distributed.zero");
  WorldOptions several;
  several.declare(line);
  if (!line.parse(arguments, out)) return ExitCode::ok;
  several.check("fovea bench train");
  if (several.launches()) {
    if (compare == "both")
      throw ConfigError("fovea bench train: several processes are timed one way at a time");
    Arguments added;
    if (!several.device().empty()) added = {"--device", std::string(several.device())};
    return several.launch({{"bench", "train"}, arguments, added, {}, {}}, out);
  }
  const dist::World world = dist::world_from_environment();
  study::BenchSettings settings = options.resolved();
  settings.graphs = !no_graphs;
  settings.ranks = world.size;
  const bool gpu = device_named(settings.device).is_cuda();
  if (options.shape.empty()) options.shape = gpu ? "gpt2-124m" : "small";
  if (seconds == 0) seconds = gpu ? 2 : 1;
  const study::BenchShape& shape = study::bench_shape(options.shape);

  const auto time = [&](bool reproducible) {
    settings.reproducible = reproducible;
    study::TrainBench result = study::bench_train(shape, settings, seconds, world);
    if (world.rank == 0) out.line(study::text_of(result));
    return result;
  };
  if (compare != "both") {
    study::add_to(out.record(), time(compare == "reproducible"));
    return ExitCode::ok;
  }
  const study::TrainBench exact = time(true), fast = time(false);
  train::JsonObject records[2];
  study::add_to(records[0], exact);
  study::add_to(records[1], fast);
  out.record().raw("reproducible", records[0].str()).raw("fast", records[1].str());
  out.record().add("fast_speedup", exact.ms / fast.ms);
  out.line(
      cat("fast accumulation takes ", rounded(fast.ms / exact.ms, 4), " of the reproducible time"));
  return ExitCode::ok;
}

ExitCode bench_op(const Arguments& arguments, Output& out) {
  std::vector<std::string> names;
  std::string device = "auto";
  CommandLine line("bench op",
                   "Times kernels that move memory, and attention, at the sizes of GPT-2 124M (on "
                   "the CPU smaller ones), beside what a copy and a product reach on this device.");
  line.rest("NAME", names, "kernels (default: all)")
      .choice("--device", device, kDevices, "where to compute");
  if (!line.parse(arguments, out)) return ExitCode::ok;

  const Device on = device_named(device);
  Stream stream(on, train::threads_of({}));
  const study::Rates rates = study::measure_rates(stream);
  std::vector<study::OpTime> times;
  if (names.empty()) names.emplace_back();
  for (const std::string& name : names) {
    for (study::OpTime& time : study::bench_ops(stream, name, rates))
      times.push_back(std::move(time));
  }
  out.line(study::text_of(times));
  out.line(cat("copy ", rounded(rates.copy / 1e12, 3), " TB/s, product ",
               rounded(rates.product / 1e12, 3), " TFLOP/s", study::text_of(rates.gpu)));
  out.record().raw("ops", study::json_of(times)).add("copy_rate", rates.copy);
  out.record().add("product_rate", rates.product);
  out.record().add("device", on.is_cuda() ? cuda::device_info(on.index).name : cpu_name());
  return ExitCode::ok;
}

ExitCode bench_gemm(const Arguments& arguments, Output& out) {
  StepOptions step;
  study::ProductOptions options;
  std::string file;
  step.shape = "gpt2-124m";
  CommandLine line(
      "bench gemm",
      "Times every matrix product of one training step on a GPU: with the first answer "
      "of cuBLASLt's heuristic, and with --tune all of its candidates.");
  step.declare(line, "default: gpt2-124m");
  line.flag("--tune", options.tune, "time every candidate and put the winners into a table")
      .option("--seconds", options.seconds, 0.01, 10, "timed for each candidate (default: 0.25)")
      .option("--out", file, "the table (default: configs/tuning/<gpu>.yaml)");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  step.settings.device = "cuda";

  // Tuning takes minutes: what cannot be read or written is to be known before.
  std::optional<ReplacedFile> written;
  train::TuningTable old;
  if (options.tune) {
    if (file.empty()) file = table_path(cuda::device_info(device_named("cuda").index).name);
    written.emplace(file);
    if (std::filesystem::exists(file)) old = train::read_tuning_table(file);
  }
  const std::vector<study::ProductTime> times =
      study::bench_products(study::bench_shape(step.shape), step.resolved(), options);
  const std::string gpu = cuda::device_info(0).name;
  out.line(study::text_of(times));
  out.record().add("shape", step.shape).add("device", gpu);
  out.record().add("cublaslt", study::cublaslt_version());
  out.record().raw("products", study::json_of(times));
  if (!options.tune) return ExitCode::ok;
  const train::TuningTable table = study::with_timed(old, gpu, times);
  write_file_synced(written->temporary(), train::tuning_yaml(table));
  written->finish();
  out.line(cat("wrote ", file, ": ", table.products.size(), " products"));
  out.record().add("table", file);
  return ExitCode::ok;
}

}  // namespace

ExitCode bench(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"train", "", "whole training steps of a model", bench_train, true},
      {"op", "[NAME ...]", "kernels that move memory, and attention", bench_op},
      {"attention", "[key=value ...]", "one attention method, alone", bench_attention},
      {"gemm", "", "the matrix products of a step; --tune finds the best", bench_gemm},
      {"sparse", "", "sparse projections beside dense ones", bench_sparse},
      {"comm", "", "what the processes of a run say to each other", bench_comm, true},
  };
  return run_verb("fovea bench", verbs, arguments, out);
}

}  // namespace fovea::apps
