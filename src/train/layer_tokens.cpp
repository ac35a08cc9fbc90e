#include "train/layer_tokens.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "attention/registry.h"
#include "attention/spa/settings.h"
#include "autograd/require.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "models/build.h"
#include "optim/parameter_store.h"
#include "train/evaluate_config.h"
#include "train/evaluator.h"
#include "train/feed.h"
#include "train/import/imported_model.h"
#include "train/this_machine.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

namespace spa = attention::spa;

std::vector<double> host_values(Ctx& ctx, const Tensor& x) {
  const Tensor packed = contiguous(ctx, x, "probe");
  return (packed.device().is_cpu() ? packed : packed.to(kCpu, ctx.stream)).values();
}

// Real tokens of a row's first segment, in order.
std::vector<std::int64_t> tokens_of(Ctx& ctx, const models::ForwardInput& in, std::int64_t row,
                                    std::int64_t length) {
  const auto row_of = [&](const Tensor& x) {
    return x.defined() ? host_values(ctx, x.slice(0, row, row + 1)) : std::vector<double>();
  };
  const std::vector<double> valid = row_of(in.key_valid), segments = row_of(in.segments);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!valid.empty() && valid[at] == 0) continue;
    if (!segments.empty() && !out.empty() &&
        segments[at] != segments[static_cast<std::size_t>(out.front())])
      continue;
    out.push_back(i);
  }
  return out;
}

// Those tokens of row `row` of x [B,heads,N,width].
Tensor picked(Ctx& ctx, const Tensor& x, std::int64_t row, const std::vector<std::int64_t>& from) {
  const std::vector<double> all = host_values(ctx, x.slice(0, row, row + 1));
  const std::int64_t width = x.size(3), length = x.size(2);
  std::vector<double> out;
  for (std::int64_t head = 0; head < x.size(1); ++head) {
    for (const std::int64_t token : from) {
      const auto first = all.begin() + (head * length + token) * width;
      out.insert(out.end(), first, first + width);
    }
  }
  return Tensor::from(out, {x.size(1), static_cast<std::int64_t>(from.size()), width}, DType::f64);
}

// Heads side by side: [1,N,heads width].
Tensor merged(const Tensor& x) {
  const Tensor turned = x.permute({1, 0, 2});
  return Tensor::from(turned.values(), {1, x.size(1), x.size(0) * x.size(2)}, DType::f64);
}

Tensor host_copy(Ctx& ctx, const Tensor& x) {
  return Tensor::from(host_values(ctx, x), x.shape(), DType::f64);
}

// SPA's options as they are where none are given: the unbiased scale.
config::Node fresh_options(const std::vector<std::string>& given) {
  config::Node node = config::parse("{score_scale: inv_sqrt_dk}", "probe");
  config::override_with(node, given);
  node = config::complete(node, attention::find_attention("spa")->options, "spa");
  const std::string pattern = node.get_string("pattern"), gate = node.get_string("gate");
  for (const auto& [key, value, trained] :
       {std::tuple("pattern", pattern, pattern == "learn" || pattern == "given"),
        {"gate", gate, gate != "none"}}) {
    if (trained)
      throw ConfigError(cat(key, " is ", value, ", which is trained: probe a run that has it"));
  }
  return node;
}

void add_matrices(LayerTokens& to, Ctx& ctx, attention::Attention& method,
                  const attention::AttentionConfig& config, const config::Node& options) {
  const spa::Settings settings = spa::read_settings(config, options);
  if (settings.scope == spa::Scope::model)
    throw ConfigError(cat("layer ", to.layer,
                          ": proj_scope is model, whose heads compare parts of "
                          "all heads' features: dense attention has no scores to set beside them"));
  const attention::FeatureMatrices by = method.map_matrices(ctx);
  to.s_q = host_copy(ctx, by.q.value());
  to.s_k = host_copy(ctx, by.k.value());
  to.scale = settings.scale;
  to.s += cat(options.get_string("pattern"), " ", settings.pattern.in, " x ", settings.pattern.out);
  if (settings.origin == spa::Origin::fixed && settings.widths.empty())
    to.pattern = settings.pattern;
  if (settings.scope != spa::Scope::single) return;
  to.q = merged(to.q);
  to.k = merged(to.k);
  to.v = merged(to.v);
}

