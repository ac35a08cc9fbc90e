#pragma once
// The explicit list of attention methods.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/attention.h"

namespace fovea::attention {

// In alphabetical order.
const std::vector<AttentionSpec>& attention_specs();
// Null if there is none of that name or alias.
const AttentionSpec* find_attention(std::string_view name);
// Builds one, checking `config` against the capabilities and completing `options` first (a key
// `kind` is passed over). Throws ConfigError with place and reason.
std::unique_ptr<Attention> make_attention(const AttentionSpec& spec, const AttentionConfig& config,
                                          const config::Node& options);
// q, k and v of the configuration's heads and widths.
std::vector<ProjectionSpec> standard_projections(const AttentionConfig& config);
// The projections that `spec` asks for: its own list, else the standard ones. `options` complete,
// here and below.
std::vector<ProjectionSpec> projections_of(const AttentionSpec& spec, const AttentionConfig& config,
                                           const config::Node& options);
// `config` of a model with the widths that these projections give q and v: what the method is made
// for.
AttentionConfig as_projected(const AttentionSpec& spec, AttentionConfig config,
                             const config::Node& options);
// `spec` with the capabilities that it has under these options, which are complete.
AttentionSpec with_options(const AttentionSpec& spec, const config::Node& options);
// Throws ConfigError with the reason for what the method lacks, or for sizes that make no sense. A
// dropout that does not apply is only warned of, once.
void check_capabilities(const AttentionSpec& spec, const AttentionConfig& config,
                        const config::Place& place);

// Whether time and memory grow as the number of tokens; `options` complete.
bool is_linear(const AttentionSpec& spec, const AttentionConfig& config,
               const config::Node& options);

// The most tokens that it takes, kAnyLength where nothing bounds them. Options may be incomplete.
constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();
std::int64_t longest(const AttentionSpec& spec, const AttentionConfig& config,
                     const config::Node& options);

// What a method can do, for lists and docs: flag and whether it is set, in a fixed order.
std::vector<std::pair<std::string_view, bool>> flags(const Capabilities& caps);
// Summary, source, capabilities, options and cost of every method: docs/attention.md.
std::string attention_markdown();

}  // namespace fovea::attention
