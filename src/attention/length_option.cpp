#include "attention/length_option.h"

#include "attention/option_error.h"
#include "core/text.h"

namespace fovea::attention {

std::int64_t length_option(const AttentionConfig& config, const config::Node& options,
                           std::string_view key) {
  const config::Node* const value = options.find(key);
  return value == nullptr || value->text() == "max_len" ? config.max_len : options.get_int(key);
}

std::int64_t whole_length_option(const AttentionConfig& config, const config::Node& options,
                                 std::string_view key) {
  const std::int64_t length = length_option(config, options, key);
  if (length < config.max_len)
    refuse_option(options, key, cat("must be at least model.block_size (", config.max_len, ")"));
  return length;
}

std::int64_t longest_by_max_len(const AttentionConfig& config, const config::Node& options) {
  return length_option(config, options, "max_len");
}

}  // namespace fovea::attention
