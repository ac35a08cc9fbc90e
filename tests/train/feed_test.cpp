#include "train/feed.h"

#include <algorithm>
#include <memory>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/source.h"

using namespace fovea;
using namespace fovea::train;

namespace {

struct Bench {
  explicit Bench(std::int64_t micro_batch, MicroOrder order = MicroOrder::forward)
      : source(data::make_source(
            [] {
              data::DataConfig config;
              config.kind = "markov";
              config.markov = {16, 64, 8};
              return config;
            }(),
            8, data::Split::train, 1)),
        loader(*source, {16, micro_batch}, 1),
        feed(loader, stream, staging, order, 1) {}

  void step(std::int64_t step) {
    for (const std::int64_t micro : feed.micro_batches(step))
      feed.load(step, micro);
    feed.finish_step(feed.take_loaded());
  }

  Stream stream{kCpu, 1};
  Staging staging{stream};
  std::unique_ptr<data::Source> source;
  data::Loader loader;
  Feed feed;
};

}  // namespace

TEST_CASE("every order computes every micro-batch once") {
  for (const MicroOrder order : {MicroOrder::forward, MicroOrder::reverse, MicroOrder::shuffle}) {
    Bench bench(2, order);
    std::vector<std::int64_t> micros = bench.feed.micro_batches(5);
    if (order == MicroOrder::reverse) CHECK(micros.front() == 7);
    std::sort(micros.begin(), micros.end());
    CHECK(micros == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  }
  CHECK(Bench(2, MicroOrder::shuffle).feed.micro_batches(5) !=
        Bench(2, MicroOrder::shuffle).feed.micro_batches(6));
}

TEST_CASE("ranks share a step between them") {
  Bench bench(2);
  Feed second(bench.loader, bench.stream, bench.staging, MicroOrder::forward, 1, 0, 1, 2);
  CHECK(second.micro_batches(0) == std::vector<std::int64_t>{4, 5, 6, 7});
  Feed uneven(bench.loader, bench.stream, bench.staging, MicroOrder::forward, 1, 0, 1, 3);
  CHECK(uneven.micro_batches(0) == std::vector<std::int64_t>{2, 3, 4});
}

TEST_CASE("what ranks have loaded adds up to the data hash of one") {
  Bench whole(4);
  whole.step(0);
  Bench parts(2);
  Feed::Loaded all;
  for (int rank = 0; rank < 3; ++rank) {
    Feed feed(parts.loader, parts.stream, parts.staging, MicroOrder::forward, 1, 0, rank, 3);
    for (const std::int64_t micro : feed.micro_batches(0))
      feed.load(0, micro);
    const Feed::Loaded loaded = feed.take_loaded();
    all.hash += loaded.hash;
    all.tokens += loaded.tokens;
  }
  parts.feed.finish_step(all);
  CHECK(parts.feed.data_hash() == whole.feed.data_hash());
  CHECK(parts.feed.tokens() == whole.feed.tokens());
}

TEST_CASE("the data hash sees samples in global order, and nothing else") {
  Bench reference(16);
  for (int step = 0; step < 3; ++step)
    reference.step(step);
  for (const std::int64_t micro_batch : {1, 2, 8}) {
    for (const MicroOrder order : {MicroOrder::forward, MicroOrder::shuffle}) {
      Bench bench(micro_batch, order);
      for (int step = 0; step < 3; ++step)
        bench.step(step);
      CHECK(bench.feed.data_hash() == reference.feed.data_hash());
    }
  }
  Bench other(16);
  for (const int step : {0, 2, 1})
    other.step(step);
  CHECK(other.feed.data_hash() != reference.feed.data_hash());
  CHECK(reference.feed.tokens() == 3 * 16 * 8);
}

TEST_CASE("a restored feed continues the chain") {
  Bench straight(4), first(4), second(4);
  straight.step(0);
  straight.step(1);
  first.step(0);
  second.feed.restore(first.feed.data_hash(), first.feed.tokens());
  second.step(1);
  CHECK(second.feed.data_hash() == straight.feed.data_hash());
  CHECK(second.feed.tokens() == straight.feed.tokens());
}
