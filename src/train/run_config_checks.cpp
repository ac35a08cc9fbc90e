#include "train/run_config_checks.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "attention/registry.h"
#include "core/text.h"
#include "data/niah.h"
#include "data/source.h"
#include "models/build.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

bool may_use_gpu(const TrainConfig& config) {
  return config.device == DeviceChoice::cuda ||
         (config.device == DeviceChoice::automatic && why_not_cuda(config).empty());
}

class Checks {
 public:
  Checks(const RunConfig& run, const config::Node& given, Machine machine,
         config::Findings& findings)
      : run_(run), given_(given), machine_(machine), findings_(findings) {}

  void run() {
    model();
    if (machine_ == Machine::here) on_this_machine();
    rope();
    data();
    batches();
    length();
    schedule();
    watching();
    evaluation();
    reduction();
  }

 private:
  // `what` is at fault between `keys`; the first one that was written has the place,
  // else the first one's section.
  void require(bool holds, std::initializer_list<std::string_view> keys, const std::string& what) {
    if (holds) return;
    for (const std::string_view key : keys) {
      if (findings_.has(key)) return;
    }
    for (const std::string_view key : keys) {
      const config::Node* node = given_.find(key);
      if (node != nullptr && !node->is_null()) return findings_.add(node->place(), key, what);
    }
    const std::string_view first = *keys.begin();
    const config::Node* section = given_.find(first.substr(0, first.find('.')));
    findings_.add(section != nullptr ? section->key_place() : given_.place(), first, what);
  }

  void reduction() {
    const DistributedConfig& d = run_.distributed;
    require(d.reduce_dtype == ReduceDType::fp32 || !d.reproducible,
            {"distributed.reduce_dtype", "distributed.reproducible"},
            "gradients that travel in 16 bits have other bits on another number of processes: "
            "that needs distributed.reproducible: false");
    require(d.reduce_dtype == ReduceDType::fp32 || d.zero == 0,
            {"distributed.reduce_dtype", "distributed.zero"},
            "with distributed.zero gradients are reduced as they are: leave "
            "distributed.reduce_dtype at fp32");
    require(d.reduce_dtype == ReduceDType::fp32 || run_.train.precision != Precision::fp64,
            {"distributed.reduce_dtype", "train.precision"},
            "fp64 gradients are reduced as they are: leave distributed.reduce_dtype at fp32");
  }

  void model() {
    const models::ModelConfig& m = run_.model;
    require(m.head_dim > 0 || m.n_embd % m.n_head == 0,
            {"model.n_head", "model.n_embd", "model.head_dim"},
            cat("model.n_embd is ", m.n_embd, ", but must be a multiple of model.n_head (",
                m.n_head, ") unless model.head_dim is given"));
    require(
        m.n_head % m.kv_heads() == 0, {"model.n_kv_head", "model.n_head"},
        cat("model.n_kv_head is ", m.n_kv_head, ", but must divide model.n_head (", m.n_head, ")"));
  }

  void on_this_machine() {
    const TrainConfig& t = run_.train;
    require(t.precision != Precision::tf32 || may_use_gpu(t), {"train.precision"},
            "train.precision is tf32, but the CPU has no such arithmetic: use fp32");
    const int width = run_.model.head_width();
    const auto forces_tiles = [](const models::ModelConfig::AttentionChoice& choice) {
      const config::Node* const kernel = choice.options.find("kernel");
      return choice.kind == "standard" && kernel != nullptr && kernel->text() == "tiled!";
    };
    for (const models::ModelConfig::AttentionChoice& choice : run_.model.attention) {
      const attention::AttentionSpec* const spec = attention::find_attention(choice.kind);
      require(width <= attention::kWidestTiledOnCuda || spec == nullptr || spec->caps.any_width ||
                  !may_use_gpu(t),
              {"model.attention", "model.head_dim", "model.n_head"},
              cat("model.attention.kind is ", choice.kind, ", whose heads end at width ",
                  attention::kWidestTiledOnCuda, " on a GPU, but these have ", width,
                  ": train.device: cpu has no such limit"));
    }
    require(
        width <= attention::kWidestTiledOnCuda ||
            std::none_of(run_.model.attention.begin(), run_.model.attention.end(), forces_tiles) ||
            !may_use_gpu(t),
        {"model.attention", "model.head_dim", "model.n_head"},
        cat("model.attention.kernel is tiled!, but on a GPU its heads end at width ",
            attention::kWidestTiledOnCuda, " and these have ", width,
            ": use materialised, or auto"));
  }

