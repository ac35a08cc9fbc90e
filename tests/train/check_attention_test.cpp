#include "train/check_attention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "attention/registry.h"
#include "core/cuda_runtime.h"
#include "skip.h"
#include "train/attention_case.h"

using namespace fovea;
using namespace fovea::test;
using namespace fovea::train;

namespace {

// The golden cases of the registered kinds.
std::vector<std::filesystem::path> golden_cases() {
  std::vector<std::filesystem::path> out;
  const std::string folder = test::test_data("attention-golden");
  if (folder.empty()) return out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".in.safetensors")) continue;
    const data::SafetensorsFile file(entry.path().string());
    if (attention::find_attention(file.metadata().at("kind")) != nullptr)
      out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

CheckFileArgs golden_args(const std::filesystem::path& input, const std::string& precision) {
  const std::string path = input.string();
  CheckFileArgs args;
  args.kind = data::SafetensorsFile(path).metadata().at("kind");
  args.input = path;
  args.expect =
      path.substr(0, path.size() - std::string("in.safetensors").size()) + "out.safetensors";
  args.precision = precision;
  return args;
}

}  // namespace

TEST_CASE("the golden cases of every registered kind pass in fp32 and fp64") {
  const auto cases = golden_cases();
  if (cases.empty()) FOVEA_SKIP("no attention-golden data");
  const test::TemporaryFolder folder;
  for (const auto& input : cases) {
    for (const std::string precision : {"fp32", "fp64"}) {
      CAPTURE(input.filename().string());
      CAPTURE(precision);
      CheckFileArgs args = golden_args(input, precision);
      args.output = folder.path("result.safetensors");
      const CheckFileResult result = check_attention_file(args);
      CHECK_MESSAGE(result.passed(), rows_text(result));
      CHECK(result.rows.size() >= 4);
      const data::SafetensorsFile written(args.output);
      CHECK(written.find("o")->stored_dtype == (precision == "fp64" ? "F64" : "F32"));
    }
  }
}

TEST_CASE(
    "the golden cases of standard pass with the materialised kernel, and near enough in 16 bit") {
  const auto cases = golden_cases();
  if (cases.empty()) FOVEA_SKIP("no attention-golden data");
  int seen = 0;
  for (const auto& input : cases) {
    CheckFileArgs args = golden_args(input, "fp32");
    if (args.kind != "standard") continue;
    ++seen;
    CAPTURE(input.filename().string());
    args.kernel = "materialised!";
    for (const std::string precision : {"fp32", "fp64"}) {
      args.precision = precision;
      const CheckFileResult result = check_attention_file(args);
      CHECK(result.kernel == "materialised");
      CHECK_MESSAGE(result.passed(), rows_text(result));
    }
    args.kernel = "";
    for (const std::string precision : {"fp16-mixed", "bf16-mixed"}) {
      args.precision = precision;
      const CheckFileResult result = check_attention_file(args);
      CHECK_MESSAGE(result.passed(), rows_text(result));
    }
  }
  CHECK(seen >= 8);
}

TEST_CASE("the golden cases of every registered kind pass on a GPU in f32, and near enough below") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const auto cases = golden_cases();
  if (cases.empty()) FOVEA_SKIP("no attention-golden data");
  for (const auto& input : cases) {
    for (const std::string precision : {"fp32", "tf32", "fp16-mixed", "bf16-mixed"}) {
      CAPTURE(input.filename().string());
      CAPTURE(precision);
      CheckFileArgs args = golden_args(input, precision);
      args.device = "cuda";
      const CheckFileResult result = check_attention_file(args);
      if (precision == "fp32") CHECK_MESSAGE(result.passed(), rows_text(result));
      for (const CheckFileRow& row : result.rows)
        CHECK(row.reason.find("NaN") == std::string::npos);
    }
  }
}

TEST_CASE("a wrong number is found, named and measured") {
  const test::TemporaryFolder folder;
  write_case(folder.path("a.in.safetensors"), plain_case());
  CheckFileArgs args{.kind = "exact",
                     .input = folder.path("a.in.safetensors"),
                     .output = folder.path("a.out.safetensors")};
  check_attention_file(args);
  args.expect = args.output;
  args.output = "";
  CHECK(check_attention_file(args).passed());

  // One wrong value of grad.k; one tensor that nothing writes; infinity where there is none.
  const data::SafetensorsFile good(args.expect);
  std::vector<data::NamedTensor> tensors;
  for (const auto& entry : good.entries()) {
    tensors.push_back({entry.name, good.read(entry.name)});
    if (entry.name == "grad.k") tensors.back().tensor.data<float>()[3] += 0.5f;
    if (entry.name == "lse")
      tensors.back().tensor.data<float>()[0] = -std::numeric_limits<float>::infinity();
  }
  tensors.push_back({"den", ramp({1, 2, 3}, 1)});
  data::write_safetensors(folder.path("b.out.safetensors"), tensors);
  args.expect = folder.path("b.out.safetensors");
  const CheckFileResult result = check_attention_file(args);
  CHECK(!result.passed());
  for (const CheckFileRow& row : result.rows) {
    CAPTURE(row.name);
    CHECK(row.passed == (row.name != "grad.k" && row.name != "den" && row.name != "lse"));
    if (row.name == "grad.k") CHECK(row.error > 0.1);
    if (row.name == "den") CHECK(row.reason == "not written");
  }
}

