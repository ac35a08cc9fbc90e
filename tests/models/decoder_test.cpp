#include "models/decoder.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::DecoderInput;
using models::ModelConfig;

namespace {

constexpr double kSinglePrecision = 2e-6;  // absolute, on logits of order 1

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

std::vector<double> logits_of(Lm& lm, const DecoderInput& in) {
  return lm.model->logits(lm.ctx, in).value().values();
}

// The gradients and loss of one batch, with or without recompute.
std::pair<std::vector<double>, double> gradients(const ModelConfig& config, Precision precision,
                                                 bool recompute, int threads = 1) {
  Lm lm(config, precision, {}, kCpu, threads);
  const DecoderInput in{.ids = ids(3, 10, 11), .recompute = recompute};
  const double loss = lm.backward(in, ids(3, 10, 11, 5), 30);
  return {lm.grads.values(), loss};
}

ModelConfig with_dropout(ModelConfig config) {
  config.dropout = 0.2;
  config.attention_dropout = 0.1;
  return config;
}

}  // namespace

TEST_CASE("a tiny model of either style overfits one batch with plain gradient descent") {
  for (const ModelConfig& config : {gpt2_style(), llama_style(), alibi_style()}) {
    Lm lm(config);
    const DecoderInput in{.ids = ids(2, 8, 11)};
    const Tensor targets = ids(2, 8, 11, 5);
    const double first = lm.backward(in, targets, 16);
    double last = first;
    for (int step = 0; step < 300; ++step) {
      last = lm.backward(in, targets, 16);
      float* w = lm.store.masters().data<float>();
      const float* g = lm.grads.data<float>();
      for (std::int64_t i = 0; i < lm.store.elements(); ++i)
        w[i] -= 0.2f * g[i];
    }
    CHECK(first > 1.5);
    CHECK(last < 0.05);
  }
}

TEST_CASE("recompute on and off give the same bits, dropout included") {
  for (const ModelConfig& config : {gpt2_style(), llama_style(), with_dropout(gpt2_style())}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16_mixed}) {
      const auto kept = gradients(config, precision, false),
                 again = gradients(config, precision, true);
      CHECK(kept.second == again.second);
      CHECK(kept.first == again.first);
    }
  }
}

TEST_CASE("fused ops and their compositions give the same model") {
  for (const ModelConfig& config : {gpt2_style(), llama_style()}) {
    Lm fused(config, Precision::fp64), plain(config, Precision::fp64);
    plain.ctx.fuse = false;
    const DecoderInput in{.ids = ids(3, 10, 11)};
    const double loss = fused.backward(in, ids(3, 10, 11, 5), 30);
    CHECK(plain.backward(in, ids(3, 10, 11, 5), 30) == doctest::Approx(loss).epsilon(1e-13));
    CHECK(largest_difference(plain.grads.values(), fused.grads.values()) < 1e-13);
  }
}

TEST_CASE("the number of threads does not change a bit of the gradient") {
  CHECK(gradients(llama_style(), Precision::fp32, false, 1) ==
        gradients(llama_style(), Precision::fp32, false, 3));
}

TEST_CASE("recompute needs less memory at its peak") {
  ModelConfig config = gpt2_style();
  config.n_layer = 6;
  config.n_embd = 32;
  config = with_attention(config);
  std::size_t peak[2];
  for (const bool recompute : {false, true}) {
    Lm lm(config);
    lm.backward({.ids = ids(8, 16, 11), .recompute = recompute}, ids(8, 16, 11, 5), 1);
    peak[recompute ? 1 : 0] = lm.pool.stats().peak;
  }
  CHECK(peak[1] < peak[0] * 2 / 3);
}

TEST_CASE("dropout changes the training loss only, and differs between steps") {
  const ModelConfig config = with_dropout(gpt2_style());
  const DecoderInput in{.ids = ids(3, 10, 11)};
  const Tensor targets = ids(3, 10, 11, 5);
  Lm lm(config), plain(gpt2_style());
  CHECK(lm.loss(in, targets) == plain.loss(in, targets));
  const double first = lm.backward(in, targets, 1);
  CHECK(first == lm.backward(in, targets, 1));
  CHECK(first != plain.backward(in, targets, 1));
  lm.at.step = 1;
  CHECK(first != lm.backward(in, targets, 1));
}

TEST_CASE("the embeddings and both branches of every block are dropped") {
  ModelConfig config = gpt2_style();
  config.dropout = 0.5;
  Lm lm(config);
  Tape tape;
  lm.ctx.tape = &tape;
  lm.ctx.training = true;
  lm.model->loss(lm.ctx, {.ids = ids(3, 10, 11)}, ids(3, 10, 11, 5));
  const std::string dump = tape.dump();
  int dropouts = 0;
  for (std::size_t at = dump.find("dropout"); at != std::string::npos;
       at = dump.find("dropout", at + 1))
    ++dropouts;
  CHECK(dropouts == 1 + 2 * config.n_layer);
}

