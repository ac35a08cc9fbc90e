#include "train/tuning_table.h"

#include <cctype>
#include <cstdint>
#include <utility>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::train {

namespace {

const config::Node& child(const config::Node& node, const char* key) {
  if (const config::Node* const found = node.find(key)) return *found;
  throw ConfigError(cat(node.place().str(), ": ", key, " is missing"));
}

DType dtype_named(const config::Node& node, const char* key) {
  const std::string name = child(node, key).as_string(key);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw ConfigError(cat(child(node, key).place().str(), ": ", key, " is '", name,
                        "', but must be one of f32, bf16, f16"));
}

// The whole numbers of a key, one after the other, for writing and for reading.
template <class Key, class Visit>
void each_number(Key& key, Visit&& visit) {
  visit("m", key.m);
  visit("n", key.n);
  visit("k", key.k);
  visit("lda", key.lda);
  visit("ldb", key.ldb);
  visit("ldd", key.ldd);
  visit("batch", key.batch);
  visit("stride_a", key.stride_a);
  visit("stride_b", key.stride_b);
  visit("stride_d", key.stride_d);
  visit("align_a", key.align_a);
  visit("align_b", key.align_b);
  visit("align_d", key.align_d);
}

template <class Key, class Visit>
void each_flag(Key& key, Visit&& visit) {
  visit("transpose_a", key.transpose_a);
  visit("transpose_b", key.transpose_b);
  visit("accumulates", key.accumulates);
  visit("has_bias", key.has_bias);
  visit("tf32", key.tf32);
}

TunedProduct product_of(const config::Node& node) {
  TunedProduct out;
  each_number(out.key, [&](const char* name, auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(child(node, name).as_int(name));
  });
  each_flag(out.key,
            [&](const char* name, bool& value) { value = child(node, name).as_bool(name); });
  out.key.factors = dtype_named(node, "factors");
  out.key.out = dtype_named(node, "out");
  out.key.bias = dtype_named(node, "bias");
  const std::int64_t candidate = child(node, "candidate").as_int("candidate");
  if (candidate < 0 || candidate >= cuda::kGemmCandidates) {
    throw ConfigError(cat(child(node, "candidate").place().str(), ": candidate is ", candidate,
                          ", but must be in [0, ", cuda::kGemmCandidates, ")"));
  }
  out.candidate = static_cast<int>(candidate);
  out.ms = child(node, "ms").as_number("ms");
  out.first_ms = child(node, "first_ms").as_number("first_ms");
  return out;
}

}  // namespace

std::string tuning_file_name(const std::string& gpu) {
  std::string out;
  for (const char c : gpu) {
    const auto byte = static_cast<unsigned char>(c);
    const char kept = std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
    if (kept != '_' || (!out.empty() && out.back() != '_')) out.push_back(kept);
  }
  return out + ".yaml";
}

std::string tuning_yaml(const TuningTable& table) {
  std::string out = cat(
      "# The candidate of cuBLASLt's heuristic that was fastest, sustained, for each product as "
      "cuBLASLt\n# counts it (column-major). Written by: fovea bench gemm --tune\n",
      "gpu: \"", table.gpu, "\"\ncublaslt: \"", table.cublaslt, "\"\nproducts:\n");
  for (const TunedProduct& product : table.products) {
    const cuda::GemmKey& key = product.key;
    out += "  - {";
    each_number(key, [&](const char* name, auto value) { out += cat(name, ": ", value, ", "); });
    each_flag(key, [&](const char* name, bool value) { out += cat(name, ": ", value, ", "); });
    out += cat("factors: ", name_of(key.factors), ", out: ", name_of(key.out),
               ", bias: ", name_of(key.bias), ", candidate: ", product.candidate,
               ", ms: ", product.ms, ", first_ms: ", product.first_ms, "}\n");
  }
  return out;
}

TuningTable read_tuning_table(const std::string& path) {
  const config::Node node = config::load(path);
  TuningTable out;
  out.gpu = child(node, "gpu").as_string("gpu");
  out.cublaslt = child(node, "cublaslt").as_string("cublaslt");
  const config::Node& products = child(node, "products");
  for (const config::Node& item : products.items())
    out.products.push_back(product_of(item));
  return out;
}

}  // namespace fovea::train
