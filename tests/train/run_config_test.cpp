#include "train/run_config.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "config/message.h"
#include "config/yaml.h"
#include "train/run_config_case.h"

using namespace fovea;
using test::from;
using test::kinds;
using test::least;
using train::RunConfig;

TEST_SUITE("run config") {
  TEST_CASE("every key ends up in its field") {
    const RunConfig run = from(R"(
task: mqar
seed: 7
out_dir: runs/x
model:
  n_layer: 3
  n_head: 8
  n_kv_head: 2
  n_embd: 128
  head_dim: 32
  block_size: 512
  vocab_size: 300
  norm: rms
  norm_eps: 1e-6
  mlp: swiglu
  mlp_dim: 384
  position: rope
  rope: {base: 5e5, layout: interleaved, width: 16}
  qk_norm: true
  bias: false
  tie_embeddings: false
  dropout: 0.1
  attention_dropout: 0.2
  init_std: 0.01
  attention: {kind: sparse, k: 4}
data:
  kind: mqar
  seq_len: 64
  mqar: {vocab: 256, pairs: 4, train_examples: 10, test_examples: 5, power: 0.5, random_non_queries: true}
train:
  global_batch_size: 16
  micro_batch_size: 4
  max_steps: 50
  max_tokens: 1e6
  max_time: 1h30m
  precision: bf16-mixed
  max_norm: 0.5
  recompute: true
  resume: never
  on_nonfinite: skip
  micro_order: shuffle
  threads: 2
  device: cpu
optim: {lr: 1e-3, betas: [0.8, 0.99], eps: 1e-6, weight_decay: 0.2, no_decay: ["*.bias"], lr_scale: {"*.G": 30, wte.*: 5e-1}}
sched: {kind: inverse_sqrt_literal, warmup_steps: 10, min_lr_ratio: 0.2, decay_steps: 40}
eval: {interval: 5, max_batches: 3, patience: 2, micro_batch_size: 16}
ckpt: {interval: 10, keep_last: 3, keep_every: 20, keep_best: true}
log: {interval: 1}
distributed: {reproducible: false}
ops: {fuse: false}
)");
    CHECK(run.task == "mqar");
    CHECK(run.seed == 7);
    CHECK(run.out_dir == "runs/x");
    const models::ModelConfig& m = run.model;
    CHECK(m.n_layer == 3);
    CHECK(m.n_head == 8);
    CHECK(m.n_kv_head == 2);
    CHECK(m.n_embd == 128);
    CHECK(m.head_dim == 32);
    CHECK(m.block_size == 512);
    CHECK(m.vocab_size == 300);
    CHECK(m.norm == models::Norm::rms);
    CHECK(m.norm_eps == 1e-6);
    CHECK(m.mlp == models::Mlp::swiglu);
    CHECK(m.mlp_dim == 384);
    CHECK(m.position == models::Position::rope);
    CHECK(m.rope.base == 5e5);
    CHECK(m.rope.interleaved);
    CHECK(m.rope.width == 16);
    CHECK(m.qk_norm);
    CHECK_FALSE(m.bias);
    CHECK_FALSE(m.tie_embeddings);
    CHECK(m.dropout == 0.1);
    CHECK(m.attention_dropout == 0.2);
    CHECK(m.init_std == 0.01);
    CHECK(run.data.kind == "mqar");
    CHECK(run.data.seq_len == 64);
    CHECK(run.data.mqar.vocab == 256);
    CHECK(run.data.mqar.pairs == 4);
    CHECK(run.data.mqar.train_examples == 10);
    CHECK(run.data.mqar.test_examples == 5);
    CHECK(run.data.mqar.power == 0.5);
    CHECK(run.data.mqar.random_non_queries);
    const train::TrainConfig& t = run.train;
    CHECK(t.global_batch_size == 16);
    CHECK(t.micro_batch_size == 4);
    CHECK(t.max_steps == 50);
    CHECK(t.max_tokens == 1000000);
    CHECK(t.max_seconds == 5400);
    CHECK(t.precision == Precision::bf16_mixed);
    CHECK(t.max_norm == 0.5);
    CHECK(t.recompute);
    CHECK(t.resume == "never");
    CHECK(t.on_nonfinite == train::OnNonfinite::skip);
    CHECK(t.micro_order == train::MicroOrder::shuffle);
    CHECK(t.threads == 2);
    CHECK(t.device == train::DeviceChoice::cpu);
    CHECK(run.optim.lr == 1e-3);
    CHECK(run.optim.beta1 == 0.8);
    CHECK(run.optim.beta2 == 0.99);
    CHECK(run.optim.eps == 1e-6);
    CHECK(run.optim.weight_decay == 0.2);
    CHECK(run.optim.no_decay == std::vector<std::string>{"*.bias"});
    CHECK(run.optim.lr_scale == std::vector<optim::LrScale>{{"*.G", 30}, {"wte.*", 0.5}});
    CHECK(run.sched.kind == optim::ScheduleKind::inverse_sqrt_literal);
    CHECK(run.sched.warmup_steps == 10);
    CHECK(run.sched.min_lr_ratio == 0.2);
    CHECK(run.sched.decay_steps == 40);
    CHECK(run.eval.interval == 5);
    CHECK(run.eval.max_batches == 3);
    CHECK(run.eval.patience == 2);
    CHECK(run.eval.micro_batch_size == 16);
    CHECK(run.ckpt.interval == 10);
    CHECK(run.ckpt.keep_last == 3);
    CHECK(run.ckpt.keep_every == 20);
    CHECK(run.ckpt.keep_best);
    CHECK(run.log.interval == 1);
    CHECK_FALSE(run.distributed.reproducible);
    CHECK_FALSE(run.fuse);
  }

  TEST_CASE("the words of a choice stand for the enum's values") {
    for (const Precision precision :
         {Precision::fp64, Precision::fp32, Precision::fp16_mixed, Precision::bf16_mixed}) {
      CHECK(least({std::string("train.precision=") + name_of(precision)}).train.precision ==
            precision);
    }
    CHECK_THROWS_AS(least({"train.precision=tf32"}),
                    ConfigError);  // the CPU has no such arithmetic
    CHECK(least({"sched.kind=constant"}).sched.kind == optim::ScheduleKind::constant);
    CHECK(least({"sched.kind=wsd"}).sched.kind == optim::ScheduleKind::wsd);
    CHECK(least({"sched.kind=noam", "sched.warmup_steps=5"}).sched.kind ==
          optim::ScheduleKind::noam);
    CHECK(least({"model.position=none"}).model.position == models::Position::none);
    CHECK(least({"model.position=alibi"}).model.position == models::Position::alibi);
    CHECK(least({"train.micro_order=reverse"}).train.micro_order == train::MicroOrder::reverse);
  }

  TEST_CASE("the defaults of the schema are those of the structs") {
    const RunConfig run = least();
    const models::ModelConfig m;
    CHECK(run.model.n_layer == m.n_layer);
    CHECK(run.model.n_embd == m.n_embd);
    CHECK(run.model.norm_eps == m.norm_eps);
    CHECK(run.model.position == m.position);
    CHECK(run.model.tie_embeddings == m.tie_embeddings);
    const optim::OptimConfig o;
    CHECK(run.optim.lr == o.lr);
    CHECK(run.optim.beta2 == o.beta2);
    CHECK(run.optim.weight_decay == o.weight_decay);
    CHECK(run.sched.kind == optim::ScheduleConfig().kind);
    CHECK(run.data.mqar.vocab == data::MqarConfig().vocab);
    CHECK(run.data.markov.train_examples == data::MarkovConfig().train_examples);
    CHECK(run.train.global_batch_size == train::TrainConfig().global_batch_size);
    CHECK(run.eval.micro_batch_size == train::EvalConfig().micro_batch_size);
    CHECK(run.ckpt.keep_last == train::CkptConfig().keep_last);
  }

  TEST_CASE("values that follow others are filled in") {
    const RunConfig run = least({"train.global_batch_size=24", "model.block_size=128"});
    CHECK(run.train.micro_batch_size == 24);
    CHECK(run.data.seq_len == 128);
    CHECK(run.out_dir == "runs/a");
    CHECK(run.tokens_per_step() == 24 * 128);
  }

  TEST_CASE("the planned steps come from steps and tokens, whichever end first") {
    CHECK(least().planned_steps() == 100);
    const std::vector<std::string> small = {"train.global_batch_size=2",
                                            "data.seq_len=10"};  // 20 tokens a step
    const auto with = [&](const std::string& steps, const std::string& tokens) {
      return least({small[0], small[1], steps, tokens}).planned_steps();
    };
    CHECK(with("train.max_steps=100", "train.max_tokens=201") == 11);
    CHECK(with("train.max_steps=100", "train.max_tokens=200") == 10);
    CHECK(with("train.max_steps=5", "train.max_tokens=200") == 5);
    CHECK(with("train.max_steps=0", "train.max_tokens=200") == 10);
  }

  TEST_CASE("the resolved configuration, read again, is the same") {
    const RunConfig run =
        least({"model.attention=[{kind: sparse, k: 2}, dense]", "train.max_time=5m",
               "optim.lr=1e-3", "optim.no_decay=['*.gate', \"no\"]",
               "optim.lr_scale={wte.*: 2, '*.G': 3e1, \"no\": 1}", "out_dir='12'"});
    const std::string yaml = run.resolved.yaml();
    const RunConfig again = RunConfig::from(config::parse(yaml, "config.yaml"), kinds());
    CHECK(again.resolved.yaml() == yaml);
    CHECK(again.result_hash() == run.result_hash());
    CHECK(again.out_dir == "12");
    CHECK(again.optim.no_decay == std::vector<std::string>{"*.gate", "no"});
    CHECK(again.optim.lr_scale ==
          std::vector<optim::LrScale>{{"*.G", 30}, {"no", 1}, {"wte.*", 2}});
    for (const config::Option& option : train::config_options()) {
      CAPTURE(std::string(option.key));
      CHECK((run.resolved.find(option.key) != nullptr || option.default_value.empty()));
    }
    const auto json = nlohmann::json::parse(run.resolved.json());
    CHECK(json.at("train").at("max_time") == 300);
    CHECK(json.at("model").at("attention").at(0) ==
          nlohmann::json{{"kind", "sparse"}, {"k", 2}, {"straight_through", true}});
    CHECK(json.at("out_dir") == "12");
  }
}

