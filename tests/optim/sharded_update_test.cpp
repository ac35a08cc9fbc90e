// ZeRO stage 1 without a network: ranks take turns in one process, and what they would exchange is
// copied by hand.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "optim/adamw.h"

using namespace fovea;
using namespace fovea::optim;

namespace {

// Five chunks of the norm and a bit: not every one of eight ranks gets one.
class Long final : public nn::Module {
 public:
  Long() {
    own("weight", {1000, 331}, nn::Init::normal(1.0));
    own("bias", {1000}, nn::Init::constant(0.5));
    own("kept", {77}, nn::Init::normal(1.0)).keep_f32 = true;
    set_path("");
  }
};

MomentCut cut_for(int rank, int ranks) {
  return [=](std::int64_t elements) {
    const std::int64_t chunks = (elements + kNormChunk - 1) / kNormChunk;
    const auto at = [&](int i) { return std::min(elements, chunks * i / ranks * kNormChunk); };
    return MomentRange{at(rank), at(rank + 1)};
  };
}

template <class F>
void each_bytes(const Tensor& t, F&& use) {
  use(static_cast<char*>(t.view().data), static_cast<std::size_t>(t.bytes()));
}

void append(std::vector<char>& to, const Tensor& t) {
  each_bytes(t, [&](char* at, std::size_t n) { to.insert(to.end(), at, at + n); });
}

void write(const Tensor& t, std::int64_t i, double value) {
  if (t.dtype() == DType::f64)
    t.data<double>()[i] = value;
  else
    t.data<float>()[i] = static_cast<float>(value);
}

struct Rank {
  Rank(Precision precision, int rank, int ranks, std::span<const LrScale> scales = {})
      : ctx{kCpu, stream, activations} {
    ctx.precision = precision;
    ctx.seed = 3;
    store = std::make_unique<ParameterStore>(
        ctx, model, StoreMode::train, std::span<const std::string>{},
        std::span<const std::string>{}, cut_for(rank, ranks), scales);
    gradient = Tensor::empty({store->elements()}, state_dtype(precision), kCpu);
    scaler = std::make_unique<GradScaler>(
        ctx, ScalerConfig{.initial_scale = 4, .growth_interval = 2, .max_norm = 1}, config,
        store->elements());
    stage();
  }

  void stage() {
    Staging staging(stream);
    scaler->stage(staging, 0.01, 128);
  }
  // Of the reduced gradient a rank has its own elements; the others must not matter.
  void receive(const std::vector<double>& reduced) {
    for (std::int64_t i = 0; i < store->elements(); ++i) {
      const bool own = i >= store->moments_begin() && i < store->moments_end();
      write(gradient, i,
            own ? reduced[static_cast<std::size_t>(i)] : std::numeric_limits<double>::quiet_NaN());
    }
  }

