#include "data/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/text.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

std::string container(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

// The reason a file with this header and so many bytes of data is refused for; "" if it is read.
std::string refusal(const std::string& header, std::size_t data_bytes = 0) {
  const TempFolder folder;
  const std::string path =
      folder.put("x.safetensors", container(header, std::string(data_bytes, '\0')));
  const std::string message = message_of([&] { SafetensorsFile file(path); });
  if (message.empty()) return {};
  CHECK(message.starts_with(path + ": "));
  return message.substr(path.size() + 2);
}

std::vector<NamedTensor> some_tensors() {
  return {{"z", Tensor::from(std::vector<double>{1, -2, 0.5, 4, 5, 6}, {2, 3}, DType::f32)},
          {"a", Tensor::from(std::vector<double>{7}, {}, DType::i64)},
          {"half", Tensor::from(std::vector<double>{1, 2, 3}, {3}, DType::bf16)},
          {"empty", Tensor::empty({0, 4}, DType::f64, kCpu)}};
}

}  // namespace

TEST_CASE("written tensors and metadata read back, in the order they were given") {
  const TempFolder folder;
  const auto tensors = some_tensors();
  write_safetensors(folder / "x", tensors, {{"step", "12"}, {"config", "{\"a\":\"\n\"}"}});
  const SafetensorsFile file(folder / "x");
  CHECK(file.metadata() ==
        std::map<std::string, std::string>{{"config", "{\"a\":\"\n\"}"}, {"step", "12"}});
  REQUIRE(file.entries().size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(file.entries()[i].name == tensors[i].name);
    const Tensor read = file.read(tensors[i].name);
    CHECK(read.dtype() == tensors[i].tensor.dtype());
    CHECK(read.shape() == tensors[i].tensor.shape());
    CHECK(read.values() == tensors[i].tensor.values());
  }
}

TEST_CASE("every dtype survives writing and reading") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    tensors.push_back(
        {name_of(dtype), Tensor::from(std::vector<double>{0, 1, 2, 100}, {4}, dtype)});
  }
  write_safetensors(folder / "x", tensors);
  const SafetensorsFile file(folder / "x");
  for (const NamedTensor& named : tensors) {
    CHECK(file.read(named.name).dtype() == named.tensor.dtype());
    CHECK(file.read(named.name).values() == named.tensor.values());
  }
}

TEST_CASE("the same tensors give the same bytes, with data at a multiple of 8") {
  const TempFolder folder;
  write_safetensors(folder / "a", some_tensors(), {{"k", "v"}});
  write_safetensors(folder / "b", some_tensors(), {{"k", "v"}});
  const std::string bytes = read_file(folder / "a");
  CHECK(bytes == read_file(folder / "b"));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.substr(8, 39) == R"({"__metadata__":{"k":"v"},"z":{"dtype":)");
}

TEST_CASE("the writer refuses names that would make an unreadable file, and leaves nothing") {
  const TempFolder folder;
  const Tensor one = Tensor::from(std::vector<double>{1}, {1}, DType::f32);
  for (const std::vector<NamedTensor>& tensors :
       {std::vector<NamedTensor>{{"a", one}, {"a", one}},
        std::vector<NamedTensor>{{"__metadata__", one}}, std::vector<NamedTensor>{{"\xff", one}}}) {
    CHECK_THROWS_AS(write_safetensors(folder / "x", tensors), IoError);
    CHECK_FALSE(std::filesystem::exists(folder / "x"));
  }
}

TEST_CASE("a missing tensor is named with its nearest neighbour") {
  const TempFolder folder;
  write_safetensors(folder / "x", some_tensors());
  const SafetensorsFile file(folder / "x");
  CHECK(file.find("hal") == nullptr);
  const std::string message = message_of([&] { file.read("hal"); });
  CHECK(contains(message, "has no tensor \"hal\"; the nearest is \"half\""));
}

TEST_CASE("BOOL is read as u8") {
  const TempFolder folder;
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const SafetensorsFile file(folder.put("x", container(header, std::string("\1\0\1", 3))));
  CHECK(file.entries()[0].stored_dtype == "BOOL");
  CHECK(file.read("m").dtype() == DType::u8);
  CHECK(file.read("m").values() == std::vector<double>{1, 0, 1});
}

TEST_CASE("a tensor of more axes than we have is listed but not read") {
  const TempFolder folder;
  const std::string header = R"({"m":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})";
  const SafetensorsFile file(folder.put("x", container(header, "a")));
  CHECK(file.entries()[0].shape.size() == 7);
  CHECK(contains(message_of([&] { file.read("m"); }), "has 7 axes, but at most 6"));
}

