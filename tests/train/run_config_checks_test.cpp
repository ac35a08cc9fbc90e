// What must hold between keys, and what the hashes of a configuration depend on.

#include <doctest/doctest.h>

#include "config/message.h"
#include "train/run_config_case.h"

using namespace fovea;
using test::from;
using test::least;

namespace {

std::string refusal(const std::vector<std::string>& overrides) {
  std::string text = test::message([&] { least(overrides); });
  // Behind "command line: argument: ".
  const std::string source = "command line: " + (overrides.empty() ? "" : overrides.front()) + ": ";
  return text.starts_with(source) ? text.substr(source.size()) : text;
}

}  // namespace

TEST_SUITE("run config checks") {
  TEST_CASE("sizes must divide") {
    CHECK(refusal({"model.n_head=3"}) ==
          "model.n_embd is 256, but must be a multiple of model.n_head (3) unless model.head_dim "
          "is given");
    CHECK(least({"model.n_head=3", "model.head_dim=64"}).model.head_width() == 64);
    CHECK(refusal({"model.n_kv_head=3"}) ==
          "model.n_kv_head is 3, but must divide model.n_head (4)");
    CHECK(refusal({"train.micro_batch_size=5"}) ==
          "train.micro_batch_size is 5, but must divide train.global_batch_size (32)");
    CHECK(refusal({"ckpt.keep_every=15", "ckpt.interval=10"}) ==
          "ckpt.keep_every is 15, but must be a multiple of ckpt.interval (10)");
  }

  TEST_CASE("rotated features are even and no more than there are, if anything rotates") {
    CHECK(refusal({"model.rope.width=7", "model.position=rope"}) ==
          "model.rope.width is 7, but must be even");
    CHECK(refusal({"model.rope.width=66", "model.position=rope"}) ==
          "model.rope.width is 66, but must be at most the head width (64)");
    CHECK(refusal({"model.head_dim=15", "model.position=rope"}) ==
          "model.head_dim is 15, but must be even: model.position is rope");
    CHECK(refusal({"model.n_head=4", "model.position=rope", "model.n_embd=36"}) ==
          "the width of a head is 9 (model.n_embd / model.n_head), but must be even: "
          "model.position is rope");
    CHECK(least({"model.rope.width=7"}).model.rope.width == 7);
  }

  TEST_CASE("keys that the kind of data does not use are refused where they are asked for") {
    CHECK(refusal({"data.tokenizer=word"}) ==
          "data.tokenizer is given, but data.kind markov does not use it (text, tokens do)");
    CHECK(refusal({"data.mqar.pairs=4"}) ==
          "data.mqar.pairs is given, but data.kind markov does not use it (mqar does)");
    CHECK(refusal({"data.text_field=body", "data.kind=tokens", "data.path=x.bin"}) ==
          "data.text_field is given, but data.kind tokens does not use it (text does)");
    CHECK(refusal({"data.mix=[{path: x}]"}).find("data.mix is given, but") == 0);
    CHECK(least({"data.path=", "data.seq_len=8", "data.split=train"}).unused.empty());
  }

  TEST_CASE("in a file such keys are named unless they have their defaults") {
    const auto unused = [](const std::string& data) {
      return from("train: {max_steps: 1}\nmodel: {attention: dense}\ndata: {" + data + "}\n")
          .unused;
    };
    using Keys = std::vector<std::string>;
    CHECK(unused("kind: markov, path: x, markov: {vocab: 8}, mqar: {pairs: 8, vocab: 999}") ==
          Keys{"data.path", "data.mqar.vocab"});
    CHECK(unused("kind: text, path: x, text_field: body").empty());
    const train::RunConfig run = least();
    CHECK(from(run.resolved.yaml()).unused.empty());
  }

  TEST_CASE("examples fit into the model, and tasks to their data") {
    CHECK(refusal({"data.seq_len=300"}) ==
          "data.seq_len is 300, but must be at most model.block_size (256)");
    CHECK(refusal({"model.vocab_size=63"}) ==
          "model.vocab_size is 63, but the data has 64 token ids");
    CHECK(refusal({"task=mqar"}) == "task is mqar, which does not learn from data.kind markov");
    CHECK(refusal({"data.kind=text"}) ==
          "data.path is missing: data.kind text needs a file or a folder");
    CHECK(refusal({"data.seq_len=63", "data.kind=mqar", "task=mqar"}) ==
          "data.seq_len is 63, but must be even for mqar");
    CHECK(refusal({"data.mqar.pairs=17", "data.seq_len=64", "data.kind=mqar", "task=mqar"}) ==
          "data.mqar.pairs is 17, but must be at most a quarter of data.seq_len (64)");
    CHECK(refusal({"data.mqar.vocab=64", "data.seq_len=64", "data.kind=mqar", "task=mqar"}) ==
          "data.mqar.vocab is 64, but must be larger than data.seq_len (64)");
  }

  TEST_CASE("something must end the run, and a falling schedule must know where") {
    CHECK(test::message([] { from("data: {kind: markov}\nmodel: {attention: dense}\n"); }) ==
          "a.yaml:1:1: nothing ends the run: give train.max_steps, train.max_tokens or "
          "train.max_time");
    CHECK(refusal({"train.max_time=5m", "train.max_steps=0"}) ==
          "the schedule's length is unknown: give sched.decay_steps, train.max_steps or "
          "train.max_tokens");
    CHECK(least({"train.max_time=5m", "train.max_steps=0", "sched.decay_steps=100"})
              .train.max_seconds == 300);
    CHECK(
        least({"train.max_time=5m", "train.max_steps=0", "sched.kind=constant"}).planned_steps() ==
        0);
  }

  TEST_CASE("warmup and decay fit") {
    CHECK(refusal({"sched.warmup_steps=50", "sched.decay_steps=50"}) ==
          "sched.warmup_steps is 50, but must be below sched.decay_steps (50)");
    CHECK(refusal({"sched.decay_steps=60", "sched.kind=wsd", "sched.warmup_steps=50"}) ==
          "sched.warmup_steps and sched.decay_steps are 50 and 60, but must fit into the 100 steps "
          "of the run");
    CHECK(refusal({"sched.kind=noam"}) ==
          "sched.warmup_steps is 0, but this schedule needs a warmup");
    CHECK(refusal({"optim.betas=[0.9]"}) == "optim.betas has 1 numbers, but must have 2");
  }

  TEST_CASE("what watches evaluations needs some") {
    CHECK(refusal({"eval.patience=3"}) ==
          "eval.patience is 3, but without eval.interval there is nothing to wait for");
    CHECK(refusal({"ckpt.keep_best=true"}) ==
          "ckpt.keep_best is true, but without eval.interval no checkpoint is the best");
  }

  TEST_CASE("findings of every sort are reported at once, and a faulty key is not judged twice") {
    CHECK(test::message([] {
            from(
                "model:\n  n_head: three\n  n_kv_head: 5\n  attention: {kind: sparse, k: 0}\n"
                "train:\n  micro_batch_size: 5\n  max_step: 10\n",
                {"data.kind=markov"});
          }) ==
          "a.yaml:2:11: model.n_head is 'three', but must be an integer in [1, 1024]\n"
          "a.yaml:4:32: model.attention.k is 0, but must be an integer in [1, 64]\n"
          "a.yaml:5:1: nothing ends the run: give train.max_steps, train.max_tokens or "
          "train.max_time\n"
          "a.yaml:6:21: train.micro_batch_size is 5, but must divide train.global_batch_size (32)\n"
          "a.yaml:7:3: unknown key train.max_step; did you mean train.max_steps?");
  }

  TEST_CASE("an override's misspelling names the argument and the nearest key") {
    CHECK(test::message([] { least({"optim.lrr=1"}); }) ==
          "command line: optim.lrr=1: unknown key optim.lrr; did you mean optim.lr?");
    CHECK(test::message([] { least({"optim.lr=fast"}); }) ==
          "command line: optim.lr=fast: optim.lr is 'fast', but must be a number in [0, 1000]");
    CHECK(test::message([] { least({"optim.lr_scale={'*.G': 0}"}); }) ==
          "command line: optim.lr_scale={'*.G': 0}: optim.lr_scale.*.G is 0, but must be a number "
          "in [1e-9, 1e9]");
  }
}

