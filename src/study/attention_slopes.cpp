#include "study/attention_slopes.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "config/option.h"
#include "core/error.h"
#include "core/text.h"
#include "study/attention_runner.h"
#include "study/rates.h"
#include "study/timing.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

// d log y / d log x by least squares.
template <class T>
double exponent(const std::vector<std::int64_t>& x, const std::vector<T>& y) {
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = std::log(static_cast<double>(x[i])), b = std::log(static_cast<double>(y[i]));
    sx += a;
    sy += b;
    sxx += a * a;
    sxy += a * b;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

AttentionSize size_of_call(std::int64_t tokens, bool causal) {
  AttentionSize out;
  out.queries = out.keys = tokens;
  out.batch = 1;
  out.heads = out.kv_heads = 4;
  out.qk_dim = out.v_dim = 64;
  out.causal = causal;
  return out;
}

void measure(AttentionSlope& slope, Stream& stream, const attention::AttentionSpec& spec,
             const config::Node& options, const AttentionSize& size) {
  const Precision precision = stream.device().is_cuda() ? Precision::bf16_mixed : Precision::fp32;
  AttentionRunner runner(spec, options, size, precision, stream,
                         [&](const std::string& /*name*/, Shape shape) {
                           return random_tensor(stream, shape, compute_dtype(precision));
                         });
  const TimingPlan brief{.warm_seconds = 0.02, .seconds = 0.1, .group_seconds = 0.02};
  const Timing timing = time_on(
      stream,
      [&] {
        runner.forward(true);
        runner.backward();
      },
      brief);
  slope.tokens.push_back(size.queries);
  slope.ms.push_back(timing.ms);
  slope.bytes.push_back(runner.peak_bytes());
}

}  // namespace

std::vector<AttentionSlope> attention_slopes(Stream& stream, const attention::AttentionSpec& spec,
                                             const config::Node& options) {
  const bool gpu = stream.device().is_cuda();
  const std::int64_t shortest = gpu ? 8192 : 512, longest = gpu ? 131072 : 4096;
  const config::Node completed = config::complete(options, spec.options, "model.attention");
  const attention::Capabilities caps = attention::with_options(spec, completed).caps;
  std::vector<AttentionSlope> out;
  for (const auto& [form, causal, has] : {std::tuple("bidirectional", false, caps.bidirectional),
                                          std::tuple("causal", true, caps.causal)}) {
    if (!has) continue;
    AttentionSlope slope{.kind = std::string(spec.name), .form = form};
    try {
      for (std::int64_t tokens = shortest; tokens <= longest; tokens *= 2) {
        const AttentionSize size = size_of_call(tokens, causal);
        slope.linear = is_linear(spec, config_of(size), completed);
        measure(slope, stream, spec, options, size);
      }
    } catch (const ConfigError& error) {
      slope.stopped = error.what();
      slope.refused = true;
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      slope.stopped = text.substr(0, text.find('\n'));
    }
    if (slope.tokens.size() >= 2) {
      slope.time = exponent(slope.tokens, slope.ms);
      slope.memory = exponent(slope.tokens, slope.bytes);
    }
    out.push_back(std::move(slope));
  }
  return out;
}

std::string json_of(const std::vector<AttentionSlope>& slopes) {
  std::vector<std::string> rows;
  for (const AttentionSlope& slope : slopes) {
    train::JsonObject row;
    row.add("kind", slope.kind).add("form", slope.form).add("linear", slope.linear);
    std::vector<std::string> points;
    for (std::size_t i = 0; i < slope.tokens.size(); ++i) {
      train::JsonObject point;
      point.add("tokens", slope.tokens[i]).add("ms", slope.ms[i]);
      points.push_back(point.add("bytes", static_cast<std::int64_t>(slope.bytes[i])).str());
    }
    row.raw("points", cat("[", join(points, ","), "]"));
    row.add("time_exponent", slope.time).add("memory_exponent", slope.memory);
    rows.push_back(row.add("stopped", slope.stopped).str());
  }
  return cat("[", join(rows, ","), "]");
}

std::string text_of(const std::vector<AttentionSlope>& slopes) {
  std::string out;
  for (const AttentionSlope& slope : slopes) {
    char line[200];
    if (slope.tokens.size() >= 2) {
      std::snprintf(line, sizeof line, "%-19s %-13s %-9s time N^%.2f  memory N^%.2f  ",
                    slope.kind.c_str(), slope.form.c_str(), slope.linear ? "linear" : "-",
                    slope.time, slope.memory);
      out += line;
      for (std::size_t i = 0; i < slope.tokens.size(); ++i) {
        std::snprintf(line, sizeof line, "%s%lld: %.3g ms", i == 0 ? "" : ", ",
                      static_cast<long long>(slope.tokens[i]), slope.ms[i]);
        out += line;
      }
    } else {
      std::snprintf(line, sizeof line, "%-19s %-13s ", slope.kind.c_str(), slope.form.c_str());
      out += line;
    }
    if (!slope.stopped.empty()) out += cat(slope.tokens.empty() ? "" : "; ", slope.stopped);
    out += "\n";
  }
  return out;
}

}  // namespace fovea::study