// The model's own S, or one that is drawn here.
void find_matrices(LayerTokens& to, Ctx& ctx, models::Transformer& model,
                   const LayerTokensAsk& ask) {
  const models::ModelConfig::AttentionChoice& choice =
      model.config().attention[static_cast<std::size_t>(to.layer)];
  attention::Attention& own = model.block(to.layer).attention().method();
  attention::AttentionConfig config = models::attention_config(model.config(), to.layer, nullptr);
  config.qk_dim = static_cast<int>(to.q.size(2));
  config.v_dim = static_cast<int>(to.v.size(2));
  const attention::AttentionSpec& spec = *attention::find_attention("spa");
  if (ask.options.empty() && own.qk_map() && choice.spec == nullptr && choice.kind == spec.name) {
    to.s = "its own, ";
    return add_matrices(to, ctx, own, config,
                        config::complete(choice.options, spec.options, "model.attention"));
  }
  const config::Node options = fresh_options(ask.options);
  const std::unique_ptr<attention::Attention> drawn =
      attention::make_attention(spec, config, options);
  drawn->set_path(cat("probe.", to.layer));
  to.s = "drawn here, ";
  add_matrices(to, ctx, *drawn, config, options);
}

std::vector<int> layers_of(const LayerTokensAsk& ask, int n_layer) {
  std::vector<int> out = ask.layers;
  if (out.empty()) {
    out.resize(static_cast<std::size_t>(n_layer));
    std::iota(out.begin(), out.end(), 0);
  }
  for (const int layer : out) {
    if (layer < 0 || layer >= n_layer)
      throw ConfigError(cat("there is no layer ", layer, ": the model has ", n_layer));
  }
  return out;
}

// Where an example is: its batch, and its row there.
struct Place {
  std::int64_t batch = 0, row = 0;
};
Place place_of(const data::EvalLoader& loader, std::int64_t example) {
  if (example < 0 || example >= loader.examples())
    throw ConfigError(cat("there is no example ", example, ": the split has ", loader.examples()));
  Place out;
  while (loader.examples_in(out.batch + 1) <= example)
    ++out.batch;
  out.row = example - loader.examples_in(out.batch);
  return out;
}

}  // namespace

RunTokens layer_tokens(const LayerTokensAsk& ask) {
  const EvaluatedModel found = evaluated_model(ask.path, ask.overrides);
  const RunConfig& config = found.config;
  const Device device = device_of(config.train);
  Stream stream(device, threads_of(config.train));
  prepare_products(stream, config.train);
  CachingAllocator activations(memory_source(device));
  Ctx ctx{device, stream, activations};
  ctx.precision = config.train.precision;
  ctx.seed = config.seed;
  ctx.fuse = config.fuse;
  const std::unique_ptr<Task> task = make_task(config);
  auto* const model = dynamic_cast<models::Transformer*>(&task->model());
  FOVEA_ASSERT(model != nullptr);
  optim::ParameterStore store(ctx, *model, optim::StoreMode::evaluate);
  if (found.checkpoint)
    found.checkpoint->load_model(ctx, *model, store);
  else
    load_weights(import_model(ask.path), ctx, *model, store);

  RunTokens out{.path = found.checkpoint ? found.checkpoint->path() : ask.path,
                .split = name_of(config.eval.split),
                .step = found.checkpoint ? found.checkpoint->state().step : 0,
                .layers = {}};
  const std::vector<int> layers = layers_of(ask, model->config().n_layer);
  const Place place = place_of(task->held_out(config.eval.split), ask.example);
  for (const int layer : layers) {
    models::MultiHeadAttention& heads = model->block(layer).attention();
    heads.watch([&, layer](Ctx& at, const Var& x, const models::ForwardInput& in) {
      const attention::AttentionInput seen = heads.unmapped(at, x, in.positions);
      if (!seen.q.defined() || !seen.k.defined() || !seen.v.defined())
        throw ConfigError(cat("layer ", layer, ": its attention, ",
                              model->config().attention[static_cast<std::size_t>(layer)].kind,
                              ", has no queries, keys and values of their own to put S between"));
      const std::vector<std::int64_t> from = tokens_of(at, in, place.row, x.size(1));
      LayerTokens tokens;
      tokens.layer = layer;
      tokens.causal = model->config().causal();
      tokens.q = picked(at, seen.q.value(), place.row, from);
      tokens.k = picked(at, seen.k.value(), place.row, from);
      tokens.v = picked(at, seen.v.value(), place.row, from);
      out.layers.push_back(std::move(tokens));
    });
  }
  Ctx quiet = quiet_context(ctx);
  Metrics unused;
  const data::Batch batch = task->held_out(config.eval.split).at(place.batch);
  task->score(quiet, on_device(batch, stream, task->vocabulary()), unused);
  for (LayerTokens& tokens : out.layers) {
    model->block(tokens.layer).attention().watch(nullptr);
    find_matrices(tokens, quiet, *model, ask);
  }
  return out;
}

}  // namespace fovea::train
