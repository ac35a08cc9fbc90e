// Tuning tables read back as they were written.

#include "train/tuning_table.h"

#include <fstream>

#include <doctest/doctest.h>

#include "core/error.h"
#include "train/temporary.h"

using namespace fovea;

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
    std::ofstream(path) << train::tuning_yaml({"NVIDIA H200", "13.1.0", {product, {}}});

    const train::TuningTable table = train::read_tuning_table(path);
    CHECK(table.gpu == "NVIDIA H200");
    CHECK(table.cublaslt == "13.1.0");
    REQUIRE(table.products.size() == 2);
    CHECK(table.products[0].key.tied() == product.key.tied());
    CHECK(table.products[1].key.tied() == cuda::GemmKey{}.tied());
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
}
