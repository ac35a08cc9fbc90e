#include "study/bench_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "config/option.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "study/attention_runner.h"
#include "study/timing.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

std::vector<double> host_values(Stream& stream, const Tensor& x) {
  const Tensor packed = Tensor::empty(x.shape(), x.dtype(), stream.device(), "bench");
  FOVEA_ON(stream.device(), copy(stream.ref(), packed.view(), x.view()));
  return packed.to(kCpu, stream).values();
}

double distance(const std::vector<double>& found, const std::vector<double>& exact) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::fabs(exact[i]));
    const double apart = std::fabs(found[i] - exact[i]);
    if (!std::isfinite(apart)) return std::numeric_limits<double>::infinity();
    error = std::max(error, apart);
  }
  return largest > 0 ? error / largest : error;
}

// The same inputs and parameters in both, rounded to the compute dtype.
void compare_with_f64(AttentionTime& time, Stream& stream, const AttentionAsk& ask) {
  AttentionSize size = ask.size;
  const int group = size.heads / size.kv_heads;
  size.batch = 1;
  size.kv_heads = group > 4 ? 1 : std::min(size.kv_heads, 2);
  size.heads = size.kv_heads * group;
  size.queries = std::min(size.queries, ask.error_n);
  size.keys = std::min(size.keys, ask.error_n);
  Stream host(kCpu, stream.threads());
  const DType dtype = compute_dtype(ask.precision);
  const auto rounded = [&](const std::string& name, Shape shape) {
    const NamedStream numbers(1, cat("bench.attention.", name));
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = numbers.normal(i);
    return Tensor::from(values, shape, dtype);
  };
  const AttentionRunner::Make narrow_inputs = [&](const std::string& name, Shape shape) {
    const Tensor x = rounded(name, shape);
    return stream.device().is_cpu() ? x : x.to(stream.device(), stream);
  };
  const AttentionRunner::Make wide_inputs = [&](const std::string& name, Shape shape) {
    return Tensor::from(rounded(name, shape).values(), shape, DType::f64);
  };
  AttentionRunner narrow(*ask.spec, ask.options, size, ask.precision, stream, narrow_inputs),
      wide(*ask.spec, ask.options, size, Precision::fp64, host, wide_inputs);
  const auto from = narrow.alone().parameters(), to = wide.alone().parameters();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Tensor& value = from[i].second->compute;
    wide.alone().set(*to[i].second,
                     Tensor::from(host_values(stream, value), value.shape(), DType::f64));
  }
  for (AttentionRunner* runner : {&narrow, &wide}) {
    runner->forward(true);
    runner->backward();
  }
  time.error_n = std::max(size.queries, size.keys);
  const auto compare = [&](const char* name, const Tensor& found, const Tensor& exact) {
    if (!found.defined() || !exact.defined()) return;
    time.errors.emplace_back(name, distance(host_values(stream, found), host_values(host, exact)));
  };
  compare("o", narrow.o(), wide.o());
  for (const auto& [name, input] :
       {std::pair("dq", "q"), std::pair("dk", "k"), std::pair("dv", "v")})
    compare(name, narrow.gradient(input), wide.gradient(input));
}

// What the kernels count, by a run on meta.
void count_products(AttentionTime& time, const AttentionAsk& ask) {
  Stream stream(kMeta);
  const DType dtype = compute_dtype(ask.precision);
  AttentionRunner runner(*ask.spec, ask.options, ask.size, ask.precision, stream,
                         [dtype](const std::string&, Shape shape) {
                           return Tensor::empty(shape, dtype, kMeta, "bench");
                         });
  stream.cost().flops = 0;
  runner.forward(true);
  time.forward.counted = std::exchange(stream.cost().flops, 0.0);
  runner.backward();
  time.backward.counted = stream.cost().flops;
}

