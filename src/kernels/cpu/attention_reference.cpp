#include "kernels/attention_reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

std::int64_t at4(const View& x, std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t c) {
  return b * x.stride[0] + h * x.stride[1] + n * x.stride[2] + c * x.stride[3];
}

template <class T>
Compute<T> read(const View& x, std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t c) {
  return load_one(x.ptr<T>() + at4(x, b, h, n, c));
}

bool valid(const View& mask, std::int64_t b, std::int64_t n) {
  return !mask || mask.ptr<std::uint8_t>()[b * mask.stride[0] + n * mask.stride[1]] != 0;
}

// The call's views and sizes, and what one pair of tokens means.
struct Reference {
  const View &q, &k, &v;
  const AttentionScores& how;
  std::int64_t heads, group, queries, keys, width, value_width;

  Reference(const View& query, const View& key, const View& value, const AttentionScores& scores)
      : q(query),
        k(key),
        v(value),
        how(scores),
        heads(q.dim[1]),
        group(heads / k.dim[1]),
        queries(q.dim[2]),
        keys(k.dim[2]),
        width(q.dim[3]),
        value_width(v.dim[3]) {}

  bool visible(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (!valid(how.query_valid, b, i) || !valid(how.key_valid, b, j)) return false;
    if (how.causal && j > i + keys - queries) return false;
    if (!how.query_segments) return true;
    const View &s = how.query_segments, &r = how.key_segments;
    return s.ptr<std::int32_t>()[b * s.stride[0] + i * s.stride[1]] ==
           r.ptr<std::int32_t>()[b * r.stride[0] + j * r.stride[1]];
  }

  template <class T>
  Compute<T> scaled(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    Compute<T> sum = 0;
    for (std::int64_t c = 0; c < width; ++c)
      sum += read<T>(q, b, h, i, c) * read<T>(k, b, h / group, j, c);
    return sum * static_cast<Compute<T>>(how.scale);
  }
  // d score / d scaled.
  template <class T>
  Compute<T> cap_slope(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (how.softcap <= 0) return 1;
    const Compute<T> t = std::tanh(scaled<T>(b, h, i, j) / static_cast<Compute<T>>(how.softcap));
    return 1 - t * t;
  }

  template <class T>
  Compute<T> score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    using C = Compute<T>;
    C sum = scaled<T>(b, h, i, j);
    if (how.softcap > 0) {
      const auto cap = static_cast<C>(how.softcap);
      sum = cap * std::tanh(sum / cap);
    }
    if (how.bias)
      sum += read<T>(how.bias, how.bias.dim[0] == 1 ? 0 : b, how.bias.dim[1] == 1 ? 0 : h, i, j);
    if (how.alibi_slopes)
      sum -= how.alibi_slopes.ptr<C>()[h] * static_cast<C>(std::llabs(i + keys - queries - j));
    return sum;
  }

  // What dropout multiplies the probability of a pair by. Flattened: philox4x32 must not stay a
  // function of its own, which the linker would share between instruction sets.
  template <class C>
  [[gnu::flatten]] C kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (how.dropout <= 0) return 1;
    const std::int64_t sample = (how.dropout_key.at ? how.dropout_key.at->first_sample : 0) + b;
    const std::int64_t element = ((sample * heads + h) * queries + i) * keys + j;
    const std::uint32_t bits = random_bits(how.dropout_key, static_cast<std::uint64_t>(element));
    return uniform_float(bits) >= static_cast<float>(how.dropout)
               ? static_cast<C>(1 / (1 - how.dropout))
               : C(0);
  }
};

template <class T>
void forward_row(const Reference& x, const View& o, Compute<T>* lse, Compute<T>* p, std::int64_t b,
                 std::int64_t h, std::int64_t i) {
  using C = Compute<T>;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  C top = kNone;
  for (std::int64_t j = 0; j < x.keys; ++j) {
    p[j] = x.visible(b, i, j) ? x.score<T>(b, h, i, j) : kNone;
    top = p[j] > top ? p[j] : top;
  }
  C mass = 0;
  for (std::int64_t j = 0; j < x.keys; ++j) {
    p[j] = p[j] == kNone ? C(0) : std::exp(p[j] - top);
    mass += p[j];
  }
  *lse = mass == 0 ? kNone : top + std::log(mass);
  for (std::int64_t j = 0; j < x.keys && mass != 0; ++j)
    p[j] /= mass;
  for (std::int64_t c = 0; c < x.value_width; ++c) {
    C sum = 0;
    for (std::int64_t j = 0; j < x.keys; ++j) {
      if (p[j] != 0) sum += p[j] * x.kept<C>(b, h, i, j) * read<T>(x.v, b, h / x.group, j, c);
    }
    store_one(o.ptr<T>() + at4(o, b, h, i, c), sum);
  }
}

// Zeroed sums in C that end up in a view of T.
template <class C>
class Sums {
 public:
  explicit Sums(std::int64_t n) : memory_(n) {
    for (std::int64_t i = 0; i < n; ++i)
      memory_[i] = 0;
  }
  C* data() const { return memory_.data(); }

 private:
  Scratch<C> memory_;
};