TEST_SUITE("run config attention") {
  TEST_CASE("a kind alone and a map with options both go to every layer") {
    const RunConfig run = least({"model.attention={kind: sparse, k: 4}", "model.n_layer=2"});
    REQUIRE(run.model.attention.size() == 2);
    CHECK(run.model.attention[1].kind == "sparse");
    CHECK(run.model.attention[1].options.get_int("k") == 4);
    CHECK(run.model.attention[1].options.get_bool("straight_through"));
    CHECK(least().model.attention.size() == 4);
    CHECK(least().model.attention[3].kind == "dense");
  }

  TEST_CASE("a second name of a kind becomes the first") {
    const RunConfig run = least({"model.attention=exact"});
    CHECK(run.model.attention[0].kind == "dense");
    CHECK(run.resolved.find("model.attention.kind")->text() == "dense");
    CHECK(run.result_hash() == least().result_hash());
  }

  TEST_CASE("a shorter list repeats over the layers") {
    const RunConfig run =
        least({"model.attention=[dense, {kind: sparse}, sparse]", "model.n_layer=5"});
    std::string order;
    for (const auto& choice : run.model.attention)
      order += choice.kind.substr(0, 1);
    CHECK(order == "dssds");
  }

  TEST_CASE("options are checked against the kind, with their place") {
    const auto refused = [](const std::string& text) {
      return test::message(
          [&] { from("data: {kind: markov}\ntrain: {max_steps: 1}\nmodel:\n" + text); });
    };
    CHECK(refused("  attention: {kind: sparse, k: 65}\n") ==
          "a.yaml:4:32: model.attention.k is 65, but must be an integer in [1, 64]");
    CHECK(refused("  attention:\n  - dense\n  - kind: sparse\n    kk: 3\n") ==
          "a.yaml:7:5: unknown key model.attention[1].kk; did you mean model.attention[1].k?");
    CHECK(refused("  attention: {kind: dense, k: 3}\n") ==
          "a.yaml:4:28: unknown key model.attention.k; model.attention has no options");
    CHECK(refused("  attention: sparce\n") ==
          "a.yaml:4:14: model.attention.kind is 'sparce', but must be one of dense, exact, sparse; "
          "did "
          "you mean sparse?");
    CHECK(refused("  attention: [dense, [sparse]]\n") ==
          "a.yaml:4:22: model.attention[1] is a list, but must be a kind or a map with a kind");
    CHECK(refused("  attention: []\n") ==
          "a.yaml:4:14: model.attention has 0 entries, but must have 1 to model.n_layer (4)");
    CHECK(refused("  n_layer: 1\n  attention: [dense, sparse]\n") ==
          "a.yaml:5:14: model.attention has 2 entries, but must have 1 to model.n_layer (1)");
  }
}