void declare_cost(AttentionTime& time, const AttentionAsk& ask, const Rates& rates) {
  const config::Node options = config::complete(ask.options, ask.spec->options, "model.attention");
  const attention::Cost cost =
      ask.spec->cost(config_of(ask.size), options, ask.size.queries, ask.size.keys);
  const auto batch = static_cast<double>(ask.size.batch);
  // Costs are of tokens in 16 bit.
  const double bytes = batch * static_cast<double>(size_of(compute_dtype(ask.precision))) / 2;
  const auto fill = [&](DirectionTime& d, double useful, double executed, double moved) {
    d.useful = batch * useful;
    d.executed = batch * executed;
    d.bytes = bytes * moved;
    d.floor_ms = 1e3 * std::max(d.useful / rates.product, d.bytes / rates.copy);
  };
  fill(time.forward, cost.useful_forward, cost.executed_forward, cost.bytes_forward);
  fill(time.backward, cost.useful_backward, cost.executed_backward, cost.bytes_backward);
}

std::string json_of(const DirectionTime& d) {
  train::JsonObject out;
  out.add("ms", d.ms).add("pieces", d.pieces).add("floor_ms", d.floor_ms);
  out.add("of_limit", d.of_limit()).add("useful_flops", d.useful);
  out.add("executed_flops", d.executed).add("counted_flops", d.counted);
  out.add("useful_rate", d.useful / d.ms * 1e3).add("executed_rate", d.executed / d.ms * 1e3);
  out.add("bytes", d.bytes).add("byte_rate", d.bytes / d.ms * 1e3);
  add_to(out, d.gpu);
  return out.str();
}

std::string line_of(const char* name, const DirectionTime& d) {
  char line[160];
  std::snprintf(line, sizeof line, "\n  %-9s %10.4f %12.3f %12.3f %12.4f %9.1f %%", name, d.ms,
                d.useful / d.ms / 1e9, d.executed / d.ms / 1e9, d.bytes / d.ms / 1e9,
                100 * d.of_limit());
  return line + text_of(d.gpu);
}

std::string errors_of(const AttentionTime& time) {
  if (!time.no_error.empty()) return cat("none: ", time.no_error);
  std::vector<std::string> parts;
  for (const auto& [name, value] : time.errors) {
    char text[48];
    std::snprintf(text, sizeof text, "%s %.1e", name.c_str(), value);
    parts.emplace_back(text);
  }
  return cat(join(parts, ", "), " at ", time.error_n, " tokens");
}

std::string peer_line(const PeerTime& peer, const AttentionTime& time) {
  char line[200];
  const double ours = time.forward.ms + time.backward.ms;
  if (peer.backward_ms > 0) {
    std::snprintf(line, sizeof line,
                  "\n  against %s: forward %.3g, backward %.3g, both %.3g times as fast",
                  peer.name.c_str(), peer.forward_ms / time.forward.ms,
                  peer.backward_ms / time.backward.ms, (peer.forward_ms + peer.backward_ms) / ours);
  } else {
    std::snprintf(line, sizeof line, "\n  against %s: forward %.3g times as fast",
                  peer.name.c_str(), peer.forward_ms / time.forward.ms);
  }
  return line;
}

}  // namespace

AttentionTimes bench_attention(Stream& stream, AttentionAsk ask,
                               const std::vector<AttentionSize>& sizes, const Rates& rates,
                               const Peers& peers) {
  AttentionTimes out;
  for (const AttentionSize& size : sizes) {
    ask.size = size;
    try {
      out.times.push_back(bench_attention(stream, ask, rates, peers));
    } catch (const Error& error) {
      if (out.times.empty()) throw;
      out.failed = cat(text_of(size), ": ", error.what());
      out.code = error.code();
      break;
    }
  }
  return out;
}

std::string text_of(const AttentionSize& s) {
  const std::string keys = s.keys == s.queries ? "" : cat(" M", s.keys);
  const std::string groups = s.kv_heads == s.heads ? "" : cat("/", s.kv_heads);
  return cat("B", s.batch, " H", s.heads, groups, " N", s.queries, keys, " D", s.qk_dim, "/",
             s.v_dim, s.causal ? " causal" : "");
}

