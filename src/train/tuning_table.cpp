#include "train/tuning_table.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <type_traits>

#include "config/option.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::train {

namespace {

const config::Node& child(const config::Node& node, const char* key) {
  if (const config::Node* const found = node.find(key)) return *found;
  throw ConfigError(cat(node.place().str(), ": ", key, " is missing"));
}

constexpr std::string_view kSize = "[1, 1000000000000]", kStride = "[0, 1000000000000000]",
                           kAlign = "1 | 2 | 4 | 8 | 16", kDType = "f32 | bf16 | f16";
static_assert(cuda::kGemmCandidates == 8, "of candidate's range");
constexpr config::Option kTableKeys[] = {
    {"gpu", config::Type::string, "", "", "Its name."},
    {"cublaslt", config::Type::string, "", "", "The library's version."},
    {"products", config::Type::any, "", "list of products", "One a line."},
};
constexpr config::Option kProductKeys[] = {
    {"m", config::Type::integer, "", kSize, "GemmKey, as all that follow."},
    {"n", config::Type::integer, "", kSize, ""},
    {"k", config::Type::integer, "", kSize, ""},
    {"lda", config::Type::integer, "", kSize, ""},
    {"ldb", config::Type::integer, "", kSize, ""},
    {"ldd", config::Type::integer, "", kSize, ""},
    {"batch", config::Type::integer, "", "[1, 2147483647]", ""},
    {"stride_a", config::Type::integer, "", kStride, ""},
    {"stride_b", config::Type::integer, "", kStride, ""},
    {"stride_d", config::Type::integer, "", kStride, ""},
    {"align_a", config::Type::choice, "", kAlign, ""},
    {"align_b", config::Type::choice, "", kAlign, ""},
    {"align_d", config::Type::choice, "", kAlign, ""},
    {"transpose_a", config::Type::boolean, "", "", ""},
    {"transpose_b", config::Type::boolean, "", "", ""},
    {"accumulates", config::Type::boolean, "", "", ""},
    {"has_bias", config::Type::boolean, "", "", ""},
    {"tf32", config::Type::boolean, "", "", ""},
    {"factors", config::Type::choice, "", kDType, ""},
    {"out", config::Type::choice, "", kDType, ""},
    {"bias", config::Type::choice, "", kDType, ""},
    {"candidate", config::Type::integer, "", "[0, 7]", "Of the heuristic's answers."},
    {"ms", config::Type::number, "", "[0, inf)", "Its time."},
    {"first_ms", config::Type::number, "", "[0, inf)", "The first answer's."},
};

DType dtype_named(const config::Node& node, const char* key) {
  const std::string name = child(node, key).as_string(key);
  return name == "bf16" ? DType::bf16 : name == "f16" ? DType::f16 : DType::f32;
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

TunedProduct product_of(const config::Node& given) {
  const config::Node node = config::complete(given, kProductKeys, "");
  TunedProduct out;
  each_number(out.key, [&](const char* name, auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(child(node, name).as_int(name));
  });
  each_flag(out.key,
            [&](const char* name, bool& value) { value = child(node, name).as_bool(name); });
  out.key.factors = dtype_named(node, "factors");
  out.key.out = dtype_named(node, "out");
  out.key.bias = dtype_named(node, "bias");
  out.candidate = static_cast<int>(child(node, "candidate").as_int("candidate"));
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
  const config::Node node = config::complete(config::load(path), kTableKeys, "");
  TuningTable out;
  out.gpu = child(node, "gpu").as_string("gpu");
  out.cublaslt = child(node, "cublaslt").as_string("cublaslt");
  const config::Node* const products = node.find("products");
  if (products == nullptr || products->is_null()) return out;
  if (products->kind() != config::Node::Kind::list) {
    throw ConfigError(cat(products->place().str(), ": products is ", products->describe(),
                          ", but must be a list"));
  }
  std::set<cuda::GemmKey> seen;
  for (const config::Node& item : products->items()) {
    out.products.push_back(product_of(item));
    if (!seen.insert(out.products.back().key).second)
      throw ConfigError(cat(item.place().str(), ": the same product stands above already"));
  }
  return out;
}

TuningTable merged(const TuningTable& old, const TuningTable& now,
                   const std::vector<cuda::GemmKey>& timed) {
  TuningTable out = now;
  if (old.gpu == now.gpu && old.cublaslt == now.cublaslt) {
    const std::set<cuda::GemmKey> again(timed.begin(), timed.end());
    std::copy_if(old.products.begin(), old.products.end(), std::back_inserter(out.products),
                 [&](const TunedProduct& product) { return again.count(product.key) == 0; });
  }
  std::stable_sort(out.products.begin(), out.products.end(),
                   [](const TunedProduct& a, const TunedProduct& b) { return a.key < b.key; });
  return out;
}

std::string fingerprint(const TuningTable& table) {
  TuningTable plain = merged({}, table, {});
  for (TunedProduct& product : plain.products)
    product.ms = product.first_ms = 0;
  return data::hash_hex(data::xxh3_64(tuning_yaml(plain)));
}

}  // namespace fovea::train
