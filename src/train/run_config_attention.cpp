#include <algorithm>

#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"
#include "models/build.h"
#include "optim/schedule.h"
#include "train/run_config.h"
#include "train/run_config_checks.h"

namespace fovea::train {

std::vector<AttentionKind> registered_attention() {
  std::vector<AttentionKind> kinds;
  kinds.reserve(attention::attention_specs().size());
  for (const attention::AttentionSpec& spec : attention::attention_specs()) {
    kinds.push_back({std::string(spec.name), std::string(spec.alias), spec.options});
  }
  return kinds;
}

namespace {

// Throws ConfigError if what a method does follows from a length that nobody has given.
void check_length(const RunConfig& run, const attention::AttentionSpec& spec,
                  const config::Node& options) {
  const attention::Capabilities caps = attention::with_options(spec, options).caps;
  if (!caps.scheduled || run.planned_steps() > 0) return;
  const std::string where = options.place().str();
  throw ConfigError(cat(where, where.empty() ? "" : ": ", "model.attention.kind is ", spec.name,
                        ", which under these options follows the length of the run: give "
                        "train.max_steps or train.max_tokens, or the options that say it in steps",
                        caps.note.empty() ? "" : cat(" (", caps.note, ")")));
}

}  // namespace

void check_attention_layers(const RunConfig& run) {
  const config::Node& pattern = *run.resolved.find("model.attention");
  const bool many = pattern.kind() == config::Node::Kind::list;
  nn::SharedParameters shared;
  std::vector<std::string> refusals;
  for (int layer = 0; layer < run.model.n_layer; ++layer) {
    const auto& choice = run.model.attention[static_cast<std::size_t>(layer)];
    const attention::AttentionSpec* const spec = attention::find_attention(choice.kind);
    if (spec == nullptr) continue;
    try {
      check_length(run, *spec, choice.options);
      models::MultiHeadAttention(models::block_config(run.model, layer, &shared).attention, *spec,
                                 choice.options);
    } catch (const ConfigError& refusal) {
      if (!many) throw;
      const auto entries = static_cast<int>(pattern.items().size());
      if (layer >= entries && !refusals.empty()) break;  // the pattern again
      refusals.push_back(
          cat(refusal.what(), " (layer ", layer, ", model.attention[", layer % entries, "])"));
    }
  }
  if (!refusals.empty()) throw ConfigError(join(refusals, "\n"));
}

bool RunConfig::hangs_on_length() const {
  const auto scheduled = [](const models::ModelConfig::AttentionChoice& choice) {
    const attention::AttentionSpec* const spec = attention::find_attention(choice.kind);
    return spec != nullptr && attention::with_options(*spec, choice.options).caps.scheduled;
  };
  return optim::Schedule::depends_on_max_steps(sched) ||
         std::any_of(model.attention.begin(), model.attention.end(), scheduled);
}

}  // namespace fovea::train
