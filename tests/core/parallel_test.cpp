#include "core/parallel.h"

#include <atomic>
#include <stdexcept>
#include <utility>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/stream.h"

using namespace fovea;

TEST_CASE("parallel_for covers the range once, in the same cuts for any number of threads") {
  for (const std::int64_t n : {0, 1, 7, 64, 65, 1000}) {
    std::vector<std::pair<std::int64_t, std::int64_t>> first;
    for (const int threads : {1, 2, 3, 8}) {
      Stream stream(kCpu, threads);
      std::vector<std::pair<std::int64_t, std::int64_t>> cuts(
          static_cast<std::size_t>((n + 15) / 16));
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
      parallel_for(stream.ref(), n, 16, [&](std::int64_t begin, std::int64_t end) {
        cuts[static_cast<std::size_t>(begin / 16)] = {begin, end};
        for (std::int64_t i = begin; i < end; ++i)
          ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& count : visits)
        CHECK(count == 1);
      if (threads == 1) first = cuts;
      CHECK(cuts == first);
    }
  }
}

TEST_CASE("the chunks of a pool are shared out between threads") {
  ThreadPool pool(2);
  // Two chunks that wait for each other: one thread alone would never finish.
  std::atomic<int> arrived{0};
  pool.run(
      2,
      [](void* context, std::int64_t) {
        auto& count = *static_cast<std::atomic<int>*>(context);
        ++count;
        while (count < 2)
          std::this_thread::yield();
      },
      &arrived);
  CHECK(arrived == 2);
}

TEST_CASE(
    "an exception of a chunk reaches the caller, after the others are done, and the pool lives "
    "on") {
  for (const int threads : {1, 2, 4}) {
    Stream stream(kCpu, threads);
    std::atomic<int> done{0};
    const auto fail = [&](std::int64_t begin, std::int64_t) {
      if (begin == 3) throw std::runtime_error("chunk 3");
      ++done;
    };
    CHECK_THROWS_WITH(parallel_for(stream.ref(), 10, 1, fail), "chunk 3");
    if (threads > 1) CHECK(done == 9);
    std::atomic<int> again{0};
    parallel_for(stream.ref(), 10, 1, [&](std::int64_t, std::int64_t) { ++again; });
    CHECK(again == 10);
  }
}

TEST_CASE("a stream without a pool runs in the calling thread") {
  std::vector<std::int64_t> begins;
  parallel_for(StreamRef{}, 5, 2,
               [&](std::int64_t begin, std::int64_t) { begins.push_back(begin); });
  CHECK(begins == std::vector<std::int64_t>{0, 2, 4});
}

TEST_CASE("fewer than one thread is refused") {
  CHECK_THROWS_AS(ThreadPool{0}, ConfigError);
  CHECK(Stream(kCpu, 3).threads() == 3);
}
