#include "attention/registry.h"

#include "config/option.h"

// One line a method, in alphabetical order: NAME stands for NAME_attention() of the folder NAME.
// clang-format off
#define FOVEA_ATTENTION_METHODS(method) \
  method(bigbird) \
  method(cosformer) \
  method(linear) \
  method(linformer) \
  method(longformer) \
  method(nystrom) \
  method(performer) \
  method(reformer) \
  method(rfa) \
  method(scatterbrain) \
  method(short) \
  method(spa) \
  method(sparse_transformer) \
  method(standard)
// clang-format on

namespace fovea::attention {

#define FOVEA_DECLARE(name) AttentionSpec name##_attention();
FOVEA_ATTENTION_METHODS(FOVEA_DECLARE)
#undef FOVEA_DECLARE

const std::vector<AttentionSpec>& attention_specs() {
#define FOVEA_CALL(name) name##_attention(),
  static const std::vector<AttentionSpec> specs = {FOVEA_ATTENTION_METHODS(FOVEA_CALL)};
#undef FOVEA_CALL
  return specs;
}

const AttentionSpec* find_attention(std::string_view name) {
  for (const AttentionSpec& spec : attention_specs()) {
    if (spec.name == name || (!spec.alias.empty() && spec.alias == name)) return &spec;
  }
  return nullptr;
}

std::unique_ptr<Attention> make_attention(const AttentionSpec& spec, const AttentionConfig& config,
                                          const config::Node& options) {
  std::vector<std::pair<std::string, config::Node>> own;
  for (const auto& entry : options.entries()) {
    if (entry.first != "kind") own.push_back(entry);
  }
  const config::Node complete = config::complete(config::Node::map(std::move(own), options.place()),
                                                 spec.options, "model.attention");
  check_capabilities(with_options(spec, complete), config, options.place());
  return spec.make(config, complete);
}

std::vector<ProjectionSpec> standard_projections(const AttentionConfig& config) {
  return {
      {.name = "q", .heads = config.n_head, .width = config.qk_dim, .rope = true, .qk_norm = true},
      {.name = "k",
       .heads = config.n_kv_head,
       .width = config.qk_dim,
       .rope = true,
       .qk_norm = true},
      {.name = "v", .heads = config.n_kv_head, .width = config.v_dim},
  };
}

std::vector<ProjectionSpec> projections_of(const AttentionSpec& spec, const AttentionConfig& config,
                                           const config::Node& options) {
  if (spec.projections != nullptr) return spec.projections(config, options);
  return standard_projections(config);
}

AttentionConfig as_projected(const AttentionSpec& spec, AttentionConfig config,
                             const config::Node& options) {
  for (const ProjectionSpec& p : projections_of(spec, config, options)) {
    if (p.name == "q") config.qk_dim = p.width;
    if (p.name == "v") config.v_dim = p.width;
  }
  return config;
}

}  // namespace fovea::attention
