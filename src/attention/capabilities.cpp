#include "attention/registry.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

std::string methods_with_segments() {
  std::vector<std::string> names;
  for (const AttentionSpec& spec : attention_specs()) {
    if (spec.caps.segments) names.emplace_back(spec.name);
  }
  return join(names, ", ");
}

// Why `config` is refused, or "".
std::string refusal(const AttentionSpec& spec, const AttentionConfig& config) {
  const Capabilities& caps = spec.caps;
  if (config.n_head < 1 || config.n_kv_head < 1 || config.n_head % config.n_kv_head != 0) {
    return cat("model.n_head is ", config.n_head, ", but must be a multiple of the ",
               config.n_kv_head, " key/value heads");
  }
  if (config.qk_dim < 1 || config.v_dim < 1) {
    return cat("the head widths are ", config.qk_dim, " and ", config.v_dim,
               ", but must be at least 1");
  }
  std::string lacks;
  if (config.cross && !caps.cross)
    lacks = "cross-attention";
  else if (!config.cross && config.causal && !caps.causal)
    lacks = "causal form";
  else if (!config.cross && !config.causal && !caps.bidirectional)
    lacks = "bidirectional form";
  else if (config.n_kv_head != config.n_head && !caps.gqa)
    lacks = cat("grouped heads (model.n_head ", config.n_head, ", key/value heads ",
                config.n_kv_head, ")");
  else if (config.position == Position::alibi && !caps.bias && !caps.decay)
    lacks = "additive bias, which model.position: alibi needs";
  else if (config.position == Position::alibi && !caps.bias && (config.cross || !config.causal))
    lacks = "bidirectional model.position: alibi, which decays from token to token";
  else if (!config.cross && config.packed && !caps.segments)
    lacks = cat("way to tell packed documents apart (data.pack: documents), as ",
                methods_with_segments(), " have");
  if (lacks.empty()) return {};
  const std::string note = caps.note.empty() ? "" : cat(": ", caps.note);
  return cat("model.attention.kind is ", spec.name, ", which has no ", lacks, note);
}

}  // namespace

AttentionSpec with_options(const AttentionSpec& spec, const config::Node& options) {
  AttentionSpec out = spec;
  if (spec.caps_with != nullptr) out.caps = spec.caps_with(spec.caps, options);
  return out;
}

void check_capabilities(const AttentionSpec& spec, const AttentionConfig& config,
                        const config::Place& place) {
  const std::string reason = refusal(spec, config);
  if (!reason.empty()) {
    const std::string where = place.str();
    throw ConfigError(where.empty() ? reason : cat(where, ": ", reason));
  }
  if (config.dropout > 0 && !spec.caps.dropout) {
    log::warn_once(cat("model.attention_dropout does not apply to ", spec.name,
                       ", which forms no probabilities; it is ignored there"));
  }
}

bool is_linear(const AttentionSpec& spec, const AttentionConfig& config,
               const config::Node& options) {
  return spec.linear != nullptr && spec.linear(config, options);
}

std::int64_t longest(const AttentionSpec& spec, const AttentionConfig& config,
                     const config::Node& options) {
  if (with_options(spec, options).caps.any_length) return kAnyLength;
  return spec.longest != nullptr ? spec.longest(config, options) : config.max_len;
}

std::vector<std::pair<std::string_view, bool>> flags(const Capabilities& caps) {
  return {{"causal", caps.causal},
          {"bidirectional", caps.bidirectional},
          {"cross", caps.cross},
          {"padding", caps.padding},
          {"segments", caps.segments},
          {"bias", caps.bias},
          {"dropout", caps.dropout},
          {"gqa", caps.gqa},
          {"any_length", caps.any_length},
          {"decode", caps.decode},
          {"exact", caps.exact},
          {"convex", caps.convex},
          {"smooth", caps.smooth},
          {"static_shapes", caps.static_shapes},
          {"any_width", caps.any_width},
          {"anchored", caps.anchored},
          {"strict", caps.strict},
          {"unordered", caps.unordered},
          {"decay", caps.decay},
          {"scheduled", caps.scheduled},
          {"mixes_heads", caps.mixes_heads},
          {"owns_layer", caps.owns_layer}};
}

}  // namespace fovea::attention
