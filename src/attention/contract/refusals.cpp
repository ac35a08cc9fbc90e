// What the capabilities promise is built, what they lack is refused.

#include "attention/contract/checks.h"
#include "core/text.h"

namespace fovea::attention::contract {

void check_refusals(const AttentionSpec& spec, const config::Node& options, bool chose,
                    Report& report) {
  const Capabilities& caps = spec.caps;
  const Trial base{.spec = &spec, .options = options, .causal = caps.causal && !caps.bidirectional};
  const auto tried = [&](const std::string& what, bool promised, const Trial& trial) {
    const std::string reason = refusal_of(with_width(trial, trial.qk_dim));
    if (promised && chose && !reason.empty()) return report.skip(cat(what, " is built"), reason);
    report.add(cat(what, promised ? " is built" : " is refused"),
               reason.empty() == promised ? 0 : 1, 0, reason);
  };
  Trial trial = base;
  trial.causal = true;
  tried("a causal model", caps.causal, trial);
  trial.causal = false;
  tried("a bidirectional model", caps.bidirectional, trial);
  trial.cross = true;
  tried("cross-attention", caps.cross, trial);
  trial = base;
  trial.heads = 4;
  tried("grouped heads", caps.gqa, trial);
  trial = base;
  trial.packed = true;
  tried("a model of packed documents", caps.segments, trial);
  trial = base;
  trial.position = Position::alibi;
  tried("model.position: alibi", caps.bias, trial);
  trial.causal = true;
  tried("causal model.position: alibi", caps.causal && (caps.bias || caps.decay), trial);
}

}  // namespace fovea::attention::contract
