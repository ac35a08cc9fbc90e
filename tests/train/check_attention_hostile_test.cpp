// Files that no case is: `check attention` says what is wrong where, and what it should be.

#include <limits>

#include "train/attention_case.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("other dtypes, flags and numbers than a case holds are refused with name and place") {
  const test::TemporaryFolder folder;
  const std::string file = folder.path("x.in.safetensors");
  const auto said = [&](const Case& tensors, ExitCode code) -> std::string {
    write_case(file, tensors);
    try {
      check_attention_file({.kind = "standard", .input = file});
    } catch (const Error& error) {
      CHECK(error.code() == code);
      CHECK(std::string(error.what()).starts_with(file));
      return error.what();
    }
    return "";
  };
  const auto with = [](const char* name, const Tensor& tensor) {
    Case out = plain_case();
    out[name] = tensor;
    return out;
  };
  const auto ones = [](DType dtype) {
    return Tensor::from(std::vector<double>{1, 1, 1}, {1, 3}, dtype);
  };
  CHECK(said(with("key_valid", ones(DType::u8)), ExitCode::ok).empty());
  check_mentions(said(with("key_valid", ones(DType::f32)), ExitCode::usage),
                 "tensor key_valid is F32, but must be U8 or BOOL");
  check_mentions(
      said(with("key_valid", Tensor::from(std::vector<double>{1, 2, 1}, {1, 3}, DType::u8)),
           ExitCode::data),
      "key_valid is 2 at element 1, but must be 0 or 1");
  const std::vector<double> numbers(24, 1.0);
  check_mentions(said(with("q", Tensor::from(numbers, {1, 2, 3, 4}, DType::i32)), ExitCode::usage),
                 "tensor q is I32, but must be F32, F64, F16 or BF16");
  CHECK(said(with("q", Tensor::from(numbers, {1, 2, 3, 4}, DType::bf16)), ExitCode::ok).empty());

  const double nan = std::numeric_limits<double>::quiet_NaN();
  Case broken = plain_case();
  broken["k"].data<float>()[9] = static_cast<float>(nan);  // of token 2
  check_mentions(said(broken, ExitCode::data), "tensor k [1,1,3,4] is nan at element 9");
  broken["key_valid"] = Tensor::from(std::vector<double>{1, 1, 0}, {1, 3}, DType::u8);
  CHECK(said(broken, ExitCode::ok).empty());  // what an invalid token holds is arbitrary
  broken = plain_case();
  broken["do"].data<float>()[0] = std::numeric_limits<float>::infinity();
  check_mentions(said(broken, ExitCode::data), "tensor do [1,2,3,5] is inf at element 0");
}

TEST_CASE("numbers that overflow come out as failed rows, also where nothing is compared") {
  const test::TemporaryFolder folder;
  Case tensors = plain_case();
  for (const char* name : {"q", "k"}) {
    for (std::int64_t i = 0; i < tensors[name].numel(); ++i)
      tensors[name].data<float>()[i] *= 1e30f;
  }
  write_case(folder.path("x.in.safetensors"), tensors);
  const CheckFileResult result = check_attention_file({.kind = "standard",
                                                       .input = folder.path("x.in.safetensors"),
                                                       .output = folder.path("x.out.safetensors")});
  CHECK(!result.passed());
  REQUIRE(!result.rows.empty());
  CHECK(result.rows.front().name == "o");
  CHECK(result.rows.front().reason.starts_with("NaN at element"));
}

TEST_CASE("a file cut short anywhere is refused as data, and so is what is no container") {
  const test::TemporaryFolder folder;
  write_case(folder.path("whole.safetensors"), plain_case());
  const std::string bytes = test::contents(folder.path("whole.safetensors"));
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    test::overwrite(folder.path("cut.safetensors"), bytes.substr(0, length));
    CAPTURE(length);
    CHECK_THROWS_AS(
        check_attention_file({.kind = "standard", .input = folder.path("cut.safetensors")}),
        IoError);
  }
}

TEST_CASE("what is compared with is the result of a case of the same kind") {
  const test::TemporaryFolder folder;
  const std::string in = folder.path("x.in.safetensors"), out = folder.path("x.out.safetensors");
  write_case(in, plain_case());
  check_attention_file({.kind = "standard", .input = in, .output = out});
  check_mentions(refusal({.kind = "standard", .input = in, .expect = in}),
                 "it is an input, no result");
  check_mentions(refusal({.kind = "standard", .input = in, .output = in}), "--output is");
  check_mentions(refusal({.kind = "standard", .input = in, .output = out, .expect = out}),
                 "the file of --expect");

  // The result of other tensors: every shape that differs is a row of its own.
  Case longer = plain_case();
  longer["q"] = ramp({1, 2, 4, 4}, 0.7);
  longer["k"] = ramp({1, 1, 4, 4}, 1.1);
  longer["v"] = ramp({1, 1, 4, 5}, 1.7);
  longer["do"] = ramp({1, 2, 4, 5}, 2.3);
  write_case(folder.path("longer.in.safetensors"), longer);
  const CheckFileResult result = check_attention_file(
      {.kind = "standard", .input = folder.path("longer.in.safetensors"), .expect = out});
  CHECK(!result.passed());
  for (const CheckFileRow& row : result.rows)
    CHECK(row.reason.find("shape [") == 0);

  const data::SafetensorsFile file(out);
  data::write_safetensors(folder.path("other.safetensors"),
                          std::vector{data::NamedTensor{"o", file.read("o")}},
                          {{"kind", "linear"}});
  check_mentions(
      refusal({.kind = "standard", .input = in, .expect = folder.path("other.safetensors")}),
      "holds results of linear, not of standard");
}

TEST_CASE("random blocks that no block is are refused") {
  const test::TemporaryFolder folder;
  Case tensors = plain_case();
  for (const char* name : {"q", "k", "v", "do"}) {
    const Tensor& x = tensors[name];
    tensors[name] = ramp({1, 2, 16, x.size(3)}, 0.9);
  }
  const auto blocks = [](double one) {
    return Tensor::from(std::vector<double>{-1, 1, 1, one, -1, 1, 1, -1}, {2, 4, 1}, DType::i32);
  };
  const std::string options = R"({"causal": true, "block": 4, "random_blocks": 1, "max_len": 16})";
  tensors["draw.blocks"] = blocks(1);
  write_case(folder.path("x.in.safetensors"), tensors, options, "bigbird");
  CHECK(refusal({.kind = "bigbird", .input = folder.path("x.in.safetensors")}).empty());
  tensors["draw.blocks"] = blocks(4);
  write_case(folder.path("x.in.safetensors"), tensors, options, "bigbird");
  CHECK(refusal({.kind = "bigbird", .input = folder.path("x.in.safetensors")})
            .find("blocks holds 4 at element 3") != std::string::npos);
}
