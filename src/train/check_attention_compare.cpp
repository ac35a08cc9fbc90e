#include "train/check_attention_compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/yaml.h"
#include "core/text.h"

namespace fovea::train {

namespace {

// baselines.md 2.4; the golden cases fix none for tf32 and 16 bit.
constexpr double kNarrowTolerance = 2e-2;

// "" if the element-wise comparison passes; fills row.error.
std::string difference(const std::vector<double>& found, const std::vector<double>& expected,
                       CheckFileRow& row) {
  double error = 0, size = 0.01;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double a = found[i], b = expected[i];
    if (std::isnan(a)) return cat("NaN at element ", i);
    if (std::isnan(b)) return cat("the file to compare with holds NaN at element ", i);
    if (std::isinf(a) || std::isinf(b)) {
      if (a != b) return cat("element ", i, " is ", a, ", expected ", b);
      continue;
    }
    error = std::max(error, std::fabs(a - b));
    size = std::max(size, std::fabs(b));
  }
  row.error = error / size;
  if (row.error <= row.tolerance) return {};
  return row.tolerance == 0 ? "integers differ" : "beyond the tolerance";
}

// Whether a row [B,H,n,:] of an invalid token holds anything but zero.
std::string traces(const Tensor& x, const Tensor& valid) {
  if (!valid.defined() || x.rank() != 4) return {};
  const std::vector<double> values = x.values(), mask = valid.values();
  const std::int64_t heads = x.size(1), n = x.size(2), width = x.size(3);
  for (std::int64_t e = 0; e < x.numel(); ++e) {
    const std::int64_t token = e / width % n, sample = e / width / n / heads;
    if (mask[static_cast<std::size_t>(sample * n + token)] == 0 &&
        values[static_cast<std::size_t>(e)] != 0) {
      return cat("token ", token, " of sample ", sample, " is invalid, but its row is not zero");
    }
  }
  return {};
}

CheckFileRow compare(const Tensor& found, const Tensor& expected, const std::string& name,
                     double tolerance, const Tensor& valid) {
  CheckFileRow row{.name = name};
  row.tolerance = is_float(expected.dtype()) ? tolerance : 0;
  if (!(found.shape() == expected.shape())) {
    row.reason = cat("shape ", found.shape().str(), ", expected ", expected.shape().str());
    return row;
  }
  row.reason = difference(found.values(), expected.values(), row);
  if (row.reason.empty()) row.reason = traces(found, valid);
  row.passed = row.reason.empty();
  return row;
}

}  // namespace

double check_tolerance(const std::string& expect, Precision precision) {
  if (precision != Precision::fp64 && precision != Precision::fp32) return kNarrowTolerance;
  const bool wide = precision == Precision::fp64;
  constexpr std::string_view kEnding = ".out.safetensors";
  if (expect.ends_with(kEnding)) {
    const std::string sidecar = expect.substr(0, expect.size() - kEnding.size()) + ".json";
    if (std::filesystem::exists(sidecar)) {
      const config::Node node = config::load(sidecar);
      const config::Node* given = node.find(wide ? "tolerance.f64" : "tolerance.f32");
      if (given != nullptr) return given->as_number("tolerance");
    }
  }
  return wide ? 1e-9 : 2e-5;
}

std::vector<CheckFileRow> compare_tensors(std::span<const data::NamedTensor> found,
                                          const std::string& expect, double tolerance,
                                          const Tensor& key_valid, const Tensor& query_valid) {
  const data::SafetensorsFile file(expect);
  std::vector<CheckFileRow> rows;
  for (const data::SafetensorsEntry& entry : file.entries()) {
    const auto match = std::find_if(found.begin(), found.end(), [&](const data::NamedTensor& t) {
      return t.name == entry.name;
    });
    if (match == found.end()) {
      if (entry.name == "visible") continue;  // optional to write
      rows.push_back({.name = entry.name, .tolerance = tolerance, .reason = "not written"});
      continue;
    }
    const bool by_query = entry.name == "o" || entry.name == "grad.q";
    const bool by_key = entry.name == "grad.k" || entry.name == "grad.v";
    rows.push_back(compare(match->tensor, file.read(entry.name), entry.name, tolerance,
                           by_query ? query_valid
                           : by_key ? key_valid
                                    : Tensor{}));
  }
  std::sort(rows.begin(), rows.end(),
            [](const CheckFileRow& a, const CheckFileRow& b) { return a.name < b.name; });
  return rows;
}

}  // namespace fovea::train
