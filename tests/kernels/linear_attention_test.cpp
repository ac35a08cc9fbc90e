#include "kernels/linear_attention.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/attention_problem.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// One problem and what the kernels make of it. Features are positive.
struct Sums {
  Tensor a, b, v, dout, o, den, da, db, dv, state, decay, weight, key_valid, segments;
  LinearSums how;
  int threads = 1;

  explicit Sums(std::int64_t n = 70, DType dtype = DType::f32, std::int64_t hb = 2)
      : a(positive({2, 4, n, 12}, "a", dtype)),
        b(positive({2, hb, n, 12}, "b", dtype)),
        v(random_tensor({2, 2, n, 5}, "v", dtype)),
        dout(random_tensor({2, 4, n, 5}, "do", dtype)) {}

  static Tensor positive(Shape shape, const std::string& name, DType dtype) {
    std::vector<double> values = random_tensor(shape, name, DType::f64).values();
    for (double& x : values)
      x = std::exp(x);
    return Tensor::from(values, shape, dtype);
  }
  void decays(std::int64_t states) {
    std::vector<double> values =
        random_tensor({2, states, a.size(2)}, "decay", DType::f64).values();
    for (double& x : values)
      x = -std::fabs(x);
    decay = Tensor::from(values, {2, states, a.size(2)}, acc_of(a.dtype()));
    weight = random_tensor({2, states, a.size(2)}, "weight", acc_of(a.dtype()));
  }
  LinearOutputs outputs() const { return {o.view(), View{}, den.view()}; }
  void forward() {
    how.key_valid = how.query_valid = key_valid.view();
    how.key_segments = how.query_segments = segments.view();
    how.decay = decay.view();
    how.weight = weight.view();
    o = Tensor::empty(dout.shape(), a.dtype(), kCpu);
    den = Tensor::empty({2, 4, a.size(2)}, acc_of(a.dtype()), kCpu);
    Stream stream(kCpu, threads);
    cpu::linear_attention_forward(stream.ref(), outputs(), state.view(), a.view(), b.view(),
                                  v.view(), how);
  }
  void run() {
    forward();
    da = Tensor::empty(a.shape(), acc_of(a.dtype()), kCpu);
    db = Tensor::empty(b.shape(), acc_of(a.dtype()), kCpu);
    dv = Tensor::empty(v.shape(), a.dtype(), kCpu);
    Stream stream(kCpu, threads);
    const LinearGradients gradients{da.view(), db.view(), dv.view(), {}, {}};
    cpu::linear_attention_backward(stream.ref(), gradients, dout.view(), View{}, a.view(), b.view(),
                                   v.view(), outputs(), how);
  }
  std::vector<Tensor> results() const { return {o, da, db, dv}; }

  double at(const Tensor& x, std::int64_t i0, std::int64_t i1, std::int64_t i2,
            std::int64_t i3) const {
    return x.slice(0, i0, i0 + 1)
        .slice(1, i1, i1 + 1)
        .slice(2, i2, i2 + 1)
        .slice(3, i3, i3 + 1)
        .values()[0];
  }
  // o by all pairs, in f64.
  Tensor by_pairs() const {
    const std::int64_t n = a.size(2), states = decay.defined() ? decay.size(1) : b.size(1);
    const std::vector<double> as = a.values(), bs = b.values(), vs = v.values();
    const auto number = [](const Tensor& x, std::int64_t i) {
      return x.defined() ? x.values()[static_cast<std::size_t>(i)] : 0.0;
    };
    std::vector<double> out;
    for (std::int64_t s = 0; s < 2; ++s) {
      for (std::int64_t h = 0; h < 4; ++h) {
        const std::int64_t state_head = h / (4 / states), hb = h / (4 / b.size(1)), hv = h / 2;
        for (std::int64_t i = 0; i < n; ++i) {
          double mass = 0, sums[5] = {};
          double decayed = 0;
          for (std::int64_t j = how.causal ? i : n - 1; j >= 0; --j) {
            const bool real = !key_valid.defined() || number(key_valid, s * n + j) != 0;
            const std::int64_t at_j = (s * states + state_head) * n + j;
            if (real && number(segments, s * n + i) == number(segments, s * n + j)) {
              double w = 0;
              for (std::int64_t c = 0; c < 12; ++c)
                w += as[static_cast<std::size_t>(((s * 4 + h) * n + i) * 12 + c)] *
                     bs[static_cast<std::size_t>(((s * b.size(1) + hb) * n + j) * 12 + c)];
              w *= std::exp2(decayed + number(weight, at_j));
              mass += w;
              for (std::int64_t c = 0; c < 5; ++c)
                sums[c] += w * vs[static_cast<std::size_t>(((s * 2 + hv) * n + j) * 5 + c)];
            }
            if (real) decayed += number(decay, at_j);
          }
          const bool row = !key_valid.defined() || number(key_valid, s * n + i) != 0;
          for (const double sum : sums)
            out.push_back(row ? sum / std::max(mass, how.floor) : 0);
        }
      }
    }
    return Tensor::from(out, dout.shape(), DType::f64);
  }
};

