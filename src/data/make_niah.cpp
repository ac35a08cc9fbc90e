// The file form of the needle in a haystack: `fovea data make niah`.

#include "core/error.h"
#include "core/text.h"
#include "data/made_file.h"
#include "data/niah.h"

namespace fovea::data {

namespace {

Split split_of(std::string_view name) {
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    if (name == name_of(split)) return split;
  }
  throw ConfigError(cat("niah: the split is ", name, ", but must be train, validation or test"));
}

}  // namespace

void make_niah(const NiahConfig& config, NiahSource::Place place, std::string_view split,
               std::int64_t count, std::uint64_t seed, const std::string& out, Existing existing) {
  if (count < 1) throw ConfigError(cat("niah: the count is ", count, ", but must be at least 1"));
  NiahConfig counted = config;
  counted.train_examples = counted.validation_examples = counted.test_examples = count;
  const NiahSource source(counted, place, split_of(split), seed);
  MadeFile file(out, existing);
  Example example;
  for (std::int64_t i = 0; i < count; ++i) {
    source.get(i, 0, example);
    file.write(
        cat("{\"tokens\":", json_list(example.tokens), ",\"answer\":", example.targets.back(),
            example.group.empty() ? std::string() : cat(",\"depth\":", example.group), "}\n"));
  }
  file.finish();
}

}  // namespace fovea::data