template <class T>
void write(const View& to, std::int64_t b, std::int64_t h, const Compute<T>* sums) {
  if (!to) return;
  for (std::int64_t n = 0; n < to.dim[2]; ++n) {
    for (std::int64_t c = 0; c < to.dim[3]; ++c)
      store_one(to.ptr<T>() + at4(to, b, h, n, c), *sums++);
  }
}

// The output gradients of one call, and where its sums go.
template <class T>
struct Backward {
  const Reference& x;
  const View &dbias, &dout, &dlse;
  Compute<T>*dq, *dk, *dv;  // of the current head

  // d loss / d p_ij.
  Compute<T> dp(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    Compute<T> sum = 0;
    for (std::int64_t c = 0; dout && c < x.value_width; ++c)
      sum += read<T>(dout, b, h, i, c) * read<T>(x.v, b, h / x.group, j, c);
    return sum * x.kept<Compute<T>>(b, h, i, j);
  }

  // delta_i = sum_j P_ij dP_ij - dlse_i.
  Compute<T> delta(const Compute<T>* p, std::int64_t b, std::int64_t h, std::int64_t i) const {
    Compute<T> sum = 0;
    for (std::int64_t j = 0; j < x.keys; ++j) {
      if (p[j] != 0) sum += p[j] * dp(b, h, i, j);
    }
    if (dlse) sum -= dlse.ptr<Compute<T>>()[(b * x.heads + h) * x.queries + i];
    return sum;
  }

  // One row's share: dv += (P D)^T do, dS = P (dP - delta), dq = scale dS c' K, dk = scale
  // (dS c')^T Q with c' the cap's slope.
  void row(const Compute<T>* p, std::int64_t b, std::int64_t h, std::int64_t i) const {
    using C = Compute<T>;
    const C subtracted = delta(p, b, h, i);
    for (std::int64_t j = 0; j < x.keys; ++j) {
      if (p[j] == 0) continue;  // dlse of a row that saw nothing ends here
      const C ds = p[j] * (dp(b, h, i, j) - subtracted);
      const C scaled = ds * static_cast<C>(x.how.scale) * x.template cap_slope<T>(b, h, i, j);
      const C met = p[j] * x.kept<C>(b, h, i, j);
      for (std::int64_t c = 0; dout && c < x.value_width; ++c)
        dv[j * x.value_width + c] += met * read<T>(dout, b, h, i, c);
      for (std::int64_t c = 0; c < x.width; ++c) {
        dq[i * x.width + c] += scaled * read<T>(x.k, b, h / x.group, j, c);
        dk[j * x.width + c] += scaled * read<T>(x.q, b, h, i, c);
      }
      if (dbias) {
        const std::int64_t sample = dbias.dim[0] == 1 ? 0 : b, head = dbias.dim[1] == 1 ? 0 : h;
        dbias.ptr<C>()[at4(dbias, sample, head, i, j)] += ds;
      }
    }
  }
};

template <class T>
void backward_head(const Reference& x, const AttentionGradients& d, const View& dout,
                   const View& dlse, const Compute<T>* p, std::int64_t b, std::int64_t kv) {
  using C = Compute<T>;
  Sums<C> dk(x.keys * x.width), dv(x.keys * x.value_width);
  for (std::int64_t h = kv * x.group; h < (kv + 1) * x.group; ++h) {
    Sums<C> dq(x.queries * x.width);
    const Backward<T> backward{x, d.dbias, dout, dlse, dq.data(), dk.data(), dv.data()};
    for (std::int64_t i = 0; i < x.queries; ++i) {
      const C* row = p + ((b * x.heads + h) * x.queries + i) * x.keys;
      backward.row(row, b, h, i);
    }
    write<T>(d.dq, b, h, dq.data());
  }
  write<T>(d.dk, b, kv, dk.data());
  write<T>(d.dv, b, kv, dv.data());
}

}  // namespace

void attention_reference_forward(StreamRef stream, const View& o, const View& lse, const View& p,
                                 const View& q, const View& k, const View& v,
                                 const AttentionScores& scores) {
  for_float(q.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    const Reference x(q, k, v, scores);
    parallel_for(stream, q.dim[0] * q.dim[1], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t head = begin; head < end; ++head) {
        for (std::int64_t i = 0; i < x.queries; ++i) {
          const std::int64_t row = head * x.queries + i;
          forward_row<T>(x, o, lse.ptr<C>() + row, p.ptr<C>() + row * x.keys, head / x.heads,
                         head % x.heads, i);
        }
      }
    });
  });
}

void attention_reference_backward(StreamRef stream, const AttentionGradients& gradients,
                                  const View& dout, const View& dlse, const View& p, const View& q,
                                  const View& k, const View& v, const AttentionScores& scores) {
  for_float(q.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    const Reference x(q, k, v, scores);
    const View& dbias = gradients.dbias;
    if (dbias)
      std::memset(
          dbias.data, 0,
          static_cast<std::size_t>(dbias.dim[0] * dbias.dim[1] * dbias.dim[2] * dbias.dim[3]) *
              sizeof(C));
    const std::int64_t kv_heads = k.dim[1], pairs = q.dim[0] * kv_heads;
    // A bias has one gradient for many heads: they run one after another.
    parallel_for(stream, pairs, dbias ? pairs : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        backward_head<T>(x, gradients, dout, dlse, p.ptr<C>(), at / kv_heads, at % kv_heads);
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