TEST_CASE("a sample's dropout depends on its global index, not on the cut into micro-batches") {
  const ModelConfig config = with_dropout(gpt2_style());
  Lm lm(config);
  const Tensor all = ids(4, 8, 11), targets = ids(4, 8, 11, 5);
  const double whole = lm.backward({.ids = all}, targets, 1);
  double parts = 0;
  for (std::int64_t row = 0; row < 4; row += 2) {
    lm.at.first_sample = row;
    parts += lm.backward({.ids = all.slice(0, row, row + 2)}, targets.slice(0, row, row + 2), 1);
  }
  CHECK(parts == doctest::Approx(whole).epsilon(1e-6));
}

TEST_CASE("loss is the cross-entropy of the logits over targets that count") {
  Lm lm(llama_style(), Precision::fp64);
  const DecoderInput in{.ids = ids(2, 5, 11)};
  const Tensor targets = Tensor::from({{1, -1, 4, 0, 10, 2, 2, -1, -1, 7}}, {2, 5}, DType::i32);
  const std::vector<double> logits = logits_of(lm, in), chosen = targets.values();
  double want = 0;
  for (std::size_t row = 0; row < 10; ++row) {
    if (chosen[row] < 0) continue;
    double sum = 0;
    for (std::size_t v = 0; v < 11; ++v)
      sum += std::exp(logits[row * 11 + v]);
    want += std::log(sum) - logits[row * 11 + static_cast<std::size_t>(chosen[row])];
  }
  CHECK(lm.loss(in, targets) == doctest::Approx(want).epsilon(1e-12));
}

TEST_CASE("a later token does not change earlier logits") {
  for (const ModelConfig& config : {gpt2_style(), llama_style(), alibi_style()}) {
    Lm lm(config);
    const Tensor a = ids(1, 8, 11);
    Tensor b = ids(1, 8, 11);
    b.data<std::int32_t>()[7] = (b.data<std::int32_t>()[7] + 1) % 11;
    const std::vector<double> x = logits_of(lm, {.ids = a}), y = logits_of(lm, {.ids = b});
    CHECK(std::equal(x.begin(), x.begin() + 77, y.begin()));
    CHECK_FALSE(x == y);
  }
}

TEST_CASE("two documents packed by segments and positions are as two documents alone") {
  for (const ModelConfig& config : {gpt2_style(), llama_style(), alibi_style()}) {
    Lm lm(config);
    const Tensor both = ids(1, 8, 11);
    const DecoderInput packed{
        .ids = both,
        .positions = Tensor::from({{0, 1, 2, 0, 1, 2, 3, 4}}, {1, 8}, DType::i32),
        .segments = Tensor::from({{1, 1, 1, 2, 2, 2, 2, 2}}, {1, 8}, DType::i32)};
    const std::vector<double> got = logits_of(lm, packed);
    std::vector<double> want = logits_of(lm, {.ids = both.slice(1, 0, 3)});
    const std::vector<double> second = logits_of(lm, {.ids = both.slice(1, 3, 8)});
    want.insert(want.end(), second.begin(), second.end());
    CHECK(largest_difference(got, want) < kSinglePrecision);
  }
}

TEST_CASE("tokens marked invalid do not change the valid ones") {
  Lm lm(gpt2_style());
  const Tensor a = ids(1, 6, 11);
  Tensor b = ids(1, 6, 11);
  b.data<std::int32_t>()[2] = (b.data<std::int32_t>()[2] + 1) % 11;
  const Tensor valid = Tensor::from({{1, 1, 0, 1, 1, 1}}, {1, 6}, DType::u8);
  const std::vector<double> x = logits_of(lm, {.ids = a, .key_valid = valid}),
                            y = logits_of(lm, {.ids = b, .key_valid = valid});
  CHECK(std::equal(x.begin() + 33, x.end(), y.begin() + 33));
}

TEST_CASE("a sequence longer than the learned positions is refused; other positions go on") {
  Lm learned(gpt2_style());
  CHECK_THROWS_WITH_AS(learned.model->logits(learned.ctx, {.ids = ids(1, 17, 11)}),
                       "decoder: 17 tokens, but learned positions end at 16 (model.block_size)",
                       ShapeError);
  ModelConfig config = gpt2_style();
  for (const models::Position position : {models::Position::none, models::Position::sinusoidal,
                                          models::Position::rope, models::Position::alibi}) {
    config.position = position;
    Lm lm(config);
    const Tensor all = ids(1, 20, 11);
    const std::vector<double> longer = logits_of(lm, {.ids = all});
    const std::vector<double> shorter = logits_of(lm, {.ids = all.slice(1, 0, 4)});
    CHECK(largest_difference(shorter, {longer.begin(), longer.begin() + 44}) < kSinglePrecision);
  }
}

