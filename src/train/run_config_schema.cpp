// The one table of configuration keys. The words of a choice stand in the order of its enum.

#include <array>

#include "core/text.h"
#include "train/run_config.h"

namespace fovea::train {

namespace {

using config::Option;
using enum config::Type;

constexpr std::string_view kCount = "[1, 1000000000]";
constexpr std::string_view kCountOrNone = "[0, 1000000000]";
constexpr std::string_view kHuge = "[0, 1000000000000000]";

constexpr std::array kOptions = std::to_array<Option>({
    {"task", choice, "lm", "classification | lm | mqar | niah",
     "What is learned: a sequence's class, the next token, the answers of multi-query associative "
     "recall, or the value of a needle in a haystack."},
    {"seed", integer, "0", "[0, 9007199254740991]",
     "All random streams are derived from it by name."},
    {"out_dir", string, "", "",
     "The run folder; runs/<name of the configuration file> if not given."},

    {"model.kind", choice, "decoder", "decoder | encoder",
     "The network: causal, predicting tokens, or bidirectional, classifying sequences."},
    {"model.n_layer", integer, "4", "[1, 1024]", "Number of blocks."},
    {"model.n_head", integer, "4", "[1, 1024]", "Query heads of a block."},
    {"model.n_kv_head", integer, "0", "[0, 1024]",
     "Key and value heads, a divisor of n_head; 0: n_head."},
    {"model.n_embd", integer, "256", "[1, 65536]", "Model width."},
    {"model.head_dim", integer, "0", "[0, 4096]", "Width of a head; 0: n_embd / n_head."},
    {"model.block_size", integer, "256", "[1, 1048576]", "Longest sequence, in tokens."},
    {"model.vocab_size", integer, "0", "[0, 16777216]",
     "Number of token ids; 0: as many as the data has."},
    {"model.norm", choice, "layer", "layer | rms", "Normalisation before attention, MLP and head."},
    {"model.norm_eps", number, "1e-5", "(0, 1]", "Added to the variance or mean square."},
    {"model.mlp", choice, "gelu", "gelu | swiglu", "The feed-forward part of a block."},
    {"model.mlp_dim", integer, "0", "[0, 1048576]",
     "Its hidden width; 0: 4 n_embd (gelu), or 8/3 n_embd rounded up to a multiple of 64 "
     "(swiglu)."},
    {"model.position", choice, "learned", "none | sinusoidal | learned | rope | alibi",
     "How tokens know their position."},
    {"model.rope.base", number, "10000", "(1, inf)",
     "Pair t at position p turns by p base^(-2t/width)."},
    {"model.rope.layout", choice, "half", "half | interleaved",
     "Pairs (t, t + width/2), or (2t, 2t + 1)."},
    {"model.rope.width", integer, "0", "[0, 4096]", "Features of a head that turn, even; 0: all."},
    {"model.qk_norm", boolean, "false", "", "RMS norm of queries and keys per head."},
    {"model.bias", boolean, "true", "", "Biases in linear layers and layer norms."},
    {"model.interpolate_positions", boolean, "false", "",
     "learned positions: sequences longer than block_size, in evaluations, see its table stretched "
     "over them instead of being refused."},
    {"model.tie_embeddings", boolean, "true", "",
     "decoder: the output layer shares the token embedding."},
    {"model.pool", choice, "mean", "cls | mean | last",
     "encoder: the state that is classified: of a CLS token before the others (it counts among the "
     "tokens of an example), the mean over the real tokens, or that of the last one."},
    {"model.classes", integer, "0", "[0, 16777216]", "encoder: number of classes; 0: the data's."},
    {"model.dropout", number, "0", "[0, 1)", "Of embeddings and residual branches."},
    {"model.attention_dropout", number, "0", "[0, 1)", "Of attention probabilities."},
    {"model.init_std", number, "0.02", "(0, 10]",
     "Of initial weights; output projections of residual branches get it divided by sqrt(2 "
     "n_layer)."},
    {"model.attention", any, "standard", "kind, map, or list of them",
     "A kind, a map of kind (standard if not given) and its options, or a list of these, one a "
     "layer; a shorter list repeats."},

    {"data.kind", choice, "text", "text | tokens | mqar | markov | listops | niah",
     "Texts, tokens (of `fovea data prepare`, llm.c or nanoGPT), generated associative recall, "
     "generated text of known entropy, ListOps (generated, or the files of data.path), or "
     "generated "
     "needles in haystacks."},
    {"data.path", string, "", "",
     "text: a file (plain, gzip or JSON lines), a folder, or a pattern; tokens: a prepared folder, "
     "a .bin file, a folder or pattern of them; listops: a folder with basic_{train,val,test}.tsv, "
     "or one such file."},
    {"data.mix", any, "", "list of {path, weight}",
     "text, tokens: several corpora instead of data.path, drawn in exact proportion to their "
     "weights (1 if not given)."},
    {"data.tokenizer", string, "byte", "",
     "text: byte; word or char, with the vocabulary of the training split, or word:FILE, "
     "char:FILE; "
     "or a tokenizer's file or folder. tokens: byte stands for the one they were prepared with."},
    {"data.text_field", string, "text", "",
     "text: the key of JSON lines; dots lead into nested objects."},
    {"data.pack", choice, "plain", "plain | documents",
     "text, tokens: whether a window's tokens see across documents, or their own one only."},
    {"data.seq_len", integer, "0", "[0, 1048576]", "Tokens of an example; 0: model.block_size."},
    {"data.val_fraction", number, "0.1", "[0, 1]",
     "text, tokens: share of every document that is held out, where no split is named; listops: of "
     "the examples of a file alone."},
    {"data.split", choice, "validation", "train | validation | test",
     "What `fovea eval` scores; training is evaluated on validation."},
    {"data.token_type", choice, "uint16", "uint16 | uint32", "tokens: of files without a header."},
    {"data.vocab_size", integer, "0", "[0, 16777216]",
     "tokens: number of ids of files that do not tell; 0: data.tokenizer's, else "
     "model.vocab_size, else 50257 (uint16)."},
    {"data.mqar.vocab", integer, "8192", "[4, 16777216]",
     "Token ids; the lower half are keys, the upper half values."},
    {"data.mqar.pairs", integer, "8", "[1, 1048576]", "Key-value pairs of an example."},
    {"data.mqar.train_examples", integer, "100000", kCount, "Training examples."},
    {"data.mqar.test_examples", integer, "3000", kCount, "Held-out examples."},
    {"data.mqar.power", number, "0.01", "(0, 1]",
     "Query slot x is drawn with weight power x^(power - 1)."},
    {"data.mqar.random_non_queries", boolean, "false", "",
     "Random ids instead of 0 where nothing is asked."},
    {"data.markov.vocab", integer, "64", "[4, 16777216]",
     "Token ids, each followed by one of four."},
    {"data.markov.train_examples", integer, "65536", kCount, "Training examples."},
    {"data.markov.test_examples", integer, "256", kCount, "Held-out examples."},
    {"data.listops.train_examples", integer, "96000", kCount,
     "Training examples that are generated without data.path."},
    {"data.listops.validation_examples", integer, "2000", kCount, "Validation examples."},
    {"data.listops.test_examples", integer, "2000", kCount, "Test examples."},
    {"data.listops.min_length", integer, "500", "[0, 1048576]",
     "Every expression has more tokens than this."},
    {"data.listops.max_length", integer, "2000", "[2, 1048576]",
     "Every expression has fewer tokens than this; those behind data.seq_len are cut off."},
    {"data.listops.max_depth", integer, "10", "[1, 64]", "Levels of an expression's tree."},
    {"data.listops.max_args", integer, "10", "[2, 64]", "Arguments of an operator, 2 to this."},
    {"data.niah.layout", choice, "elsaa", "elsaa | marked",
     "Pairs of key and value among fillers, one of them asked for; or a marked needle and decoys."},
    {"data.niah.generator", choice, "corrected", "corrected | reference",
     "elsaa: reference has the three defects of the published generator, for comparison."},
    {"data.niah.needles", integer, "1", "[1, 64]", "elsaa: pairs of key and value."},
    {"data.niah.decoys", integer, "0", "[0, 63]", "marked: needles with other keys."},
    {"data.niah.train_examples", integer, "200000", kCount, "Training examples."},
    {"data.niah.validation_examples", integer, "2000", kCount, "Validation examples."},
    {"data.niah.test_examples", integer, "500", kCount,
     "Test examples of each length and, of elsaa, each depth."},
    {"data.niah.test_lengths", numbers, "[]", "[2, 1048576]",
     "Lengths of the test, in tokens; none: data.seq_len."},
    {"data.niah.depths", numbers, "[0.1, 0.25, 0.5, 0.75, 0.9]", "[0, 1]",
     "elsaa: where the test's needles stand, as shares of the fillers; none: drawn as in "
     "training."},

    {"train.global_batch_size", integer, "32", kCount, "Sequences of an optimizer step."},
    {"train.micro_batch_size", integer, "", "[1, 1000000000] | auto",
     "Sequences computed at once, a divisor of global_batch_size; all of them if not given; auto: "
     "the most that fit into 92 % of the memory, by prediction before the run, which keeps the "
     "number when it is resumed."},
    {"train.max_steps", integer, "0", kHuge, "Ends the run after so many steps; 0: no limit."},
    {"train.max_tokens", integer, "0", kHuge,
     "Ends the run after so many input tokens; 0: no limit."},
    {"train.max_time", duration, "0", "[0, inf)",
     "Ends the run after so much time, counted over all its starts; 0: no limit."},
    {"train.precision", choice, "fp32", "fp64 | fp32 | tf32 | fp16-mixed | bf16-mixed",
     "Type of activations; sums and state are in 32 bits at least. fp64 runs on the CPU only, tf32 "
     "on CUDA only."},
    {"train.max_norm", number, "1", "[0, inf)",
     "Gradients are scaled down to this norm; 0: never."},
    {"train.recompute", boolean, "false", "",
     "Computes blocks again in the backward pass instead of keeping their activations; changes no "
     "bit."},
    {"train.resume", string, "auto", "",
     "auto: from the newest checkpoint of the run folder, if any; never; or a checkpoint's path."},
    {"train.on_nonfinite", choice, "stop", "stop | skip",
     "What a loss or gradient that is not finite does: ends the run, or leaves out the step."},
    {"train.micro_order", choice, "forward", "forward | reverse | shuffle",
     "Order in which micro-batches are computed; changes no bit."},
    {"train.threads", integer, "0", "[0, 4096]", "CPU threads; 0: one a core; changes no bit."},
    {"train.device", choice, "auto", "auto | cpu | cuda",
     "Where to compute; auto: a GPU if there is one and the precision runs there, unless the "
     "environment variable FOVEA_DEVICE is cpu."},
    {"train.cuda_graphs", boolean, "true", "",
     "On a GPU: captures the step and replays it; changes no bit."},
    {"train.gemm_table", string, "", "",
     "On a GPU: a table that fovea bench gemm --tune wrote, of which algorithm each product takes; "
     "empty: cuBLASLt's first answer. Another table gives other bits."},
    {"train.init_from", string, "", "",
     "Weights to start from: a run or checkpoint, a Hugging Face folder of GPT-2, Llama or Qwen3, "
     "or a llama2.c .bin; model.* keys that are not given are taken from there, and for texts "
     "data.tokenizer."},
    {"train.freeze", strings, "[]", "", "Globs of parameters that training leaves as they are."},

    {"optim.kind", choice, "adamw", "adamw", "The optimizer."},
    {"optim.lr", number, "3e-4", "[0, 1000]", "Peak learning rate."},
    {"optim.betas", numbers, "[0.9, 0.95]", "[0, 1)", "Decay of the two moments."},
    {"optim.eps", number, "1e-8", "(0, 1]", "Added to the root of the second moment."},
    {"optim.weight_decay", number, "0.1", "[0, 1000]", "Decoupled, scaled by the learning rate."},
    {"optim.no_decay", strings, "[]", "",
     "Globs of parameters without weight decay, besides those with fewer than two dimensions."},
    {"optim.lr_scale", named_numbers, "", "[1e-9, 1e9]",
     "Factors on the learning rate, weight decay's included, of parameters by globs, as in "
     "{'*.method.G': 100}; globs that match the same parameter must agree."},

    {"sched.kind", choice, "cosine",
     "constant | cosine | linear | wsd | inverse_sqrt | inverse_sqrt_literal | noam",
     "Course of the learning rate."},
    {"sched.warmup_steps", integer, "0", kCountOrNone,
     "Steps of linear rise; the turning point of inverse_sqrt and noam."},
    {"sched.min_lr_ratio", number, "0.1", "[0, 1]",
     "cosine, linear, wsd: what is left of lr at the end."},
    {"sched.decay_steps", integer, "0", kHuge,
     "cosine, linear: the step at which decay ends, 0: max_steps; wsd: length of the decay, 0: a "
     "tenth of max_steps."},

    {"eval.interval", integer, "0", kCountOrNone, "Steps between evaluations; 0: at the end only."},
    {"eval.max_batches", integer, "0", kCountOrNone, "Batches of an evaluation; 0: all."},
    {"eval.patience", integer, "0", "[0, 1000000]",
     "Evaluations without improvement before the run ends; 0: never."},
    {"eval.micro_batch_size", integer, "8", "[1, 1048576]",
     "Sequences evaluated at once, rounded so that it changes no bit."},
    {"eval.context", integer, "0", "[0, 1048576]",
     "text, tokens: inputs of a window; positions restart at 0 in each; 0: data.seq_len."},
    {"eval.stride", integer, "0", "[0, 1048576]",
     "text, tokens: from one window to the next, at most eval.context; only what no window scored "
     "before is scored; 0: eval.context."},
    {"eval.prefix", choice, "auto", "auto | true | false",
     "text, tokens: an end-of-text token before the first one, so that that is scored too; auto: "
     "if the tokenizer has one."},
    {"eval.documents", choice, "auto", "auto | true | false",
     "text, tokens: no window crosses the border of two documents; auto: where train/, validation/ "
     "and test/ are folders (PG-19), and for data.pack: documents."},
    {"eval.word_convention", choice, "auto", "auto | wikitext | wikitext-1 | whitespace",
     "`fovea eval`: what perplexity per word divides by: words and one for each line's end, one "
     "less than the pieces between single spaces, or words; auto: wikitext for WikiText's files "
     "and word tokenizers, else whitespace."},
    {"eval.words", integer, "0", kHuge,
     "`fovea eval`: the number of words, where an official one is used (PG-19); 0: counted."},
    {"eval.random_batches", integer, "0", "[0, 1000000]",
     "`fovea eval`: also estimates the loss from so many batches of 12 windows that begin "
     "anywhere, as nanoGPT does (200)."},

    {"ckpt.interval", integer, "0", kCountOrNone,
     "Steps between checkpoints; 0: at the end and when stopped only."},
    {"ckpt.keep_last", integer, "2", "[1, 1000000]", "How many of the newest are kept."},
    {"ckpt.keep_every", integer, "0", kCountOrNone,
     "Keeps those at multiples of so many steps; 0: none."},
    {"ckpt.async", choice, "auto", "auto | always | never",
     "Whether checkpoints are written while training goes on, from a copy in host memory; auto: on "
     "a GPU."},
    {"ckpt.keep_best", boolean, "false", "", "Keeps the one with the best evaluation."},

    {"log.interval", integer, "10", kCount, "Steps between lines on the console."},
    {"distributed.reproducible", boolean, "true", "",
     "Gradients are added in one fixed tree: the same bits on any number of processes and in any "
     "micro_order; false: as they are computed, in one buffer, and by whatever algorithm is "
     "fastest."},
    {"distributed.zero", integer, "0", "[0, 1]",
     "1: the optimizer's moments are divided among the processes (ZeRO stage 1); changes no bit of "
     "the weights. Needs a power of two of processes."},
    {"distributed.bucket_mb", number, "0", "[0, 65536]",
     "MiB of gradients that are reduced in one operation, while the rest is still being computed; "
     "0: all of them at once, after the backward pass (on two H200 that is faster)."},
    {"distributed.reduce_dtype", choice, "fp32", "fp32 | bf16 | fp16",
     "Type in which gradients travel; 16 bits only with distributed.reproducible: false."},
    {"distributed.check_interval", integer, "100", kCountOrNone,
     "Steps between comparisons of the weights of all processes; 0: never."},
    {"distributed.timeout", duration, "15s", "[1, 86400]",
     "How long a process may be silent, or stand still in an operation that others wait in, before "
     "the run ends and names it."},
    {"distributed.join_timeout", duration, "2m", "[1, 86400]",
     "How long the processes wait for each other at the start, before the run ends and names those "
     "that are missing."},
    {"ops.fuse", boolean, "true", "", "Fused operations instead of their composition."},
});

}  // namespace

std::span<const Option> config_options() {
  return kOptions;
}

std::string config_markdown() {
  return cat(
      "# Configuration\n\nWritten by `fovea list config --markdown`; a test keeps it current.\n\n",
      "Any key can follow a command as `key=value`. A dot stands for a map inside a map. The "
      "options of an "
      "attention method are in docs/attention.md. Layers may have methods of their own: "
      "`model.attention: [standard, {kind: longformer, window: 256}]` takes turns over them.\n\n",
      config::markdown(config_options(), ""));
}

}  // namespace fovea::train
