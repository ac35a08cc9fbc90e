#include "attention/option_error.h"

#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

void refuse_option(const config::Node& options, std::string_view key, std::string_view reason) {
  if (const config::Node* value = options.find(key)) refuse_entry(options, *value, key, reason);
  const std::string where = options.place().str();
  throw ConfigError(
      cat(where, where.empty() ? "" : ": ", "model.attention.", key, " is missing: ", reason));
}

void refuse_entry(const config::Node& options, const config::Node& entry, std::string_view path,
                  std::string_view reason) {
  const bool written = entry.place().source != "default";
  const std::string where = (written ? entry : options).place().str();
  throw ConfigError(cat(where, where.empty() ? "" : ": ", "model.attention.", path, " is ",
                        entry.describe(), ", but ", reason));
}

}  // namespace fovea::attention
