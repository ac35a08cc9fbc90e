#include "data/random_windows.h"

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::data {

RandomWindows::RandomWindows(const EvalText& text, std::int64_t context, std::int64_t windows)
    : part_(text.parts.front()), context_(context), windows_(windows) {
  if (text.parts.size() > 1)
    throw ConfigError("eval.random_batches is given, but data.mix has several corpora; give one");
  const std::int64_t tokens = part_.split.tokens->size();
  if (tokens <= context) {
    throw IoError(cat(part_.split.path, ": eval.random_batches needs ", context + 1,
                      " tokens (eval.context and a target), but there are ", tokens));
  }
}

void RandomWindows::get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < windows_);
  const auto places = static_cast<std::uint64_t>(part_.split.tokens->size() - context_);
  const auto first = static_cast<std::int64_t>(
      NamedStream(0, "eval.random_batches").below(static_cast<std::uint64_t>(i), places));
  example.tokens.resize(static_cast<std::size_t>(context_ + 1));
  part_.split.tokens->read(first, context_ + 1, example.tokens.data());
  for (const std::int32_t id : example.tokens) {
    if (id >= 0 && id < part_.split.vocab) continue;
    throw IoError(
        cat(part_.split.path, ": a token is ", id, ", but must be below ", part_.split.vocab));
  }
  example.targets.assign(example.tokens.begin() + 1, example.tokens.end());
  example.tokens.pop_back();
}

std::string RandomWindows::summary() const {
  return cat(part_.split.summary, ", ", windows_, " random windows of ", context_);
}

}  // namespace fovea::data