TEST_CASE("rows of invalid tokens must be zero in what is compared, whatever is expected there") {
  const test::TemporaryFolder folder;
  Case tensors = plain_case();
  tensors["key_valid"] = Tensor::from(std::vector<double>{1, 1, 0}, {1, 3}, DType::u8);
  write_case(folder.path("a.in.safetensors"), tensors);
  CheckFileArgs args{.kind = "standard",
                     .input = folder.path("a.in.safetensors"),
                     .output = folder.path("a.out.safetensors")};
  check_attention_file(args);
  const data::SafetensorsFile written(args.output);
  const Tensor o = written.read("o");
  for (const double value : o.slice(2, 2, 3).values())
    CHECK(value == 0);
  for (const double value : written.read("lse").slice(2, 2, 3).values())
    CHECK(value == -std::numeric_limits<double>::infinity());
}

TEST_CASE("overrides and the kernel argument replace options of the file") {
  const test::TemporaryFolder folder;
  write_case(folder.path("a.in.safetensors"), plain_case());
  CheckFileArgs args{.kind = "standard",
                     .input = folder.path("a.in.safetensors"),
                     .output = folder.path("causal.safetensors")};
  check_attention_file(args);
  args.output = folder.path("full.safetensors");
  args.overrides = {"causal=false", "scale=0.5"};
  args.kernel = "materialised";
  CHECK(check_attention_file(args).kernel == "materialised");
  CHECK(data::SafetensorsFile(args.output).read("o").values() !=
        data::SafetensorsFile(folder.path("causal.safetensors")).read("o").values());
}

TEST_CASE("what does not fit is refused by name") {
  const test::TemporaryFolder folder;
  const auto tried = [&](const Case& tensors, const std::string& options = "{\"causal\": true}",
                         const std::string& kind = "standard") {
    write_case(folder.path("x.in.safetensors"), tensors, options, kind);
    return refusal({.kind = "standard", .input = folder.path("x.in.safetensors"), .output = ""});
  };
  CHECK(tried(plain_case()).empty());
  check_mentions(tried(plain_case(), "{\"causal\": true, \"scal\": 2}"), "scale");
  check_mentions(tried(plain_case(), "{\"scale\": -2}"), "scale");
  check_mentions(tried(plain_case(), "[1]"), "must be a JSON object");
  check_mentions(tried(plain_case(), "{\"causal\": tru"), "options");
  check_mentions(tried(plain_case(), "{\"layer\": -1}"), "layer is -1");
  check_mentions(tried(plain_case(), "{\"max_len\": 99999999999}"), "max_len is 99999999999");
  check_mentions(tried(plain_case(), "{}", "sfa"), "sfa");
  Case missing = plain_case();
  missing.erase("do");
  check_mentions(tried(missing), "do is missing");
  Case unexpected = plain_case();
  unexpected["param.S"] = ramp({2, 2}, 1);
  check_mentions(tried(unexpected), "param.S is unexpected");
  Case den = plain_case();
  den["dden"] = ramp({1, 2, 3}, 1);
  check_mentions(tried(den), "dden is unexpected");
  Case narrow = plain_case();
  narrow["k"] = ramp({1, 1, 3, 3}, 1);
  check_mentions(tried(narrow), "k is [1,1,3,3], but must be [1,1,3,4]");
  Case flat = plain_case();
  flat["q"] = ramp({6, 4}, 1);
  check_mentions(tried(flat), "4 axes");
  Case heads = plain_case();
  heads["k"] = ramp({1, 3, 3, 4}, 1);
  heads["v"] = ramp({1, 3, 3, 5}, 1);
  check_mentions(tried(heads), "multiple");

  write_case(folder.path("x.in.safetensors"), plain_case());
  CheckFileArgs args{.kind = "standard", .input = folder.path("x.in.safetensors")};
  args.precision = "tf32";
  check_mentions(refusal(args), "tf32");
  args.precision = "fp8";
  check_mentions(refusal(args), "fp8");
  args.precision = "fp32";
  args.kind = "standart";
  check_mentions(refusal(args), "did you mean standard");
  args.kind = "standard";
  args.kernel = "fast";
  check_mentions(refusal(args), "tiled");
  args.kernel = "";
  if (cuda::device_count() == 0) {
    args.device = "cuda";
    CHECK_THROWS_AS(check_attention_file(args), DeviceError);
  }
  args.device = "gpu";
  check_mentions(refusal(args), "must be cpu or cuda");
  args.device = "cpu";
  args.input = folder.path("absent.safetensors");
  CHECK_THROWS_AS(check_attention_file(args), IoError);
}
