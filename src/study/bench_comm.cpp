#include "study/bench_comm.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/isa.h"
#include "core/random.h"
#include "core/tensor.h"
#include "core/text.h"
#include "dist/halving.h"
#include "dist/session.h"
#include "study/gpu_state.h"
#include "study/timing.h"
#include "train/trainer.h"

namespace fovea::study {

namespace {

constexpr double kGroupSeconds = 0.03;  // timed as one, so that its start and end do not count
constexpr std::int64_t kFewestGroups = 3;

struct Contender {
  CommTime time;
  std::function<void()> work;
  std::int64_t group = 1, groups = 1;  // pieces, and how often so many
  std::vector<double> seconds;         // of this rank's groups
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Element by element, over all ranks.
std::vector<double> slowest(dist::Communicator& ranks, Stream& stream,
                            const std::vector<double>& mine) {
  const Tensor here = Tensor::from(mine, {static_cast<std::int64_t>(mine.size())}, DType::f32);
  const Tensor there = here.to(stream.device(), stream);
  ranks.all_reduce(there.view(), dist::Reduce::max, stream);
  return there.to(kCpu, stream).values();
}

double seconds_of(dist::Communicator& ranks, Stream& stream, const Contender& contender,
                  std::int64_t pieces) {
  stream.synchronize();
  ranks.barrier();
  const double start = now();
  const Event from = stream.record();
  for (std::int64_t i = 0; i < pieces; ++i)
    contender.work();
  const Event to = stream.record();
  stream.synchronize();
  if (stream.device().is_cuda()) return Event::milliseconds(from, to) / 1e3;
  return now() - start;
}

// Warms up, and sees how many pieces make a group: the same on every rank.
void plan(dist::Communicator& ranks, Stream& stream, Contender& contender, double seconds) {
  double spent = 0, piece = 0;
  std::int64_t burst = 1;
  while (spent < seconds) {
    const double took =
        slowest(ranks, stream, {seconds_of(ranks, stream, contender, burst)}).front();
    piece = std::max(took / static_cast<double>(burst), 1e-7);
    spent += took;
    burst = std::min(2 * burst, static_cast<std::int64_t>(seconds / piece) + 1);
  }
  contender.group = static_cast<std::int64_t>(std::ceil(kGroupSeconds / piece));
  contender.groups = std::max(
      kFewestGroups, static_cast<std::int64_t>(
                         std::ceil(seconds / (piece * static_cast<double>(contender.group)))));
  contender.time.pieces = contender.group * contender.groups;
}

// Random numbers at first. Sums of sums end at infinity, which travels as fast.
Tensor random_floats(std::int64_t elements, int rank, Stream& stream) {
  constexpr std::int64_t kDrawn = 1 << 20;
  const NamedStream draw(static_cast<std::uint64_t>(rank), "bench comm");
  const Tensor some = Tensor::empty({std::min(elements, kDrawn)}, DType::f32, kCpu);
  for (std::int64_t i = 0; i < some.numel(); ++i)
    some.data<float>()[i] = static_cast<float>(draw.normal(static_cast<std::uint64_t>(i)));
  Tensor out = Tensor::empty({elements}, DType::f32, stream.device());
  for (std::int64_t at = 0; at < elements; at += kDrawn) {
    const std::int64_t count = std::min(kDrawn, elements - at);
    transfer(out.slice(0, at, at + count), some.slice(0, 0, count), stream);
  }
  return out;
}

View as_bf16(const Tensor& floats) {
  View out = floats.view();
  out.dtype = DType::bf16;
  out.dim[0] *= 2;
  return out;
}

std::vector<Contender> contenders(dist::Communicator& ranks, Stream& stream, const Tensor& values,
                                  const Tensor& other) {
  const int n = ranks.size();
  const double reduction = 2.0 * (n - 1) / n;
  std::vector<Contender> out;
  const auto add = [&](const char* name, double share, std::function<void()> work) {
    out.push_back({.time = {.operation = name, .bytes = values.bytes(), .share = share},
                   .work = std::move(work),
                   .seconds = {}});
  };
  add("all_reduce f32", reduction,
      [&, values] { ranks.all_reduce(values.view(), dist::Reduce::sum, stream); });
  add("all_reduce bf16", reduction,
      [&, values] { ranks.all_reduce(as_bf16(values), dist::Reduce::sum, stream); });
  if (std::has_single_bit(static_cast<unsigned>(n)) && n > 1) {
    add("tree f32", reduction,
        [&, values, other] { dist::tree_all_reduce(ranks, values, other, stream); });
  }
  if (n % 2 == 0) {
    add("exchange", 1, [&, values, other] {
      ranks.exchange(values.view(), other.view(), ranks.rank() ^ 1, stream);
    });
  }
  return out;
}

std::string mebibytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

std::vector<CommTime> time_comm(dist::Communicator& ranks, Stream& stream,
                                const CommOptions& options) {
  std::vector<CommTime> out;
  for (const std::int64_t bytes : options.bytes) {
    const Tensor values = random_floats(bytes / 4, ranks.rank(), stream);
    const Tensor other = random_floats(bytes / 4, ranks.rank(), stream);
    std::vector<Contender> all = contenders(ranks, stream, values, other);
    std::int64_t rounds = 0;
    for (Contender& contender : all) {
      plan(ranks, stream, contender, options.seconds);
      rounds = std::max(rounds, contender.groups);
    }
    // In turns, so that none has the cool machine for itself.
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (Contender& contender : all) {
        if (round < contender.groups)
          contender.seconds.push_back(seconds_of(ranks, stream, contender, contender.group));
      }
    }
    for (Contender& contender : all) {
      contender.time.ms = median(slowest(ranks, stream, contender.seconds)) * 1e3 /
                          static_cast<double>(contender.group);
      out.push_back(std::move(contender.time));
    }
  }
  return out;
}

CommBench bench_comm(const dist::World& world, Device device, const CommOptions& options) {
  dist::SessionOptions joining;
  joining.folder = ".";
  joining.command = "fovea bench comm";
  const auto session = dist::Session::join(world, joining);
  try {
    const std::unique_ptr<dist::Communicator> ranks =
        device.is_cuda() ? dist::nccl(*session, device) : dist::gloo(*session);
    Stream stream(device, train::threads_of({}));
    CommBench out;
    out.device = device.is_cuda() ? cuda::device_info(device.index).name : cpu_name();
    out.library = device.is_cuda() ? cat("NCCL ", nccl_version()) : "Gloo";
    out.ranks = ranks->size();
    out.link = link_of(*session, device);
    session->at("timing", 0);
    out.times = time_comm(*ranks, stream, options);
    session->leave();
    return out;
  } catch (const Error& e) {
    session->fail(e.code(), e.what());
    throw;
  }
}

void add_to(train::JsonObject& record, const CommBench& bench) {
  record.add("device", bench.device).add("library", bench.library).add("ranks", bench.ranks);
  record.add("link", bench.link.name);
  const bool known = bench.link.rate > 0;
  record.raw("link_rate", known ? train::json_number(bench.link.rate) : "null");
  std::vector<std::string> operations;
  for (const CommTime& time : bench.times) {
    train::JsonObject one;
    one.add("operation", time.operation).add("bytes", time.bytes).add("ms", time.ms);
    one.add("pieces", time.pieces).add("rate", time.rate()).add("bus_rate", time.bus_rate());
    one.raw("of_link", known ? train::json_number(time.bus_rate() / bench.link.rate) : "null");
    operations.push_back(one.str());
  }
  record.raw("operations", cat("[", join(operations, ","), "]"));
}

std::string text_of(const CommBench& bench) {
  char line[160];
  std::string out =
      cat(bench.ranks, " ranks, ", bench.device, ", ", bench.library, ", ", bench.link.name);
  if (bench.link.rate > 0) {
    std::snprintf(line, sizeof line, ": %.4g GB/s in each direction", bench.link.rate / 1e9);
    out += line;
  } else {
    out += ": no norm";
  }
  out += "\noperation              MiB          ms      GB/s  bus GB/s  of link";
  for (const CommTime& time : bench.times) {
    std::snprintf(line, sizeof line, "\n%-16s %9s %11.4f %9.4g %9.4g", time.operation.c_str(),
                  mebibytes(time.bytes).c_str(), time.ms, time.rate() / 1e9, time.bus_rate() / 1e9);
    out += line;
    if (bench.link.rate > 0) {
      std::snprintf(line, sizeof line, "  %6.1f%%", 100 * time.bus_rate() / bench.link.rate);
      out += line;
    }
  }
  return out;
}

}  // namespace fovea::study
