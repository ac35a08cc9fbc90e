#include "attention/option_error.h"

#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

void refuse_option(const config::Node& options, std::string_view key, std::string_view reason) {
  const config::Node* value = options.find(key);
  const bool written = value != nullptr && value->place().source != "default";
  const std::string where = (written ? *value : options).place().str();
  throw ConfigError(cat(
      where, where.empty() ? "" : ": ", "model.attention.", key,
      value == nullptr ? std::string(" is missing: ") : cat(" is ", value->describe(), ", but "),
      reason));
}

}  // namespace fovea::attention
