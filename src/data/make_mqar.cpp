// The file form of MQAR: `fovea data make mqar`.

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/mqar.h"

namespace fovea::data {

namespace {

std::string json_list(const std::vector<std::int32_t>& ids) {
  std::string out = "[";
  for (const std::int32_t id : ids)
    out += cat(out.size() > 1 ? "," : "", id);
  return out + "]";
}

Split split_of(std::string_view name) {
  if (name == "train") return Split::train;
  if (name == "test") return Split::test;
  throw ConfigError(cat("mqar: the split is ", name, ", but must be train or test"));
}

}  // namespace

void make_mqar(const MqarConfig& config, int seq_len, std::string_view split, std::int64_t count,
               std::uint64_t seed, const std::string& out, Existing existing) {
  if (count < 1) throw ConfigError(cat("mqar: the count is ", count, ", but must be at least 1"));
  MqarConfig counted = config;
  counted.train_examples = counted.test_examples = count;
  const MqarSource source(counted, seq_len, split_of(split), seed);
  std::error_code ignored;
  if (existing == Existing::refuse &&
      std::filesystem::exists(std::filesystem::symlink_status(out, ignored))) {
    throw IoError(cat(out, ": exists already; remove it or ask to overwrite it"));
  }
  ReplacedFile replaced(out);
  OutputFile file(replaced.temporary());
  Example example;
  for (std::int64_t i = 0; i < count; ++i) {
    source.get(i, 0, example);
    file.write(cat("{\"tokens\":", json_list(example.tokens),
                   ",\"targets\":", json_list(example.targets), "}\n"));
  }
  file.finish();
  replaced.finish();
}

}  // namespace fovea::data