TEST_SUITE("run config hash") {
  TEST_CASE("what no result depends on does not change the hash") {
    const std::string hash = least().result_hash();
    CHECK(hash.size() == 16);
    for (const char* same : {"train.threads=2", "train.recompute=true", "train.micro_order=reverse",
                             "train.resume=never", "train.max_time=1h", "log.interval=1",
                             "ckpt.interval=5", "out_dir=x", "optim.lr=3.0e-4", "model.n_kv_head=4",
                             "model.head_dim=64", "model.mlp_dim=1024", "data.seq_len=256",
                             "train.micro_batch_size=32", "model.rope.base=5"}) {
      CAPTURE(same);
      CHECK(least({same}).result_hash() == hash);
    }
    const std::string other_kind =
        "train: {max_steps: 100}\nmodel: {attention: dense}\ndata: {kind: markov, mqar: {pairs: "
        "2}}\n";
    CHECK(from(other_kind).result_hash() == hash);
  }

  TEST_CASE("what results depend on changes it") {
    const std::string hash = least().result_hash();
    for (const char* other :
         {"seed=1", "optim.lr=1e-4", "train.max_steps=101", "model.attention=sparse",
          "ops.fuse=false", "train.micro_batch_size=16", "train.precision=fp64",
          "data.markov.vocab=65", "eval.interval=5", "optim.lr_scale={'*': 2}"}) {
      CAPTURE(other);
      CHECK(least({other}).result_hash() != hash);
    }
    CHECK(least({"model.attention={kind: sparse, k: 3}"}).result_hash() !=
          least({"model.attention=sparse"}).result_hash());
  }

  TEST_CASE("a run may go on for longer exactly if its schedule does not notice") {
    const auto prolonged = [](std::vector<std::string> overrides) {
      const std::string before = least(overrides).resume_hash();
      overrides.emplace_back("train.max_steps=200");
      return least(overrides).resume_hash() == before;
    };
    CHECK_FALSE(prolonged({"sched.kind=cosine"}));
    CHECK(prolonged({"sched.kind=cosine", "sched.decay_steps=80"}));
    CHECK_FALSE(prolonged({"sched.kind=wsd", "sched.decay_steps=10"}));
    CHECK(prolonged({"sched.kind=constant"}));
    CHECK(prolonged({"sched.kind=inverse_sqrt", "sched.warmup_steps=10"}));
    CHECK(least({"seed=1"}).resume_hash() != least().resume_hash());
  }
}
