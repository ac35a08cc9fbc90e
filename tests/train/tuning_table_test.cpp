// Tuning tables read back as they were written.

#include "train/tuning_table.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "skip.h"
#include "train/temporary.h"

using namespace fovea;

namespace {

train::TunedProduct small_product(std::int64_t m, int candidate) {
  train::TunedProduct out;
  out.key = {.m = m, .n = 16, .k = 8, .lda = 8, .ldb = 8, .ldd = m};
  out.key = out.key.for_tuning();
  out.candidate = candidate;
  out.ms = 0.5;
  out.first_ms = 0.6;
  return out;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_SUITE("train") {
  TEST_CASE("a tuning table is read as it was written") {
    train::TunedProduct product;
    product.key = {.m = 2304,
                   .n = 65536,
                   .k = 768,
                   .lda = 768,
                   .ldb = 768,
                   .ldd = 2304,
                   .align_a = 16,
                   .align_b = 16,
                   .align_d = 8,
                   .factors = DType::bf16,
                   .out = DType::f32,
                   .bias = DType::bf16,
                   .transpose_a = true,
                   .accumulates = true,
                   .has_bias = true};
    product.candidate = 5;
    product.ms = 0.349;
    product.first_ms = 0.373;
    test::TemporaryFolder folder;
    const std::string path = folder.path() + "/table.yaml";
    std::ofstream(path) << train::tuning_yaml(
        {"NVIDIA H200", "13.1.0", {product, small_product(32, 1)}});

    const train::TuningTable table = train::read_tuning_table(path);
    CHECK(table.gpu == "NVIDIA H200");
    CHECK(table.cublaslt == "13.1.0");
    REQUIRE(table.products.size() == 2);
    CHECK(table.products[0].key.tied() == product.key.tied());
    CHECK(table.products[1].key.tied() == small_product(32, 1).key.tied());
    CHECK(table.products[0].candidate == 5);
    CHECK(table.products[0].ms == 0.349);
    CHECK(table.products[0].first_ms == 0.373);
  }

  TEST_CASE("a tuning table without products is one, with a hole it is none") {
    test::TemporaryFolder folder;
    const std::string path = folder.path() + "/table.yaml";
    std::ofstream(path) << train::tuning_yaml({"A", "1", {}});
    CHECK(train::read_tuning_table(path).products.empty());
    std::ofstream(path) << "gpu: A\ncublaslt: 1\nproducts:\n  - {m: 1}\n";
    CHECK_THROWS_WITH_AS(train::read_tuning_table(path), doctest::Contains(":4:"), ConfigError);
  }

  TEST_CASE("a table's file is named after its GPU") {
    CHECK(train::tuning_file_name("NVIDIA H200") == "nvidia_h200.yaml");
    CHECK(train::tuning_file_name("NVIDIA A100-SXM4-80GB") == "nvidia_a100_sxm4_80gb.yaml");
  }

  TEST_CASE("what is no table of tuned products is refused with its place") {
    test::TemporaryFolder folder;
    const std::string path = folder.path() + "/table.yaml";
    const std::string good =
        train::tuning_yaml({"A", "1", {small_product(32, 1), small_product(64, 1)}});
    const auto refusal = [&](const std::string& text) {
      std::ofstream(path) << text;
      try {
        train::read_tuning_table(path);
      } catch (const ConfigError& e) {
        return std::string(e.what());
      }
      return std::string("read");
    };
    CHECK(refusal(good) == "read");
    const auto says = [&](const std::string& text, const std::string& place,
                          const std::string& what) {
      const std::string refused = refusal(text);
      CAPTURE(refused);
      CHECK(refused.starts_with(path + place));
      CHECK(refused.find(what) != std::string::npos);
    };
    says("gpu: A\ncublaslt: 1\nproducts: 3\n", ":3:11: ", "products is 3, but must be a list");
    says(with(good, "gpu:", "gpus: 2\ngpu:"), ":3:1: ", "unknown key gpus");
    says(with(good, "batch: 1", "batch: 1, batches: 1"), ":6:", "unknown key batches");
    says(with(good, "ldd: 64", "ldd: -64"), ":7:", "ldd is -64");
    says(with(good, "n: 16", "n: 0"), ":6:", "n is 0");
    says(with(good, "stride_a: 0", "stride_a: -1"), ":6:", "stride_a is -1");
    says(with(good, "align_a: 16", "align_a: 4294967312"), ":6:", "align_a is 4294967312");
    says(with(good, "candidate: 1", "candidate: 8"), ":6:", "candidate is 8");
    says(with(good, "factors: f32", "factors: f64"), ":6:", "factors is 'f64'");
    says(with(with(good, "m: 64", "m: 32"), "ldd: 64", "ldd: 32"),
         ":7:", "the same product stands above already");
  }

  TEST_CASE("tuning other products leaves what a table knows, the same ones replace it") {
    const train::TuningTable old{"A", "1", {small_product(64, 3), small_product(32, 1)}};
    const train::TuningTable now{"A", "1", {small_product(128, 2)}};
    const auto shapes = [](const train::TuningTable& table) {
      std::vector<std::int64_t> out;
      for (const train::TunedProduct& product : table.products)
        out.push_back(product.key.m);
      return out;
    };
    using Shapes = std::vector<std::int64_t>;
    const cuda::GemmKey at_128 = now.products[0].key, at_64 = old.products[0].key;
    CHECK(shapes(merged(old, now, {at_128})) == Shapes{32, 64, 128});
    // Timed again, and the first answer is the best now.
    CHECK(shapes(merged(old, now, {at_128, at_64})) == Shapes{32, 128});
    CHECK(shapes(merged({"B", "1", old.products}, now, {at_128})) == Shapes{128});
    CHECK(shapes(merged({"A", "2", old.products}, now, {at_128})) == Shapes{128});
    const train::TuningTable again = merged(old, {"A", "1", {small_product(64, 5)}}, {at_64});
    CHECK(shapes(again) == Shapes{32, 64});
    CHECK(again.products[1].candidate == 5);
  }

  TEST_CASE("a table's fingerprint is of what it changes") {
    const train::TuningTable table{"A", "1", {small_product(64, 3), small_product(32, 1)}};
    const std::string own = fingerprint(table);
    train::TuningTable other = table;
    std::swap(other.products[0], other.products[1]);
    other.products[0].ms = 7;
    CHECK(fingerprint(other) == own);
    other.products[0].candidate = 2;
    CHECK(fingerprint(other) != own);
  }

  TEST_CASE(
      "on a GPU a candidate that cuBLASLt does not offer is refused when the table is applied") {
    if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
    Stream stream({Device::Kind::cuda, 0});
    train::TuningTable table{cuda::device_info(0).name, train::cublaslt_version(), {}};
    // Factors of one element have few algorithms.
    table.products.push_back(small_product(1, 7));
    table.products[0].key.n = table.products[0].key.k = 1;
    table.products[0].key.align_a = table.products[0].key.align_b = 4;
    table.products[0].key.factors = DType::f32;
    try {
      train::apply_tuning(stream, table, "t.yaml");
    } catch (const ConfigError& e) {
      CHECK(std::string(e.what()).find("t.yaml: candidate 7 does not exist") != std::string::npos);
    }
    table.products[0].candidate = 0;
    train::apply_tuning(stream, table, "t.yaml");
  }
}