  void rope() {
    const models::ModelConfig& m = run_.model;
    if (m.position != models::Position::rope) return;
    const int width = m.rope.width > 0 ? m.rope.width : m.head_width();
    if (m.rope.width == 0) {
      return require(
          width % 2 == 0, {"model.head_dim", "model.n_head", "model.n_embd", "model.position"},
          cat(m.head_dim > 0
                  ? cat("model.head_dim is ", width)
                  : cat("the width of a head is ", width, " (model.n_embd / model.n_head)"),
              ", but must be even: model.position is rope"));
    }
    require(width % 2 == 0, {"model.rope.width", "model.position"},
            cat("model.rope.width is ", width, ", but must be even"));
    require(width <= m.head_width(),
            {"model.rope.width", "model.head_dim", "model.n_head", "model.n_embd"},
            cat("model.rope.width is ", width, ", but must be at most the head width (",
                m.head_width(), ")"));
  }

  void data() {
    const data::DataConfig& d = run_.data;
    require(d.seq_len <= run_.model.block_size, {"data.seq_len", "model.block_size"},
            cat("data.seq_len is ", d.seq_len, ", but must be at most model.block_size (",
                run_.model.block_size, ")"));
    task();
    const bool files = d.kind == "text" || d.kind == "tokens";
    require(!files || !d.path.empty() || !d.mix.empty(), {"data.path", "data.kind"},
            cat("data.path is missing: data.kind ", d.kind, " needs a file or a folder"));
    require(d.mix.empty() || (files && d.path.empty()), {"data.mix", "data.path", "data.kind"},
            files ? std::string("data.mix and data.path are both given; keep one")
                  : cat("data.mix is given, but data.kind ", d.kind, " has no corpora"));
    // Those of tokenizers and token files are known once they are opened.
    const bool known = !files || (d.kind == "text" && d.tokenizer == "byte");
    const int ids = known ? data::vocab_size(d) : 0;
    require(run_.model.vocab_size == 0 || run_.model.vocab_size >= ids,
            {"model.vocab_size", "data.kind", "data.mqar.vocab", "data.markov.vocab"},
            cat("model.vocab_size is ", run_.model.vocab_size, ", but the data has ", ids,
                " token ids"));
    if (d.kind == "mqar") mqar();
    if (d.kind == "niah") niah();
    if (d.kind == "listops" && d.path.empty()) listops();
  }

  // Which data and which network a task learns with.
  void task() {
    struct Needs {
      std::string_view task, kinds, model;
    };
    static constexpr Needs kNeeds[] = {{"classification", "listops", "encoder"},
                                       {"lm", "text tokens markov", "decoder"},
                                       {"mqar", "mqar", "decoder"},
                                       {"niah", "niah", "decoder"}};
    const data::DataConfig& d = run_.data;
    for (const Needs& needs : kNeeds) {
      if (run_.task != needs.task) continue;
      // No kind's name is a part of another's.
      require(needs.kinds.find(d.kind) != std::string_view::npos, {"task", "data.kind"},
              cat("task is ", run_.task, ", which does not learn from data.kind ", d.kind));
      require(
          run_.model.kind == needs.model, {"model.kind", "task"},
          cat("model.kind is ", run_.model.kind, ", but task ", run_.task, " needs ", needs.model));
    }
  }

