// fovea bench attention: one method alone, at sizes of the caller's choice.

#include "study/bench_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "config/yaml.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/isa.h"
#include "core/text.h"
#include "train/trainer.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr double kMostElements = 0x1p40;

// "1024,4096": whole numbers of tokens.
std::vector<std::int64_t> lengths_of(const char* option, const std::string& text) {
  std::vector<std::int64_t> out;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream number(item);
    std::int64_t tokens = 0;
    const bool whole = (number >> tokens) && number.eof();
    if (!whole || tokens < 1 || tokens > kMostTokens)
      throw ConfigError(cat("fovea bench attention: ", option, " is '", text, "', but '", item,
                            "' is no number of tokens in [1, ", kMostTokens, "]"));
    out.push_back(tokens);
  }
  if (out.empty()) throw ConfigError(cat("fovea bench attention: ", option, " names no length"));
  return out;
}

const attention::AttentionSpec& method_named(const std::string& kind) {
  if (const attention::AttentionSpec* spec = attention::find_attention(kind); spec != nullptr)
    return *spec;
  std::vector<std::string> known;
  for (const attention::AttentionSpec& each : attention::attention_specs())
    known.emplace_back(each.name);
  const std::string near = nearest(kind, known);
  throw ConfigError(
      cat("fovea bench attention: there is no attention method '", kind, "'; ",
          near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean ", near, "?")));
}

Precision precision_named(const std::string& dtype) {
  return dtype == "bf16"   ? Precision::bf16_mixed
         : dtype == "fp16" ? Precision::fp16_mixed
                           : Precision::fp32;
}

// Sizes as asked for; 0: not asked for.
struct Asked {
  std::string kind = "standard", n, m, dtype, device = "auto", peer;
  int heads = 0, kv_heads = 0, d_qk = 64, d_v = 0, batch = 0, error_n = 2048;
  bool causal = false;
  double seconds = 0.3;
  std::vector<std::string> settings;

  void declare(CommandLine& line) {
    line.rest("key=value", settings, "options of the method, as model.attention's")
        .option("--kind", kind, "a kind that fovea list attention names (default: standard)")
        .option("--n", n,
                "tokens, or several numbers: 1024,4096 (default: 4096 on a GPU, else 512)")
        .option("--m", m, "keys, where they are not the queries: cross-attention")
        .option("--d-qk", d_qk, 1, "width of a query and key head (default: 64)")
        .option("--d-v", d_v, 1, "width of a value head (default: --d-qk)")
        .option("--heads", heads, 1, "query heads (default: 16 on a GPU, else 4)")
        .option("--kv-heads", kv_heads, 1,
                "key and value heads; --heads is a multiple of them (default: --heads)")
        .option("--batch", batch, 1,
                "samples (default: as many as make 16384 queries or keys on a GPU, else 1024)")
        .choice("--dtype", dtype, {"bf16", "fp16", "fp32"}, "default: bf16 on a GPU, else fp32")
        .flag("--causal", causal, "no query sees a later key")
        .choice("--device", device, {"auto", "cpu", "cuda"}, "where to compute")
        .option("--seconds", seconds, 0.001, 60, "timed of each direction (default: 0.3)")
        .option("--error-n", error_n, 0,
                "tokens of the comparison with f64 on the CPU, at most; 0: none (default: 2048)")
        .option("--peer", peer, "JSON of another system's times, set beside those of equal size");
  }

  study::AttentionSize size(bool gpu, std::int64_t queries, std::int64_t keys) const {
    study::AttentionSize out;
    out.queries = queries;
    out.keys = keys;
    const std::int64_t tokens = std::max(queries, keys);
    out.batch = batch > 0 ? batch : std::max<std::int64_t>(1, (gpu ? 16384 : 1024) / tokens);
    out.heads = heads > 0 ? heads : gpu ? 16 : 4;
    out.kv_heads = kv_heads > 0 ? kv_heads : out.heads;
    out.qk_dim = d_qk;
    out.v_dim = d_v > 0 ? d_v : d_qk;
    out.causal = causal;
    if (out.heads % out.kv_heads != 0)
      throw ConfigError(cat("fovea bench attention: --heads ", out.heads,
                            " is no multiple of --kv-heads ", out.kv_heads));
    if (causal && queries != keys)
      throw ConfigError("fovea bench attention: --causal needs as many keys as queries");
    const double elements = static_cast<double>(out.batch) * out.heads *
                            static_cast<double>(tokens) * std::max(out.qk_dim, out.v_dim);
    if (elements > kMostElements)
      throw ConfigError(cat("fovea bench attention: --batch ", out.batch, " --heads ", out.heads,
                            " and heads of ", std::max(out.qk_dim, out.v_dim), " at ", tokens,
                            " tokens are more than 2^40 elements"));
    return out;
  }
};

}  // namespace

ExitCode bench_attention(const Arguments& arguments, Output& out) {
  Asked asked;
  CommandLine line("bench attention",
                   "Times one attention method alone, forward and backward, beside what its "
                   "products and tokens take on this device, and compares it with f64.");
  asked.declare(line);
  if (!line.parse(arguments, out)) return ExitCode::ok;
  require_assignments("bench attention", asked.settings);
  const attention::AttentionSpec& spec = method_named(asked.kind);
  study::AttentionAsk ask;
  ask.spec = &spec;
  config::override_with(ask.options, asked.settings);
  const study::Peers peers = asked.peer.empty() ? study::Peers() : study::Peers(asked.peer);
  train::TrainConfig config;
  if (asked.device == "cpu") config.device = train::DeviceChoice::cpu;
  if (asked.device == "cuda") config.device = train::DeviceChoice::cuda;
  const Device on = train::device_of(config);
  if (asked.dtype.empty()) asked.dtype = on.is_cuda() ? "bf16" : "fp32";
  ask.precision = precision_named(asked.dtype);
  ask.seconds = asked.seconds;
  ask.error_n = asked.error_n;
  const std::vector<std::int64_t> queries = lengths_of("--n", !asked.n.empty() ? asked.n
                                                              : on.is_cuda()   ? "4096"
                                                                               : "512");
  const std::vector<std::int64_t> keys =
      asked.m.empty() ? std::vector<std::int64_t>() : lengths_of("--m", asked.m);
  std::vector<study::AttentionSize> sizes;
  for (const std::int64_t n : queries) {
    if (keys.empty()) sizes.push_back(asked.size(on.is_cuda(), n, n));
    for (const std::int64_t m : keys)
      sizes.push_back(asked.size(on.is_cuda(), n, m));
  }

  Stream stream(on, train::threads_of({}));
  const study::Rates rates = study::measure_rates(stream);
  const auto [times, failed, code] = study::bench_attention(stream, ask, sizes, rates, peers);
  const std::string device = on.is_cuda() ? cuda::device_info(on.index).name : cpu_name();
  out.line(cat(spec.name, ", ", asked.dtype, ", on ", device));
  out.line(study::text_of(times));
  for (const study::AttentionTime& time : times) {
    if (!asked.peer.empty() && time.peers.empty())
      out.line(cat(asked.peer, " has no row of B ", time.size.batch, ", H ", time.size.heads,
                   ", N ", time.size.keys, ", D ", time.size.v_dim,
                   time.size.causal ? ", causal" : ""));
  }
  out.line(cat("copy ", rounded(rates.copy / 1e12, 3), " TB/s, product ",
               rounded(rates.product / 1e12, 3), " TFLOP/s", study::text_of(rates.gpu)));
  const study::AttentionSize& first = sizes.front();
  out.record().add("kind", spec.name).add("dtype", asked.dtype).add("causal", asked.causal);
  out.record().add("heads", first.heads).add("kv_heads", first.kv_heads);
  out.record().add("d_qk", first.qk_dim).add("d_v", first.v_dim);
  out.record().raw("runs", study::json_of(times)).add("device", device);
  out.record().add("copy_rate", rates.copy).add("product_rate", rates.product);
  if (code != ExitCode::ok) {
    out.record().add("failed", failed);
    std::fprintf(stderr, "error: %s\n", failed.c_str());
  }
  return code;
}

}  // namespace fovea::apps
