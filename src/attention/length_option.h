#pragma once
// The option of a method that is made for so many tokens and no more.

#include <cstdint>
#include <string_view>

#include "attention/attention.h"

namespace fovea::attention {

// The option's tokens; model.block_size where it is absent or says max_len.
std::int64_t length_option(const AttentionConfig& config, const config::Node& options,
                           std::string_view key);
// The same; throws ConfigError where it is below model.block_size.
std::int64_t whole_length_option(const AttentionConfig& config, const config::Node& options,
                                 std::string_view key);

// AttentionSpec::longest of methods with an option max_len.
std::int64_t longest_by_max_len(const AttentionConfig& config, const config::Node& options);

}  // namespace fovea::attention
