// Benchmarks: the shapes are those that others publish times for, the records keep their keys.

#include <cmath>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "models/build.h"
#include "study/bench_op.h"
#include "study/bench_task.h"
#include "study/bench_train.h"
#include "study/rates.h"
#include "study/timing.h"
#include "train/task.h"

using namespace fovea;
using namespace fovea::study;

namespace {

std::int64_t parameters_of(const char* name) {
  const BenchShape& shape = bench_shape(name);
  const auto task = make_bench_task(shape, bench_config(shape, {.device = "cpu"}));
  return models::parameter_count(task->model());
}

// Counted by hand from the published programs: blocks of 12 C^2 + 13 C at a hidden width of 4 C.
std::int64_t gpt_parameters(std::int64_t v, std::int64_t t, std::int64_t c, std::int64_t layers) {
  return v * c + t * c + layers * (12 * c * c + 13 * c) + 2 * c;
}
std::int64_t encoder_parameters(std::int64_t t, std::int64_t c, std::int64_t layers,
                                std::int64_t mlp) {
  const std::int64_t block = 4 * c * c + 4 * c + 2 * c * mlp + mlp + c + 4 * c;
  return 256 * c + t * c + layers * block + 2 * c + 10 * c + 10;
}

data::Example example_of(const RandomTokens& source, std::int64_t i) {
  data::Example out;
  source.get(i, 0, out);
  return out;
}

BenchShape tiny(const char* like) {
  BenchShape shape = bench_shape(like);
  shape.layers = 1;
  shape.width = 32;
  shape.heads = 2;
  shape.mlp = 64;
  shape.batch = 4;
  shape.seq = 16;
  return shape;
}

const BenchSettings kCpuOnly{.device = "cpu", .threads = 1};

}  // namespace