AttentionTime bench_attention(Stream& stream, const AttentionAsk& ask, const Rates& rates,
                              const Peers& peers) {
  AttentionTime out;
  out.size = ask.size;
  const GpuWatch watch(stream.device());
  count_products(out, ask);
  declare_cost(out, ask, rates);
  {
    AttentionRunner runner(*ask.spec, ask.options, ask.size, ask.precision, stream,
                           [&](const std::string&, Shape shape) {
                             return random_tensor(stream, shape, compute_dtype(ask.precision));
                           });
    out.kernel = runner.alone().method().kernel();
    out.refused = runner.alone().method().refused();
    TimingPlan plan{.warm_seconds = std::min(0.3, ask.seconds), .seconds = ask.seconds};
    plan.group_seconds = std::min(plan.group_seconds, ask.seconds);
    plan.before_end = [&] { out.forward.gpu = watch.now(); };
    const Timing forward = time_on(
        stream, [&] { runner.forward(false); }, plan);
    plan.before_end = [&] { out.backward.gpu = watch.now(); };
    const Timing backward = time_after(
        stream, [&] { runner.forward(true); }, [&] { runner.backward(); }, plan);
    out.forward.ms = forward.ms;
    out.forward.pieces = forward.pieces;
    out.backward.ms = backward.ms;
    out.backward.pieces = backward.pieces;
    out.peak_bytes = runner.peak_bytes();
  }
  if (ask.error_n > 0) {
    try {
      compare_with_f64(out, stream, ask);
    } catch (const ConfigError& e) {  // options that short sequences do not fit
      out.no_error = e.what();
    }
  } else {
    out.no_error = "not asked for";
  }
  out.peers = peers.of(ask.size);
  return out;
}

std::string json_of(const std::vector<AttentionTime>& times) {
  std::vector<std::string> rows;
  for (const AttentionTime& time : times) {
    train::JsonObject row, errors;
    const AttentionSize& s = time.size;
    row.add("batch", s.batch).add("n", s.queries).add("m", s.keys);
    row.add("kernel", time.kernel).add("refused", time.refused);
    row.raw("forward", json_of(time.forward)).raw("backward", json_of(time.backward));
    row.add("peak_bytes", time.peak_bytes);
    double worst = 0;
    for (const auto& [name, value] : time.errors) {
      errors.add(name, value);
      worst = std::max(worst, value);
    }
    row.raw("error", time.errors.empty() ? "null" : train::json_number(worst));
    row.raw("errors", errors.str()).add("error_n", time.error_n).add("no_error", time.no_error);
    std::vector<std::string> peers;
    for (const PeerTime& peer : time.peers) {
      train::JsonObject one;
      const bool both = peer.backward_ms > 0;
      one.add("name", peer.name).add("forward_ms", peer.forward_ms);
      one.raw("backward_ms", both ? train::json_number(peer.backward_ms) : "null");
      one.add("forward_speedup", peer.forward_ms / time.forward.ms);
      one.raw("backward_speedup",
              both ? train::json_number(peer.backward_ms / time.backward.ms) : "null");
      peers.push_back(one.str());
    }
    row.raw("peers", cat("[", join(peers, ","), "]"));
    rows.push_back(row.str());
  }
  return cat("[", join(rows, ","), "]");
}

std::string text_of(const std::vector<AttentionTime>& times) {
  std::string out = "                    ms     TFLOP/s     executed         TB/s    of limit";
  for (const AttentionTime& time : times) {
    out += cat("\n", text_of(time.size), ", ", time.kernel,
               time.refused.empty() ? "" : cat(" (", time.refused, ")"));
    out += line_of("forward", time.forward);
    out += line_of("backward", time.backward);
    out += cat("\n  at most ", human_bytes(static_cast<double>(time.peak_bytes)),
               "; error against f64: ", errors_of(time));
    for (const PeerTime& peer : time.peers)
      out += peer_line(peer, time);
  }
  return out;
}

}  // namespace fovea::study
