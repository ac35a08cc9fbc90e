#pragma once
// The processes of a run that write a checkpoint together; here each is a thread.

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint_bench.h"
#include "core/error.h"
#include "kernels/optim.h"
#include "train/checkpoint_writer.h"

namespace fovea::test {

// Five chunks of moments, so that up to four ranks can hold some each.
constexpr std::int64_t kWidth = 100'000;

// The moments of rank `rank` of `ranks` as ZeRO cuts them.
inline optim::MomentCut shard(int rank, int ranks) {
  return [=](std::int64_t elements) {
    const std::int64_t chunks = (elements + kNormChunk - 1) / kNormChunk;
    const auto border = [&](int r) { return std::min(elements, chunks * r / ranks * kNormChunk); };
    return optim::MomentRange{border(rank), border(rank + 1)};
  };
}

// One process of a run. Its parameters are those of every other one.
struct Rank {
  Bench bench;
  train::CheckpointWriter writer;
  Rank(std::int64_t width, const train::CheckpointWriterOptions& options)
      : bench(width, "weight", Precision::fp32, 3,
              options.sharded ? shard(options.rank, options.ranks) : optim::MomentCut()),
        writer(bench.stream, bench.model, *bench.store, options) {}
  void save(const std::string& path, std::function<void()> committed = {}) {
    writer.save(path, Bench::state(), "{}\n", {}, std::move(committed));
  }
};

// All ranks save one checkpoint. Throws what the first of them threw.
inline void save_together(const std::string& path, std::int64_t width,
                          train::CheckpointWriterOptions options) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(options.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    options.rank = rank;
    threads.emplace_back([&path, &errors, width, options] {
      try {
        Rank one(width, options);
        one.save(path);
        one.writer.wait();
      } catch (const Error&) {
        errors[static_cast<std::size_t>(options.rank)] = std::current_exception();
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

inline std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace fovea::test