TEST_SUITE("study") {
  TEST_CASE("the shapes have as many parameters as the models they stand for") {
    CHECK(parameters_of("gpt2-124m") == 124439808);
    CHECK(parameters_of("gpt2-124m") == gpt_parameters(50257, 1024, 768, 12));
    CHECK(parameters_of("gpt2-350m") == gpt_parameters(50257, 1024, 1024, 24));
    CHECK(parameters_of("small") == gpt_parameters(256, 256, 256, 4));
    CHECK(parameters_of("lra_tiny") == encoder_parameters(1024, 64, 2, 128));
    CHECK(parameters_of("niah_1k") == encoder_parameters(1024, 128, 4, 512));
    CHECK(parameters_of("lra_text") == encoder_parameters(4096, 256, 4, 1024));
    CHECK(parameters_of("lra_listops") == encoder_parameters(2000, 512, 6, 2048));
  }

  TEST_CASE("utilisation counts what the published programs count") {
    // 124M with its vocabulary padded to 50,304, 504,284 tokens/s: published as 43.6 % of 989
    // TFLOP/s.
    const BenchShape& shape = bench_shape("gpt2-124m");
    const double tokens = static_cast<double>(shape.batch * shape.seq);
    const double flops = bench_flops(shape, gpt_parameters(50304, 1024, 768, 12)) / tokens;
    CHECK(std::abs(flops * 504284 / 989e12 - 0.436) < 5e-4);
  }

  TEST_CASE("an unknown shape is answered with the nearest") {
    CHECK_THROWS_WITH_AS(bench_shape("gpt2-125m"), doctest::Contains("did you mean gpt2-124m?"),
                         ConfigError);
  }

  TEST_CASE("every step has tokens of its own, and the same ones in every run") {
    const BenchShape& shape = bench_shape("gpt2-124m");
    const RandomTokens source(shape, 1), again(shape, 1), other(shape, 2);
    const data::Example first = example_of(source, 0);
    CHECK(first.tokens == example_of(again, 0).tokens);
    CHECK(first.tokens != example_of(other, 0).tokens);
    CHECK(first.tokens != example_of(source, 1).tokens);
    CHECK(static_cast<std::int64_t>(first.tokens.size()) == shape.seq);
    CHECK(std::equal(first.tokens.begin() + 1, first.tokens.end(), first.targets.begin()));
    for (const std::int32_t token : first.tokens)
      CHECK((token >= 0 && token < shape.vocab));
    const std::set<std::int32_t> different(first.tokens.begin(), first.tokens.end());
    CHECK(different.size() > 900);
  }

  TEST_CASE("a classifier's example has one class, drawn anew") {
    const BenchShape& shape = bench_shape("lra_tiny");
    const RandomTokens source(shape, 1);
    std::set<std::int32_t> classes;
    for (std::int64_t i = 0; i < 200; ++i) {
      const data::Example example = example_of(source, i);
      classes.insert(example.targets[0]);
      CHECK(example.targets.size() == 1);
    }
    CHECK(classes.size() == 10);
    CHECK(source.target_tokens(0, 0) == 1);
  }

  TEST_CASE("a bench of the CPU says all that its record promises") {
    log::console(false);
    const TrainBench result = bench_train(tiny("small"), kCpuOnly, 0.01);
    train::JsonObject object;
    add_to(object, result);
    const auto record = nlohmann::json::parse(object.str());
    const std::set<std::string> promised = {
        "shape",     "batch",      "seq",          "micro_batches", "precision",
        "attention", "device",     "parameters",   "reproducible",  "ms",
        "mfu",       "floor_ms",   "steps",        "warm_up_steps", "tokens_per_second",
        "loss",      "peak_bytes", "device_bytes", "peak_by_tag",   "first_loss_seconds",
        "graphs",    "no_graph",   "ranks",        "clock_mhz",     "power_w",
        "no_clock"};
    std::set<std::string> found;
    for (const auto& [key, value] : record.items())
      found.insert(key);
    CHECK(found == promised);
    CHECK(record["ms"].get<double>() > 0);
    CHECK(std::abs(record["tokens_per_second"].get<double>() * record["ms"].get<double>() / 64e3 -
                   1) < 1e-9);
    CHECK(record["mfu"].is_null());
    CHECK(record["graphs"] == 0);
    CHECK(record["precision"] == "fp32");
    CHECK(std::abs(record["loss"].get<double>() - std::log(256.0)) < 0.2);
    std::size_t tagged = 0;
    for (const auto& [tag, bytes] : record["peak_by_tag"].items())
      tagged += bytes.get<std::size_t>();
    CHECK(tagged > 0);
    CHECK(record["peak_bytes"].get<std::size_t>() > 0);
    CHECK(text_of(result).find("graphs     none: there are none on the cpu") != std::string::npos);
  }

  TEST_CASE("an encoder starts at the loss of guessing among its classes") {
    log::console(false);
    const TrainBench result = bench_train(tiny("lra_tiny"), kCpuOnly, 0.01);
    CHECK(std::abs(result.loss - std::log(10.0)) < 0.2);
    CHECK(result.shape.encoder);
  }

  TEST_CASE("batch, length and micro-batches replace the shape's") {
    log::console(false);
    BenchSettings settings = kCpuOnly;
    settings.batch = 6;
    settings.micro = 2;
    settings.seq = 8;
    settings.reproducible = false;
    const TrainBench result = bench_train(tiny("small"), settings, 0.01);
    CHECK(result.shape.batch == 6);
    CHECK(result.shape.seq == 8);
    CHECK(result.micro_batches == 3);
    CHECK_FALSE(result.reproducible);
    CHECK_THROWS_AS(bench_train(tiny("small"), {.precision = "fp33", .device = "cpu"}, 0.01),
                    ConfigError);
  }

  TEST_CASE("an op that is not there is answered with the nearest") {
    Stream stream(kCpu, 1);
    CHECK_THROWS_WITH_AS(bench_ops(stream, "adam_step", {1e9, 1e9}),
                         doctest::Contains("did you mean adamw_step?"), ConfigError);
  }

  TEST_CASE("a kernel's time comes with its bytes and its floor") {
    Stream stream(kCpu, 2);
    const auto times = bench_ops(stream, "squared_norm", {1e9, 1e9});
    REQUIRE(times.size() == 1);
    CHECK(times[0].bytes == 4.0 * (1 << 20));
    CHECK(times[0].floor_ms == doctest::Approx(4.194304));
    const auto record = nlohmann::json::parse(json_of(times));
    CHECK(record[0]["op"] == "squared_norm");
    CHECK(record[0]["rate"].get<double>() > 0);
  }

  TEST_CASE("the median of an even number of times lies between the middle two") {
    CHECK(median({4, 1, 3, 2}) == 2.5);
    CHECK(median({5, 1, 3}) == 3);
  }
}

TEST_CASE("rates that cannot be measured say why") {
  std::string why;
  CHECK(!rates_now(Device{Device::Kind::cuda, 63}, why).has_value());
  CHECK(!why.empty());
}