TEST_CASE("a header that lies is refused for the reason") {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return "{\"x\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
           "}}";
  };
  CHECK(refusal(entry("\"U8\"", "[4]", "[0,4]"), 4).empty());
  CHECK(contains(refusal(entry("\"F8_E4M3\"", "[4]", "[0,4]"), 4),
                 "dtype \"F8_E4M3\" is not supported; known are F64"));
  CHECK(contains(refusal(entry("\"U8\"", "[4]", "[0,3]"), 3),
                 "has 3 bytes, but dtype and shape need 4"));
  CHECK(contains(refusal(entry("\"U8\"", "[4]", "[0,4]"), 3), "the data ends at byte 3 of 4"));
  CHECK(contains(refusal(entry("\"U8\"", "[4]", "[0,4]"), 5), "1 bytes follow the last tensor"));
  CHECK(contains(refusal(entry("\"U8\"", "[4]", "[1,5]"), 5),
                 "bytes 0 to 1 of the data belong to no tensor"));
  CHECK(contains(refusal(entry("\"U8\"", "[4.0]", "[0,4]"), 4), "\"4.0\", not a whole number"));
  CHECK(contains(refusal(entry("\"U8\"", "[-4]", "[0,4]"), 4), "not a whole number"));
  CHECK(contains(refusal(entry("\"U8\"", "[0,9223372036854775807,9223372036854775807]", "[0,0]")),
                 "overflows"));
  CHECK(contains(refusal(entry("\"U8\"", "[18446744073709551615]", "[0,4]"), 4), "overflows"));
  CHECK(contains(refusal(entry("\"U8\"", "4", "[0,4]"), 4), "shape is not a list"));
  CHECK(contains(refusal(entry("3", "[4]", "[0,4]"), 4), "dtype is not a string"));
  CHECK(contains(refusal(entry("\"U8\"", "[4]", "[0,4,4]"), 4), "not a list of two"));
  CHECK(contains(refusal(R"({"x":{"dtype":"U8","shape":[1]}})", 1),
                 "tensor \"x\": has no data_offsets"));
  CHECK(
      contains(refusal(R"({"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
               "\"dtype\" is there twice"));
  CHECK(contains(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{}})", 1),
                 "\"a\" is there twice"));
  CHECK(contains(refusal(std::string("{}\0 {", 5)), "NUL byte"));
  CHECK(contains(refusal("{} {}"), "not JSON"));
  CHECK(contains(refusal(" {}"), "does not begin with {"));
  CHECK(contains(refusal(""), "does not begin with {"));
  CHECK(contains(refusal("{\"\x1b[31m\":1}"), "not JSON"));
  CHECK(refusal("{\"\x1b[31m\":1}").find('\x1b') == std::string::npos);
}

TEST_CASE("deep nesting is refused, not recursed into") {
  CHECK(contains(refusal("{\"x\":" + std::string(2'000'000, '[')), "nests deeper"));
  std::string objects = "{";
  for (int i = 0; i < 300'000; ++i)
    objects += "\"x\":{";
  CHECK(contains(refusal(objects), "nests deeper"));
}

TEST_CASE("a header length beyond the limit is refused before anything is allocated") {
  const TempFolder folder;
  const std::uint64_t length = 100'000'001;
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  const std::string path = folder.put("x", bytes);
  std::filesystem::resize_file(path, 200'000'000);  // sparse: the length would fit
  CHECK(contains(message_of([&] { SafetensorsFile file(path); }), "above the limit"));
}

TEST_CASE("the hostile safetensors files end as EXPECTED.tsv says (test data)") {
  const std::string table = test::test_data("hostile/EXPECTED.tsv");
  if (table.empty()) FOVEA_SKIP("no hostile/EXPECTED.tsv");
  std::ifstream lines(table);
  int good = 0, bad = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("safetensors/")) continue;
    const std::string path = test::test_data("hostile/" + line.substr(0, line.find('\t')));
    CAPTURE(line);
    const auto read_all = [&] {
      const SafetensorsFile file(path);
      for (const SafetensorsEntry& entry : file.entries())
        file.read(entry.name);
    };
    if (contains(line, "/ok_")) {
      CHECK(message_of(read_all).empty());
      ++good;
    } else {
      CHECK_THROWS_AS(read_all(), IoError);
      CHECK(message_of(read_all).starts_with(path + ": "));
      ++bad;
    }
  }
  CHECK(good > 0);
  CHECK(bad > 0);
}

TEST_CASE("values of the published examples are read (test data)") {
  const std::string path = test::test_data("hostile/safetensors/ok_f32.safetensors");
  if (path.empty()) FOVEA_SKIP("no hostile/safetensors");
  const Tensor read = SafetensorsFile(path).read("attn.0");
  CHECK(read.shape() == Shape{1, 2, 3});
  CHECK(read.values() == std::vector<double>{0, 1, 2, 3, 4, 5});
  const SafetensorsFile odd(test::test_data("hostile/safetensors/ok_unaligned.safetensors"));
  CHECK(odd.read("b").values() == std::vector<double>{1, 2, 3});
}