  void listops() {
    const data::ListOpsConfig& l = run_.data.listops;
    require(l.max_length > l.min_length + 1, {"data.listops.max_length", "data.listops.min_length"},
            cat("data.listops.max_length is ", l.max_length,
                ", but must be above data.listops.min_length (", l.min_length,
                ") by 2 at least: neither is included"));
  }

  void niah() {
    const data::NiahConfig& n = run_.data.niah;
    const bool is_elsaa = n.layout == data::NiahLayout::elsaa;
    std::vector<int> lengths = n.test_lengths;
    lengths.push_back(run_.data.seq_len);
    const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
    const int least = data::niah_least_length(n);
    require(
        *shortest >= least,
        {is_elsaa ? "data.niah.needles" : "data.niah.decoys", "data.niah.test_lengths",
         "data.seq_len", "model.block_size"},
        cat("data.niah.", is_elsaa ? cat("needles is ", n.needles) : cat("decoys is ", n.decoys),
            ", which needs ", least, " tokens, but there are sequences of ", *shortest));
    longer_than_trained("data.niah.test_lengths", *longest);
  }

  // Whether a model can be evaluated on sequences of more than block_size tokens.
  void longer_than_trained(std::string_view key, std::int64_t length) {
    const models::ModelConfig& m = run_.model;
    if (length <= m.block_size) return;
    require(m.position != models::Position::learned || m.interpolate_positions,
            {key, "model.block_size"},
            cat(key, " has ", length, " tokens, but learned positions end at model.block_size (",
                m.block_size, "): give model.interpolate_positions, or other positions"));
    require_reach({key, "model.attention"}, cat(key, " has ", length, " tokens"), length);
  }

  // Every layer's attention takes `length` tokens; `what` says where these come from.
  void require_reach(std::initializer_list<std::string_view> keys, const std::string& what,
                     std::int64_t length) {
    const models::ModelConfig& m = run_.model;
    if (length <= m.block_size) return;
    for (std::size_t layer = 0; layer < m.attention.size(); ++layer) {
      const models::ModelConfig::AttentionChoice& choice = m.attention[layer];
      const attention::AttentionSpec* const spec = attention::find_attention(choice.kind);
      if (spec == nullptr) continue;
      const std::int64_t most = attention::longest(
          *spec, models::attention_config(m, static_cast<int>(layer), nullptr), choice.options);
      require(length <= most, keys,
              cat(what, ", but model.attention.kind ", choice.kind,
                  most == m.block_size ? cat(" is bound to model.block_size (", most, ")")
                                       : cat(" takes at most ", most)));
    }
  }

  void mqar() {
    const data::MqarConfig& q = run_.data.mqar;
    const int length = run_.data.seq_len;
    require(length % 2 == 0, {"data.seq_len", "model.block_size"},
            cat("data.seq_len is ", length, ", but must be even for mqar"));
    require(std::int64_t{4} * q.pairs <= length,
            {"data.mqar.pairs", "data.seq_len", "model.block_size"},
            cat("data.mqar.pairs is ", q.pairs, ", but must be at most a quarter of data.seq_len (",
                length, ")"));
    require(q.vocab > length, {"data.mqar.vocab", "data.seq_len", "model.block_size"},
            cat("data.mqar.vocab is ", q.vocab, ", but must be larger than data.seq_len (", length,
                ")"));
  }

  void batches() {
    const TrainConfig& t = run_.train;
    require(t.global_batch_size % t.micro_batch_size == 0,
            {"train.micro_batch_size", "train.global_batch_size"},
            cat("train.micro_batch_size is ", t.micro_batch_size,
                ", but must divide train.global_batch_size (", t.global_batch_size, ")"));
  }

  void length() {
    const TrainConfig& t = run_.train;
    require(t.max_steps > 0 || t.max_tokens > 0 || t.max_seconds > 0,
            {"train.max_steps", "train.max_tokens", "train.max_time"},
            "nothing ends the run: give train.max_steps, train.max_tokens or train.max_time");
  }

