// Whether a causal method lets a language model see the future: on independent uniform tokens no
// model can do better than guess. Source: baselines.md 21.4.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <doctest/doctest.h>

#include "attention/registry.h"
#include "autograd/ops/attention.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/random.h"
#include "tiny_run.h"
#include "train/tasks/decoder_task.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
using attention::AttentionSpec;

namespace {

constexpr int kVocabulary = 8, kSteps = 200, kRows = 16;
constexpr std::size_t kLength = 64, kHeldOut = 512;
// Nats. A place has 512 held-out tokens, the average 32,768.
constexpr double kMargin = 0.02, kPlaceMargin = 0.1;

// Independent uniform tokens; a next token says nothing of those before it.
class UniformTokens final : public data::Source {
 public:
  explicit UniformTokens(const char* stream) : stream_(11, stream) {}
  std::int64_t size() const override { return 1 << 20; }
  int seq_len() const override { return kLength; }
  void get(std::int64_t i, std::int64_t /*epoch*/, data::Example& example) const override {
    std::vector<std::int32_t> drawn;
    for (std::size_t t = 0; t <= kLength; ++t) {
      drawn.push_back(static_cast<std::int32_t>(
          stream_.below(static_cast<std::uint64_t>(i) * (kLength + 1) + t, kVocabulary)));
    }
    example.tokens.assign(drawn.begin(), drawn.end() - 1);
    example.targets.assign(drawn.begin() + 1, drawn.end());
  }
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return kLength; }
  std::string summary() const override { return "uniform tokens"; }
  std::string fingerprint() const override { return "0000000000000000"; }

 private:
  NamedStream stream_;
};

class UniformTask final : public DecoderTask {
 public:
  explicit UniformTask(const RunConfig& config)
      : DecoderTask(config), loader_(train_, {kRows, kRows}, 1), held_out_(test_, kRows) {}
  const data::Loader& loader() override { return loader_; }
  const data::EvalLoader& held_out(Split /*split*/) override { return held_out_; }
  std::string data_fingerprint() override { return train_.fingerprint(); }
  Report report(const Metrics& metrics) const override {
    return {{"loss", metrics.loss_sum / static_cast<double>(metrics.targets)}};
  }

 private:
  UniformTokens train_{"leak.train"}, test_{"leak.test"};
  data::Loader loader_;
  data::EvalLoader held_out_;
};

// How far below guessing a small model gets on held-out tokens after 200 steps, in nats: on
// average, and at the place of a sequence where it gets furthest.
struct Gain {
  double average = 0, best_place = 0;
  bool leaks() const { return average > kMargin || best_place > kPlaceMargin; }
};

Gain gain_of(const AttentionSpec& spec, const config::Node& options = {}) {
  RunConfig config =
      tiny_config("unused", {"data.markov.vocab=8", "model.block_size=64", "model.n_embd=32",
                             "model.dropout=0", "model.init_std=0.1", "train.global_batch_size=16",
                             "train.micro_batch_size=16", "train.max_steps=200", "optim.lr=1e-2",
                             "optim.weight_decay=0", "sched.kind=cosine", "sched.warmup_steps=20"});
  for (auto& choice : config.model.attention)
    choice = {.kind = std::string(spec.name),
              .options = config::complete(options, spec.options, "model.attention"),
              .spec = &spec};
  Trainer trainer(config, kCpu, std::make_unique<UniformTask>(config));
  for (int step = 0; step < kSteps; ++step)
    trainer.step();

  CachingAllocator memory(memory_source(kCpu));
  std::vector<double> losses;
  Evaluator(trainer.task(), Split::validation, kHeldOut / kRows)
      .run(Ctx{kCpu, trainer.stream(), memory}, &losses);
  REQUIRE(losses.size() == kHeldOut * kLength);
  const double guessing = std::log(kVocabulary);
  Gain out;
  for (std::size_t place = 0; place < kLength; ++place) {
    double gain = 0;
    for (std::size_t row = 0; row < kHeldOut; ++row)
      gain += (guessing - losses[row * kLength + place]) / kHeldOut;
    out.average += gain / kLength;
    out.best_place = std::max(out.best_place, gain);
  }
  return out;
}

