#include "train/checkpoint_writer.h"

#include <doctest/doctest.h>

#include "checkpoint_ranks.h"
#include "data/safetensors.h"
#include "tiny_run.h"
#include "train/checkpoint_moments.h"
#include "train/inspect.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
namespace fs = std::filesystem;

namespace {

void check_equal_folders(const std::string& a, const std::string& b) {
  const std::vector<std::string> files = files_of(a);
  CHECK(files.size() == files_of(b).size());
  for (const std::string& file : files)
    CHECK(contents(file) == contents(b + "/" + fs::path(file).filename().string()));
}

}  // namespace

TEST_CASE("what any number of ranks wrote, any number of ranks reads to the bit") {
  const TemporaryFolder temporary;
  for (const bool sharded : {false, true}) {
    for (const int writers : {1, 2, 4}) {
      const std::string path =
          temporary.path("by_" + std::to_string(writers) + (sharded ? "_shards" : "_shares"));
      save_together(path, kWidth, {.ranks = writers, .sharded = sharded});
      CHECK(Checkpoint(path).optimizer_files().size() == static_cast<std::size_t>(writers));
      for (const int readers : {1, 2, 4}) {
        for (int rank = 0; rank < readers; ++rank) {
          Bench reader(kWidth, "weight", Precision::fp32, 99, shard(rank, readers));
          reader.fill_moments(-1);
          const Checkpoint checkpoint(path, Verify::what_is_read);
          checkpoint.load_model(reader.ctx, reader.model, *reader.store);
          checkpoint.load_optimizer(reader.ctx, *reader.store);
          CHECK(checkpoint.state().step == 7);
          CHECK(reader.moments_are_right());
          CHECK(reader.store->masters().values() == Bench(kWidth).store->masters().values());
        }
      }
    }
  }
}

TEST_CASE("the model's file has the same bytes however many ranks write, and so has each text") {
  const TemporaryFolder temporary;
  save_together(temporary.path("one"), 400, {.ranks = 1});
  for (const int ranks : {2, 3, 4}) {
    const std::string path = temporary.path(std::to_string(ranks));
    save_together(path, 400, {.ranks = ranks});
    for (const char* name : {"/model.safetensors", "/config.json", "/state.json"})
      CHECK(contents(path + name) == contents(temporary.path("one") + name));
    CHECK(files_of(path).size() == static_cast<std::size_t>(4 + ranks));  // and nothing else
  }
}

TEST_CASE("a parameter inside one file is stored whole, one that a border cuts by its elements") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("checkpoint");
  save_together(path, kWidth, {.ranks = 2, .sharded = true});
  const data::SafetensorsFile first(path + "/optimizer-00001-of-00002.safetensors"),
      second(path + "/optimizer-00002-of-00002.safetensors");
  REQUIRE(first.entries().size() == 2);
  CHECK(first.entries()[0].name == "first/weight[0:131072]");
  CHECK(first.entries()[1].name == "second/weight[0:131072]");
  CHECK(first.entries()[0].shape == std::vector<std::int64_t>{131072});
  REQUIRE(second.entries().size() == 4);
  CHECK(second.entries()[0].name == "first/weight[131072:300000]");
  CHECK(second.entries()[1].name == "first/bias");
}

TEST_CASE("shares cover all moments once and leave every rank with as many bytes to write") {
  const Bench bench(kWidth);
  const std::int64_t elements = bench.store->elements(), model = 4 * elements;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    std::int64_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const optim::MomentRange range = fair_share(*bench.store, model, rank, ranks);
      CHECK(range.begin == end);
      end = range.end;
      const std::int64_t bytes = 8 * (range.end - range.begin) + (rank == 0 ? model : 0);
      const std::int64_t most = std::max(model, (model + 8 * elements) / ranks + 1024);
      CHECK(bytes <= most);
      if (rank == 0 && ranks > 3) CHECK(bytes == model);  // has more than its share already
    }
    CHECK(end == elements);
  }
}

TEST_CASE("written behind training it has the bytes of the moment that save was called") {
  const TemporaryFolder temporary;
  save_together(temporary.path("waiting"), 4000, {.ranks = 1});
  Rank behind(4000, {.async = true});
  for (const char* name : {"first", "again"}) {
    behind.bench.fill_moments(1);
    const Bench fresh(4000);
    std::copy_n(fresh.store->masters().data<float>(), fresh.store->elements(),
                behind.bench.store->masters().data<float>());
    behind.save(temporary.path(name));
    std::fill_n(behind.bench.store->masters().data<float>(), fresh.store->elements(), -1.0F);
    behind.bench.fill_moments(3);
    behind.writer.wait();
    check_equal_folders(temporary.path("waiting"), temporary.path(name));
  }
  CHECK(behind.writer.times().written > 0);
  CHECK(behind.writer.times().stall > 0);
}

TEST_CASE("several ranks behind training write what they write when they wait") {
  const TemporaryFolder temporary;
  save_together(temporary.path("waiting"), kWidth, {.ranks = 4});
  save_together(temporary.path("behind"), kWidth, {.ranks = 4, .async = true});
  check_equal_folders(temporary.path("waiting"), temporary.path("behind"));
}

TEST_CASE("a save begins when the one before has its name, and only rank 0 hears of it") {
  const TemporaryFolder temporary;
  std::vector<std::string> seen;
  std::thread::id by;
  {
    Rank rank(40, {.async = true});
    for (const char* name : {"a", "b", "c"}) {
      const std::string path = temporary.path(name);
      rank.save(path, [&, path] {
        by = std::this_thread::get_id();
        CHECK(fs::exists(path + "/manifest.json"));
        CHECK(rank.writer.times().written > 0);
        seen.push_back(path);
      });
    }
  }  // ends what is under way
  CHECK(seen == files_of(temporary.path()));
  CHECK(by != std::this_thread::get_id());
  Rank other(40, {.rank = 1, .ranks = 2});
  other.save(temporary.path("d"), [] { FAIL("rank 1 was told"); });
}

TEST_CASE("inspect says in how many files the optimizer's state is") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  std::vector<std::jthread> threads;
  for (const int index : {0, 1}) {
    threads.emplace_back([&, index] {
      RunState state = Bench::state();
      state.config_yaml = tiny_config("out").resolved.yaml();
      Rank rank(40, {.rank = index, .ranks = 2});
      rank.writer.save(path, state, "{}\n");
    });
  }
  threads.clear();
  const Inspection inspection = inspect(path);
  CHECK(has(inspection.text, "optimizer state in 2 files"));
  CHECK(has(inspection.json, "\"optimizer_files\":2"));
}