Tensor lengths(std::int64_t n, std::int64_t second) {
  std::vector<double> valid(static_cast<std::size_t>(2 * n), 1.0);
  for (std::int64_t i = n + second; i < 2 * n; ++i)
    valid[static_cast<std::size_t>(i)] = 0;
  return Tensor::from(valid, {2, n}, DType::u8);
}

}  // namespace

TEST_CASE("sums by chunks equal all pairs, with decay, padding and segments") {
  for (const std::int64_t n : {1, 2, 7, 33, 70}) {
    for (const std::int64_t chunk : {1, 16, 64, 128}) {
      CAPTURE(n);
      CAPTURE(chunk);
      for (const bool causal : {false, true}) {
        Sums x(n);
        x.how.causal = causal;
        x.how.chunk = chunk;
        x.forward();
        CHECK(distance(x.o, x.by_pairs()) < 1e-5);
        x.key_valid = lengths(n, n / 2);
        std::vector<double> ids;
        for (std::int64_t i = 0; i < 2 * n; ++i)
          ids.push_back(static_cast<double>(i % n / 20));
        x.segments = Tensor::from(ids, {2, n}, DType::i32);
        x.forward();
        CHECK(distance(x.o, x.by_pairs()) < 1e-5);
        if (!causal) continue;
        for (const std::int64_t states : {2, 4}) {
          x.decays(states);
          x.forward();
          CHECK(distance(x.o, x.by_pairs()) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("the length of a chunk changes rounding only, forward and backward") {
  Sums whole(70);
  whole.how.causal = true;
  whole.how.chunk = 70;
  whole.decays(2);
  whole.run();
  for (const std::int64_t chunk : {1, 8, 33, 64}) {
    CAPTURE(chunk);
    Sums cut(70);
    cut.how.causal = true;
    cut.how.chunk = chunk;
    cut.decays(2);
    cut.run();
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(distance(cut.results()[i], whole.results()[i]) < 1e-5);
  }
}

TEST_CASE("the last causal row is the last bidirectional row") {
  Sums causal(66), full(66);
  causal.how.causal = true;
  causal.forward();
  full.forward();
  CHECK(distance(causal.o.slice(2, 65, 66), full.o.slice(2, 65, 66)) < 1e-6);
}

TEST_CASE("with positive features outputs lie between the least and the largest value seen") {
  Sums x(70);
  x.how.causal = true;
  x.forward();
  for (std::int64_t h = 0; h < 4; ++h) {
    for (std::int64_t c = 0; c < 5; ++c) {
      double low = 1e9, high = -1e9;
      for (std::int64_t i = 0; i < 70; ++i) {
        low = std::min(low, x.at(x.v, 1, h / 2, i, c));
        high = std::max(high, x.at(x.v, 1, h / 2, i, c));
        const double o = x.at(x.o, 1, h, i, c);
        CHECK(o >= low - 1e-5);
        CHECK(o <= high + 1e-5);
      }
    }
  }
}

TEST_CASE("bits do not depend on threads, and early ones not on later tokens") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Sums one(150, dtype), three(150, dtype);
    for (Sums* x : {&one, &three}) {
      x->how.causal = true;
      x->how.chunk = 64;
      x->decays(4);
    }
    three.threads = 3;
    one.run();
    three.run();
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(same_bits(one.results()[i], three.results()[i]));
    for (const std::int64_t from : {1, 63, 64, 100}) {
      Sums other(150, dtype);
      other.how = one.how;
      other.decays(4);
      for (const Tensor* x : {&other.a, &other.b, &other.v}) {
        const Tensor late = x->slice(2, from, 150);
        const std::vector<double> junk(static_cast<std::size_t>(late.numel()), 1e30);
        copy_host(late.view(), Tensor::from(junk, late.shape(), DType::f64).view());
      }
      other.forward();
      CHECK(same_bits(other.o.slice(2, 0, from), one.o.slice(2, 0, from)));
    }
  }
}

TEST_CASE("what invalid tokens hold has no effect, NaN included") {
  Sums clean(50), dirty(50);
  for (Sums* x : {&clean, &dirty}) {
    x->how.causal = true;
    x->how.chunk = 16;
    x->key_valid = lengths(50, 20);
  }
  for (Tensor* x : {&dirty.a, &dirty.b, &dirty.v, &dirty.dout}) {
    const Tensor tail = x->slice(0, 1, 2).slice(2, 20, 50);
    const std::vector<double> junk(static_cast<std::size_t>(tail.numel()),
                                   std::numeric_limits<double>::quiet_NaN());
    copy_host(tail.view(), Tensor::from(junk, tail.shape(), DType::f64).view());
  }
  clean.run();
  dirty.run();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(same_bits(clean.results()[i], dirty.results()[i]));
  for (const double value : dirty.o.slice(0, 1, 2).slice(2, 20, 50).values())
    CHECK(value == 0);
}

TEST_CASE("a state continues a sequence where it was left") {
  Sums whole(70);
  whole.how.causal = true;
  whole.how.chunk = 16;
  whole.decays(4);
  whole.forward();
  Tensor state = Tensor::from(std::vector<double>(2 * 4 * 12 * 6, 0.0), {2, 4, 12, 6}, DType::f32);
  for (const auto& [from, to] : {std::pair(0, 31), std::pair(31, 32), std::pair(32, 70)}) {
    Sums part(70);
    part.how = whole.how;
    const auto cut = [&](const Tensor& x) { return x.slice(2, from, to); };
    const auto packed = [&](const Tensor& x) {
      Tensor out = Tensor::empty(x.shape(), x.dtype(), kCpu);
      copy_host(out.view(), x.view());
      return out;
    };
    part.a = cut(whole.a);
    part.b = cut(whole.b);
    part.v = cut(whole.v);
    part.dout = packed(cut(whole.dout));
    part.decay = packed(cut(whole.decay));
    part.weight = packed(cut(whole.weight));
    part.state = state;
    part.forward();
    CHECK(distance(part.o, cut(whole.o)) < 1e-5);
  }
}

TEST_CASE("scales of keys follow the largest exponent, in whole powers of two") {
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor exponent =
      Tensor::from(std::vector<double>{3, 1, 7, 5, -2, 4}, {1, 1, 6}, DType::f32);
  const Tensor decay = Tensor::empty({1, 1, 6}, DType::f32, kCpu),
               weight = Tensor::empty({1, 1, 6}, DType::f32, kCpu);
  const Tensor top = Tensor::from(std::vector<double>{none}, {1, 1}, DType::f32);
  const Tensor valid = Tensor::from(std::vector<double>{1, 1, 1, 0, 1, 1}, {1, 6}, DType::u8);
  const Tensor tops = Tensor::empty({1, 1, 6}, DType::f32, kCpu);
  Stream stream(kCpu);
  LinearSums how;
  how.causal = true;
  how.key_valid = valid.view();
  cpu::key_scale(stream.ref(), decay.view(), weight.view(), top.view(), tops.view(),
                 exponent.view(), View{}, how);
  CHECK(decay.values() == std::vector<double>{0, 0, -4, 0, 0, 0});
  CHECK(weight.values() == std::vector<double>{0, -2, 0, 0, -9, -3});
  CHECK(top.item() == 7);
  CHECK(tops.values() == std::vector<double>{3, 3, 7, 7, 7, 7});
  const Tensor segments = Tensor::from(std::vector<double>{0, 0, 1, 1, 1, 2}, {1, 6}, DType::i32);
  how.key_segments = segments.view();
  cpu::key_scale(stream.ref(), decay.view(), weight.view(), View{}, View{}, exponent.view(), View{},
                 how);
  CHECK(decay.values() == std::vector<double>{0, 0, 0, 0, 0, 0});
  CHECK(weight.values() == std::vector<double>{0, -2, 0, 0, -9, 0});
  how.causal = false;
  cpu::key_scale(stream.ref(), View{}, weight.view(), View{}, View{}, exponent.view(), View{}, how);
  CHECK(weight.values() == std::vector<double>{0, -2, 0, 0, -9, 0});
  how.key_segments = View{};
  cpu::key_scale(stream.ref(), View{}, weight.view(), View{}, View{}, exponent.view(), View{}, how);
  CHECK(weight.values() == std::vector<double>{-4, -6, 0, 0, -9, -3});
}
