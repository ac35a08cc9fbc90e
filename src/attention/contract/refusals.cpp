// What the capabilities promise is built, what they lack is refused.

#include "attention/contract/checks.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention::contract {

void check_refusals(const AttentionSpec& spec, const config::Node& options, Report& report) {
  const Capabilities& caps = spec.caps;
  Trial base{.spec = &spec, .options = options, .causal = caps.causal && !caps.bidirectional};
  const auto tried = [&](const std::string& what, bool promised, const AttentionConfig& config) {
    bool built = true;
    std::string reason;
    try {
      Standalone(spec, config, options, Precision::fp32, kCpu);
    } catch (const ConfigError& error) {
      built = false;
      reason = error.what();
    }
    report.add(cat(what, promised ? " is built" : " is refused"), built == promised ? 0 : 1, 0,
               reason);
  };
  AttentionConfig config = base.config();
  config.cross = false;
  config.causal = true;
  tried("a causal model", caps.causal, config);
  config.causal = false;
  tried("a bidirectional model", caps.bidirectional, config);
  config.cross = true;
  tried("cross-attention", caps.cross, config);
  config = base.config();
  config.n_head = 4;
  tried("grouped heads", caps.gqa, config);
  config = base.config();
  config.packed = true;
  tried("a model of packed documents", caps.segments, config);
  config = base.config();
  config.position = Position::alibi;
  tried("model.position: alibi", caps.bias, config);
  config.causal = true;
  tried("causal model.position: alibi", caps.causal && (caps.bias || caps.decay), config);
}

}  // namespace fovea::attention::contract
