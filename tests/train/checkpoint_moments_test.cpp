#include "train/checkpoint_moments.h"

#include <doctest/doctest.h>

#include "checkpoint_bench.h"
#include "core/error.h"
#include "data/hash.h"
#include "train/checkpoint_files.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

// Ascending numbers from `begin`.
data::NamedTensor counted(const std::string& name, const Shape& shape, double begin, double step) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(begin + step * static_cast<double>(i));
  return {name, Tensor::from(values, shape, DType::f32)};
}

// A checkpoint of Bench put together by hand; the moments are in the files given.
struct ByHand {
  TemporaryFolder temporary;
  std::string path = temporary.path("step_00000007");
  Bench bench;
  explicit ByHand(
      const std::vector<std::pair<std::string, std::vector<data::NamedTensor>>>& optimizer) {
    bench.save(path);
    std::filesystem::remove(path + "/optimizer.safetensors");
    std::vector<ManifestFile> files;
    for (const ManifestFile& file : read_manifest(path)) {
      if (!is_optimizer_file(file.name)) files.push_back(file);
    }
    for (const auto& [name, tensors] : optimizer)
      files.push_back(write_tensors(path, name, tensors, {}));
    overwrite(path + "/manifest.json", manifest_json(files));
  }
  void load(Bench& into) const { Checkpoint(path).load_optimizer(into.ctx, *into.store); }
  std::string message() const {
    Bench other;
    other.fill_moments(-1);
    std::string out;
    try {
      load(other);
    } catch (const CheckpointError& e) {
      out = e.what();
    }
    // All or nothing.
    CHECK(other.store->first_moment().data<float>()[1] == -1.0F);
    return out;
  }
};

// Of Bench(4): weight is elements 0 to 11 of the flat buffers, bias 64 to 66.
std::vector<data::NamedTensor> seconds() {
  return {counted("second/weight", {3, 4}, 0, 2), counted("second/bias", {3}, 128, 2)};
}

std::vector<data::NamedTensor> with_seconds(std::vector<data::NamedTensor> firsts) {
  for (const data::NamedTensor& named : seconds())
    firsts.push_back(named);
  return firsts;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a checkpoint of one file, as every run wrote it once, is read") {
  const ByHand old({{"optimizer.safetensors", with_seconds({counted("first/weight", {3, 4}, 0, 1),
                                                            counted("first/bias", {3}, 64, 1)})}});
  Bench other;
  other.fill_moments(-1);
  old.load(other);
  CHECK(other.moments_are_right());
}

TEST_CASE("pieces may be cut anywhere and lie in any order in any number of files") {
  const ByHand saved({
      {"optimizer-00001-of-00003.safetensors",
       {counted("first/weight[5:12]", {7}, 5, 1), counted("first/weight[0:1]", {1}, 0, 1)}},
      {"optimizer-00002-of-00003.safetensors", seconds()},
      {"optimizer-00003-of-00003.safetensors",
       {counted("first/bias[0:3]", {3}, 64, 1), counted("first/weight[1:5]", {4}, 1, 1)}},
  });
  Bench other;
  other.fill_moments(-1);
  saved.load(other);
  CHECK(other.moments_are_right());
}

TEST_CASE("elements that are in no file, or in two, are named") {
  const ByHand saved({
      {"optimizer-00001-of-00002.safetensors",
       with_seconds({counted("first/weight[1:4]", {3}, 1, 1), counted("first/bias", {3}, 64, 1)})},
      {"optimizer-00002-of-00002.safetensors",
       {counted("first/weight[3:8]", {5}, 3, 1), counted("first/weight[9:11]", {2}, 9, 1)}},
  });
  const std::string message = saved.message();
  CHECK(has(message, "missing     first/weight[0:1]"));
  CHECK(has(message,
            "overlapping first/weight[3:8] (optimizer-00002-of-00002.safetensors) and "
            "first/weight[1:4] (optimizer-00001-of-00002.safetensors)"));
  CHECK(has(message, "missing     first/weight[8:9]"));
  CHECK(has(message, "missing     first/weight[11:12]"));
  CHECK_FALSE(has(message, "bias"));
}

TEST_CASE("a whole parameter beside a piece of it overlaps") {
  const ByHand saved(
      {{"optimizer.safetensors", with_seconds({counted("first/weight", {3, 4}, 0, 1),
                                               counted("first/weight[4:8]", {4}, 4, 1),
                                               counted("first/bias", {3}, 64, 1)})}});
  CHECK(has(saved.message(),
            "overlapping first/weight[4:8] (optimizer.safetensors) and "
            "first/weight (optimizer.safetensors)"));
}

TEST_CASE("a file that is not in the manifest leaves its moments missing") {
  const ByHand saved(
      {{"optimizer-00001-of-00002.safetensors",
        {counted("first/weight", {3, 4}, 0, 1), counted("first/bias", {3}, 64, 1)}}});
  const std::string message = saved.message();
  CHECK(has(message, "missing     second/weight [3,4]"));
  CHECK(has(message, "missing     second/bias [3]"));
}

TEST_CASE("pieces of another shape, of no parameter or beyond one are refused by name") {
  const ByHand saved(
      {{"optimizer.safetensors",
        with_seconds(
            {counted("first/weight", {4, 3}, 0, 1), counted("first/bias[0:2]", {1, 2}, 64, 1),
             counted("first/bias[2:4]", {2}, 66, 1), counted("first/bias[2:x]", {1}, 66, 1),
             counted("first/other", {1}, 0, 1), counted("third", {1}, 0, 1)})}});
  const std::string message = saved.message();
  CHECK(has(message, "mis-shaped  first/weight [4,3], but the model has [3,4]"));
  CHECK(has(message, "mis-shaped  first/bias[0:2] [1,2], but the model has [2]"));
  for (const char* name : {"first/bias[2:4]", "first/bias[2:x]", "first/other", "third"})
    CHECK(has(message, std::string("extra       ") + name));
  CHECK(has(message, "missing     first/bias[2:3]"));
}