  Stream stream{kCpu, 1};
  CachingAllocator activations{memory_source(kCpu)};
  Ctx ctx;
  Long model;
  OptimConfig config;
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<GradScaler> scaler;
  AdamW adamw{config};
  Tensor gradient;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

void all_reduce_partials(const Ranks& ranks) {
  const Tensor& first = ranks[0]->scaler->partials();
  for (std::int64_t i = 0; i < first.numel(); ++i) {
    double sum = 0;
    for (const auto& rank : ranks)
      sum += rank->scaler->partials().data<double>()[i];
    for (const auto& rank : ranks)
      rank->scaler->partials().data<double>()[i] = sum;
  }
}

void all_gather_masters(const Ranks& ranks) {
  for (const auto& from : ranks) {
    const std::int64_t begin = from->store->moments_begin(), end = from->store->moments_end();
    for (const auto& to : ranks) {
      if (to == from) continue;
      each_bytes(from->store->masters().slice(0, begin, end), [&](char* at, std::size_t n) {
        std::memcpy(to->store->masters().slice(0, begin, end).view().data, at, n);
      });
    }
  }
}

void step(const Ranks& ranks, const std::vector<double>& reduced) {
  for (const auto& rank : ranks) {
    rank->receive(reduced);
    rank->scaler->measure(rank->ctx, rank->gradient, rank->store->moments_begin(),
                          rank->store->moments_end());
  }
  all_reduce_partials(ranks);
  for (const auto& rank : ranks) {
    rank->scaler->decide(rank->ctx);
    rank->adamw.step(rank->ctx, *rank->store, rank->gradient, *rank->scaler);
  }
  all_gather_masters(ranks);
  for (const auto& rank : ranks)
    rank->store->refresh(rank->ctx);
}

// The reduced gradient of step t: small, then one that is clipped, two that are not finite (in
// different shards), and more.
std::vector<double> reduced_gradient(const ParameterStore& store, int t) {
  std::vector<double> out(static_cast<std::size_t>(store.elements()), 0.0);
  const double size = t == 0 ? 1e-4 : 0.3;
  for (const Segment& s : store.segments()) {
    for (std::int64_t i = 0; i < s.size; ++i)
      out[static_cast<std::size_t>(s.begin + i)] =
          size * std::sin(0.37 * static_cast<double>(i + t));
  }
  if (t == 2) out[200000] = std::numeric_limits<double>::infinity();
  if (t == 3) out[5] = std::numeric_limits<double>::quiet_NaN();
  return out;
}

// Everything that must not depend on the number of ranks: one rank's weights and scaler, and the
// moments of all.
std::vector<char> train(Precision precision, int count, std::span<const LrScale> scales = {}) {
  Ranks ranks;
  for (int rank = 0; rank < count; ++rank)
    ranks.push_back(std::make_unique<Rank>(precision, rank, count, scales));
  std::vector<char> out;
  for (int t = 0; t < 6; ++t) {
    step(ranks, reduced_gradient(*ranks[0]->store, t));
    StepScalars state = ranks[0]->scaler->state(ranks[0]->stream);
    CHECK((state.finite == 0) == (t == 2 || t == 3));
    if (state.finite != 0) CHECK((state.norm > 1) == (t > 0));  // so that it was clipped
    if (std::isnan(state.norm)) state.norm = 0;  // a NaN's sign and payload mean nothing
    const char* const bytes = reinterpret_cast<const char*>(&state);
    out.insert(out.end(), bytes, bytes + sizeof state);
    append(out, ranks[0]->store->masters());
    append(out, ranks[0]->store->computes());
    for (const auto& rank : ranks)
      append(out, rank->store->first_moment());
    for (const auto& rank : ranks)
      append(out, rank->store->second_moment());
  }
  for (const auto& rank : ranks) {
    std::vector<char> one, first;
    append(one, rank->store->computes());
    append(first, ranks[0]->store->computes());
    CHECK(one == first);
  }
  return out;
}

// The same without sharding, by the calls of a run of one process.
std::vector<char> train_whole(Precision precision, std::span<const LrScale> scales = {}) {
  Rank alone(precision, 0, 1, scales);
  std::vector<char> out;
  for (int t = 0; t < 6; ++t) {
    alone.receive(reduced_gradient(*alone.store, t));
    alone.scaler->decide(alone.ctx, alone.gradient);
    alone.adamw.step(alone.ctx, *alone.store, alone.gradient, *alone.scaler);
    StepScalars state = alone.scaler->state(alone.stream);
    if (std::isnan(state.norm)) state.norm = 0;
    const char* const bytes = reinterpret_cast<const char*>(&state);
    out.insert(out.end(), bytes, bytes + sizeof state);
    for (const Tensor& state_tensor : {alone.store->masters(), alone.store->computes(),
                                       alone.store->first_moment(), alone.store->second_moment()})
      append(out, state_tensor);
  }
  return out;
}

}  // namespace

TEST_CASE("moments divided among ranks leave weights, moments and scaler as they are, to the bit") {
  for (const Precision precision :
       {Precision::fp32, Precision::fp64, Precision::bf16_mixed, Precision::fp16_mixed}) {
    const std::vector<char> whole = train_whole(precision);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      CAPTURE(ranks);
      CHECK(train(precision, ranks) == whole);
    }
  }
}

TEST_CASE("divided moments meet the factors of their own blocks") {
  const std::vector<LrScale> scales{{"bias", 30}, {"kept", 0.5}};
  for (const Precision precision : {Precision::fp32, Precision::bf16_mixed}) {
    const std::vector<char> whole = train_whole(precision, scales);
    CHECK(whole != train_whole(precision));
    for (const int ranks : {2, 3, 8}) {
      CAPTURE(ranks);
      CHECK(train(precision, ranks, scales) == whole);
    }
  }
}

TEST_CASE("a rank holds the moments of its own elements only, or none") {
  Rank third(Precision::fp32, 2, 4), first(Precision::fp32, 0, 8);
  CHECK(third.store->moments_begin() == 3 * kNormChunk);
  CHECK(third.store->moments_end() == 4 * kNormChunk);
  CHECK(third.store->first_moment().numel() == kNormChunk);
  CHECK(third.store->masters().numel() == third.store->elements());
  CHECK(first.store->moments_begin() == first.store->moments_end());
  CHECK(first.store->second_moment().numel() == 0);
}

TEST_CASE("partials of other ranks' elements are zero") {
  Rank rank(Precision::fp32, 1, 2);
  rank.receive(std::vector<double>(static_cast<std::size_t>(rank.store->elements()), 1.0));
  rank.scaler->measure(rank.ctx, rank.gradient, rank.store->moments_begin(),
                       rank.store->moments_end());
  const std::vector<double> partials = rank.scaler->partials().values();
  REQUIRE(partials.size() == 6);
  CHECK(partials[2] == 0);
  CHECK(partials[3] == kNormChunk);
}
