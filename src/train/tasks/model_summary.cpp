#include "train/tasks/model_summary.h"

#include "core/text.h"
#include "models/build.h"

namespace fovea::train {

namespace {

const char* name_of(models::Pooling pooling) {
  return pooling == models::Pooling::cls    ? "CLS token"
         : pooling == models::Pooling::mean ? "mean"
                                            : "last token";
}

}  // namespace

std::vector<std::string> model_summary(models::Transformer& model) {
  const models::ModelConfig& config = model.config();
  std::vector<std::string> out;
  out.push_back(
      cat("model: ", config.kind, ", ", config.n_layer, " layers, ", config.n_head,
          " heads, width ", config.n_embd, ", vocabulary ", config.vocab_size,
          config.causal() ? std::string()
                          : cat(", ", config.classes, " classes by the ", name_of(config.pool)),
          ", ", human_count(static_cast<double>(models::parameter_count(model))), " parameters"));
  std::string last;
  int first = 0;
  const auto flush = [&](int end) {
    if (!last.empty())
      out.push_back(cat("attention of layers ", first, " to ", end - 1, ": ", last));
    first = end;
  };
  for (int layer = 0; layer < config.n_layer; ++layer) {
    models::MultiHeadAttention& attention = model.block(layer).attention();
    const std::string refused = attention.method().refused(), map = attention.map_text();
    const std::string now =
        cat(config.attention[static_cast<std::size_t>(layer)].kind, ", kernel ",
            attention.method().kernel(), refused.empty() ? "" : cat(" (", refused, ")"),
            map.empty() ? "" : cat("; ", map));
    if (now == last) continue;
    flush(layer);
    last = now;
  }
  flush(config.n_layer);
  return out;
}

}  // namespace fovea::train
