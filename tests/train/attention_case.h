#pragma once
// Small cases of `check attention` as files, and what is said of them.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "train/check_attention.h"
#include "train/temporary.h"

namespace fovea::test {

using train::check_attention_file;
using train::CheckFileArgs;
using train::CheckFileResult;
using train::CheckFileRow;

inline Tensor ramp(Shape shape, double step) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(step * static_cast<double>(i + 1));
  return Tensor::from(values, shape, DType::f32);
}

using Case = std::map<std::string, Tensor>;

inline Case plain_case() {
  return {{"q", ramp({1, 2, 3, 4}, 0.7)},
          {"k", ramp({1, 1, 3, 4}, 1.1)},
          {"v", ramp({1, 1, 3, 5}, 1.7)},
          {"do", ramp({1, 2, 3, 5}, 2.3)}};
}

inline void write_case(const std::string& path, const Case& tensors,
                       const std::string& options = "{\"causal\": true}",
                       const std::string& kind = "standard") {
  std::vector<data::NamedTensor> list;
  for (const auto& [name, tensor] : tensors)
    list.push_back({name, tensor});
  data::write_safetensors(path, list, {{"kind", kind}, {"options", options}});
}

inline std::string refusal(const CheckFileArgs& args) {
  try {
    check_attention_file(args);
  } catch (const ConfigError& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "";
}

inline std::string rows_text(const CheckFileResult& result) {
  std::string out;
  for (const CheckFileRow& row : result.rows)
    out += row.name + " " + std::to_string(row.error) + " " + row.reason + "\n";
  return out;
}

// That `text` holds `part`.
inline void check_mentions(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text << " does not mention " << part);
}

}  // namespace fovea::test