  void schedule() {
    using enum optim::ScheduleKind;
    const optim::ScheduleConfig& s = run_.sched;
    const std::int64_t steps = run_.planned_steps();
    const bool falls = s.kind == cosine || s.kind == linear;
    const bool by_time = steps == 0 && run_.train.max_seconds > 0;
    require(!by_time || !falls || s.decay_steps > 0, {"sched.kind", "train.max_time"},
            "the schedule's length is unknown: give sched.decay_steps, train.max_steps or "
            "train.max_tokens");
    require(!by_time || s.kind != wsd, {"sched.kind", "train.max_time"},
            "the schedule's length is unknown: give train.max_steps or train.max_tokens");
    require(!falls || s.decay_steps == 0 || s.warmup_steps < s.decay_steps,
            {"sched.warmup_steps", "sched.decay_steps"},
            cat("sched.warmup_steps is ", s.warmup_steps, ", but must be below sched.decay_steps (",
                s.decay_steps, ")"));
    require(s.kind != wsd || s.decay_steps == 0 || steps == 0 ||
                s.warmup_steps + s.decay_steps <= steps,
            {"sched.decay_steps", "sched.warmup_steps", "train.max_steps", "train.max_tokens"},
            cat("sched.warmup_steps and sched.decay_steps are ", s.warmup_steps, " and ",
                s.decay_steps, ", but must fit into the ", steps, " steps of the run"));
    require((s.kind != inverse_sqrt_literal && s.kind != noam) || s.warmup_steps > 0,
            {"sched.warmup_steps", "sched.kind"},
            "sched.warmup_steps is 0, but this schedule needs a warmup");
  }

  void watching() {
    const EvalConfig& e = run_.eval;
    const CkptConfig& c = run_.ckpt;
    require(e.patience == 0 || e.interval > 0, {"eval.patience", "eval.interval"},
            cat("eval.patience is ", e.patience,
                ", but without eval.interval there is nothing to wait for"));
    require(!c.keep_best || e.interval > 0, {"ckpt.keep_best", "eval.interval"},
            "ckpt.keep_best is true, but without eval.interval no checkpoint is the best");
    require(c.keep_every == 0 || (c.interval > 0 && c.keep_every % c.interval == 0),
            {"ckpt.keep_every", "ckpt.interval"},
            cat("ckpt.keep_every is ", c.keep_every, ", but must be a multiple of ckpt.interval (",
                c.interval, ")"));
  }

  void evaluation() {
    const data::EvalProtocol& p = run_.eval.protocol;
    require(run_.model.position != models::Position::learned || run_.model.interpolate_positions ||
                p.context <= run_.model.block_size || p.context == run_.data.seq_len,
            {"eval.context", "model.block_size"},
            cat("eval.context is ", p.context, ", but learned positions end at model.block_size (",
                run_.model.block_size, ")"));
    require_reach({"eval.context", "model.block_size"}, cat("eval.context is ", p.context),
                  p.context);
    require(p.stride <= p.context, {"eval.stride", "eval.context"},
            cat("eval.stride is ", p.stride, ", but must be at most eval.context (", p.context,
                "): tokens between the windows would never be scored"));
    const std::string& kind = run_.data.kind;
    require(kind == "text" || kind == "tokens" ||
                (p.context == run_.data.seq_len && p.stride == 0 &&
                 p.prefix == data::Tristate::automatic &&
                 p.documents == data::Tristate::automatic && run_.eval.random_batches == 0),
            {"eval.context", "eval.stride", "eval.prefix", "eval.documents", "eval.random_batches",
             "data.kind"},
            cat("data.kind ", kind,
                " has examples and no text to cut windows from: leave out "
                "eval.context, eval.stride, eval.prefix, eval.documents and eval.random_batches"));
  }

  const RunConfig& run_;
  const config::Node& given_;
  Machine machine_;
  config::Findings& findings_;
};

}  // namespace

void check_run(const RunConfig& run, const config::Node& given, Machine machine,
               config::Findings& findings) {
  Checks(run, given, machine, findings).run();
}

}  // namespace fovea::train
