// The file form of MQAR: `fovea data make mqar`.

#include "core/error.h"
#include "core/text.h"
#include "data/made_file.h"
#include "data/mqar.h"

namespace fovea::data {

namespace {

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
  MadeFile file(out, existing);
  Example example;
  for (std::int64_t i = 0; i < count; ++i) {
    source.get(i, 0, example);
    file.write(cat("{\"tokens\":", json_list(example.tokens),
                   ",\"targets\":", json_list(example.targets), "}\n"));
  }
  file.finish();
}

}  // namespace fovea::data