// Softmax attention over the tokens that `sees` lets a query see: for attentions that leak.
class Masked final : public attention::Attention {
 public:
  using Sees = bool (*)(std::int64_t query, std::int64_t key);
  explicit Masked(Sees sees) : sees_(sees) {}
  attention::AttentionOutput forward(Ctx& ctx, const attention::AttentionInput& in) override {
    std::vector<double> hidden;
    for (std::int64_t i = 0; i < in.q.size(2); ++i) {
      for (std::int64_t j = 0; j < in.k.size(2); ++j)
        hidden.push_back(sees_(i, j) ? 0 : -1e9);
    }
    const Var bias(Tensor::from(hidden, {1, 1, in.q.size(2), in.k.size(2)}, in.q.dtype()));
    return {.o = flash_attention(ctx, in.q, in.k, in.v, bias, {}).o};
  }
  std::string kernel() const override { return "tiled"; }

 private:
  Sees sees_;
};

bool all_tokens(std::int64_t, std::int64_t) {
  return true;
}
bool one_too_many(std::int64_t query, std::int64_t key) {
  return key <= query + 1;
}
bool whole_blocks(std::int64_t query, std::int64_t key) {
  return key / 16 <= query / 16;
}
bool the_past(std::int64_t query, std::int64_t key) {
  return key <= query;
}

template <Masked::Sees sees>
AttentionSpec masked(std::string_view name) {
  AttentionSpec out{};
  out.name = name;
  out.make = [](const attention::AttentionConfig&,
                const config::Node&) -> std::unique_ptr<attention::Attention> {
    return std::make_unique<Masked>(sees);
  };
  out.cost = [](const attention::AttentionConfig&, const config::Node&, std::int64_t,
                std::int64_t) { return attention::Cost{}; };
  return out;
}

// The forms that a method's options choose between, besides that of its example.
const std::map<std::string_view, std::vector<const char*>> kForms = {
    {"bigbird", {"causal_mode: dense", "causal_mode: pattern"}},
    {"linformer", {"causal_mode: block", "causal_mode: prefix"}},
    {"performer", {"key_stabiliser: running", "feature_kernel: relu"}},
    {"reformer", {"chunking: sorted", "chunking: per_position_window"}},
    {"sparse_transformer", {"pattern: fixed", "pattern: strided"}},
};

}  // namespace

TEST_CASE("the leak test catches attentions that see the future, and clears one that does not") {
  const AttentionSpec leaking[] = {masked<all_tokens>("all_tokens"),
                                   masked<one_too_many>("one_too_many"),
                                   masked<whole_blocks>("whole_blocks")};
  for (const AttentionSpec& spec : leaking) {
    const Gain gain = gain_of(spec);
    INFO(std::string(spec.name), ": gains ", gain.average, " nats");
    CHECK(gain.average > kMargin);
  }
  CHECK_FALSE(gain_of(masked<the_past>("the_past")).leaks());
}

TEST_CASE("no causal method lets a language model beat guessing on independent tokens") {
  for (const AttentionSpec& spec : attention::attention_specs()) {
    if (!spec.caps.causal) continue;
    std::vector<std::string> forms{""};
    const auto found = kForms.find(spec.name);
    if (found != kForms.end()) forms.assign(found->second.begin(), found->second.end());
    for (const std::string& form : forms) {
      config::Node options = config::parse(spec.example, "the spec's example");
      if (options.is_null()) options = config::Node::map({}, {});
      const config::Node chosen = config::parse(form, "form");
      for (const auto& [key, value] : chosen.entries())
        options.set(key, value);
      const Gain gain = gain_of(spec, options);
      INFO(std::string(spec.name), " ", form, ": gains ", gain.average, " nats, ", gain.best_place,
           " at its best place");
      CHECK_FALSE(gain.leaks());
    }
  }
}