TEST_CASE("every position scheme but none tells equal tokens apart") {
  ModelConfig config = gpt2_style();
  config.n_layer = 1;
  config = with_attention(config);
  for (const models::Position position :
       {models::Position::none, models::Position::sinusoidal, models::Position::learned,
        models::Position::rope, models::Position::alibi}) {
    config.position = position;
    Lm lm(config);
    // The last token attends over the same multiset of tokens in another order.
    const std::vector<double> x =
        logits_of(lm, {.ids = Tensor::from({{3, 5, 7, 1}}, {1, 4}, DType::i32)});
    const std::vector<double> y =
        logits_of(lm, {.ids = Tensor::from({{7, 5, 3, 1}}, {1, 4}, DType::i32)});
    const double apart = largest_difference({x.end() - 11, x.end()}, {y.end() - 11, y.end()});
    if (position == models::Position::none) {
      CHECK(apart < kSinglePrecision);
    } else {
      CHECK(apart > 1e-3);
    }
  }
}

TEST_CASE("frozen parameters receive nothing and leave the other gradients as they are") {
  const DecoderInput in{.ids = ids(2, 6, 11)};
  const Tensor targets = ids(2, 6, 11, 5);
  Lm free(gpt2_style()), frozen(gpt2_style(), Precision::fp32, {"w?e.*", "blocks.0.*"});
  CHECK(free.backward(in, targets, 12) == frozen.backward(in, targets, 12));
  CHECK(frozen.parameter("wte.weight").grad == nullptr);
  CHECK(frozen.parameter("blocks.0.mlp.fc.weight").grad == nullptr);
  for (const std::string path :
       {"blocks.1.attn.qkv.weight", "blocks.1.norm1.bias", "norm_f.weight"}) {
    CHECK(frozen.parameter(path).grad->value.values() == free.parameter(path).grad->value.values());
  }
}

TEST_CASE("every parameter of a step reports ready once, tied and recomputed ones included") {
  for (const bool recompute : {false, true}) {
    Lm lm(gpt2_style());
    std::vector<int> ready(lm.store.gradients().size());
    for (std::size_t i = 0; i < ready.size(); ++i) {
      lm.store.gradients()[i]->on_ready = [&ready, i] { ++ready[i]; };
    }
    lm.backward({.ids = ids(2, 6, 11), .recompute = recompute}, ids(2, 6, 11, 5), 1);
    CHECK(ready == std::vector<int>(ready.size(), 1));
  }
}

TEST_CASE("a training step runs on meta and counts at least the useful FLOPs") {
  ModelConfig config = gpt2_style();
  config.n_embd = 64;
  config = with_attention(config);
  Lm lm(config, Precision::fp32, {}, kMeta);
  Tape tape;
  lm.ctx.tape = &tape;
  const Tensor tokens = Tensor::empty({4, 16}, DType::i32, kMeta);
  const models::DecoderLoss loss = lm.model->loss(lm.ctx, {.ids = tokens}, tokens);
  tape.backward(lm.ctx, loss.sum, Tensor::empty({}, DType::f32, kMeta));
  CHECK(lm.stream.cost().flops >= 6 * static_cast<double>(lm.model->matmul_parameters()) * 64);
  CHECK(lm.stream.cost().flops <= 1.5 * models::train_flops(*lm.model, 4, 16).executed);
}

namespace {

// Bytes of position tables that live now.
std::size_t sinusoid_bytes() {
  Allocator& memory = persistent_allocator(kCpu);
  memory.reset_peak();
  for (const TagBytes& row : memory.stats().by_tag) {
    if (row.tag == "sinusoids") return row.live;
  }
  return 0;
}

}  // namespace

TEST_CASE("a longer sequence makes another position table, and the old one stays where it is") {
  ModelConfig config = gpt2_style();
  config.position = models::Position::sinusoidal;
  Lm lm(config);
  const auto run = [&](std::int64_t n) { return logits_of(lm, {.ids = ids(1, n, 11)}); };
  const std::size_t row = 12 * sizeof(float), before = sinusoid_bytes();
  const std::vector<double> first = run(8);
  const std::size_t one = sinusoid_bytes() - before;
  CHECK(one >= 16 * row);
  CHECK(one <= 16 * row + 512);  // blocks are of 512 bytes
  run(17);
  const std::size_t two = sinusoid_bytes() - before;
  CHECK(two >= one + 17 * row);
  CHECK(run(8) == first);
  // A text that grows token by token does not make one each time.
  for (std::int64_t n = 18; n <= 32; ++n)
    run(n);
  CHECK(sinusoid_bytes() - before == two);
}
