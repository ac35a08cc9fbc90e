#include "kernels/linear_attention.h"

#include <limits>

#include "kernels/cpu/linear_tile.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

struct ForwardCall {
  const LinearOutputs& out;
  const View &state, &a, &b, &v;
  const LinearSums& how;
  const LinearSizes& z;
};

// Buffers of one worker.
template <class C>
struct ForwardChunk {
  explicit ForwardChunk(const LinearSizes& z)
      : ldm(padded<C>(z.features)),
        ldp(padded<C>(z.sums)),
        lanes(padded<C>(z.chunk)),
        memory(z.features * ldp + lanes * (2 * ldm + 2 * ldp + z.features + z.sums + lanes) +
               ChunkScale<C>::room(lanes)),
        state(memory.data()),
        a(state + z.features * ldp),
        b(a + lanes * ldm),
        c(b + lanes * ldm),
        kept(c + lanes * ldp),
        a_t(kept + lanes * ldp),
        y_t(a_t + z.features * lanes),
        w_t(y_t + z.sums * lanes),
        scale(w_t + lanes * lanes, lanes) {}
  std::int64_t ldm, ldp, lanes;
  Scratch<C> memory;
  C *state, *a, *b, *c, *kept, *a_t, *y_t,
      *w_t;  // [m][p] [i][m] [j][m] [j][p] [j][p] [m][i] [p][i] [j][i]
  ChunkScale<C> scale;

  void clear_state(const LinearSizes& z) {
    std::memset(static_cast<void*>(state), 0,
                static_cast<std::size_t>(z.features * ldp) * sizeof(C));
  }
};

// From a caller's state [m][p] and back.
template <class C>
void read_state(const ForwardCall& x, ForwardChunk<C>& t, std::int64_t b, std::int64_t s) {
  t.clear_state(x.z);
  if (!x.state) return;
  const C* from = x.state.ptr<C>() + (b * x.z.states + s) * x.z.features * x.z.sums;
  for (std::int64_t r = 0; r < x.z.features; ++r) {
    for (std::int64_t c = 0; c < x.z.sums; ++c)
      t.state[r * t.ldp + c] = from[r * x.z.sums + c];
  }
}
template <class C>
void write_state(const ForwardCall& x, const ForwardChunk<C>& t, std::int64_t b, std::int64_t s) {
  if (!x.state) return;
  C* to = x.state.ptr<C>() + (b * x.z.states + s) * x.z.features * x.z.sums;
  for (std::int64_t r = 0; r < x.z.features; ++r) {
    for (std::int64_t c = 0; c < x.z.sums; ++c)
      to[r * x.z.sums + c] = t.state[r * t.ldp + c];
  }
}

// The valid keys of a run.
std::int64_t count_keys(const ForwardCall& x, std::int64_t b, const SegmentRun& run) {
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < run.keys; ++j)
    count += is_valid(x.how.key_valid, b, run.first_key + j) ? 1 : 0;
  return count;
}

// Rows of o and den from y_t.
template <class T>
void finish_rows(const ForwardCall& x, const ForwardChunk<Compute<T>>& t, std::int64_t b,
                 std::int64_t h, std::int64_t first, std::int64_t n, std::int64_t keys) {
  using C = Compute<T>;
  C* den = x.out.den.ptr<C>() + (b * x.z.heads + h) * x.z.queries + first;
  T* rows =
      x.out.o.ptr<T>() + b * x.out.o.stride[0] + h * x.out.o.stride[1] + first * x.out.o.stride[2];
  const auto floor = static_cast<C>(x.how.floor);
  for (std::int64_t i = 0; i < n; ++i) {
    const C mass = t.y_t[x.z.values * t.lanes + i];
    C by = mass < floor ? floor : mass;
    den[i] = mass;
    if (x.how.normaliser == Normaliser::add) den[i] = by = mass + floor;
    if (x.how.normaliser == Normaliser::sqrt_n)
      den[i] = by = keys == 0 ? C(1) : std::sqrt(static_cast<C>(keys));
    T* rest = x.out.rounding
                  ? x.out.rounding.ptr<T>() + b * x.out.rounding.stride[0] +
                        h * x.out.rounding.stride[1] + (first + i) * x.out.rounding.stride[2]
                  : nullptr;
    for (std::int64_t c = 0; c < x.z.values; ++c) {
      const C value = t.y_t[c * t.lanes + i] / by;
      T* to = rows + i * x.out.o.stride[2] + c;
      store_one(to, value);
      if (rest != nullptr) store_one(rest + c, value - load_one(to));
    }
  }
}

// y_t = the state's part of n queries of head h; a and a_t are left loaded.
template <class T>
void state_rows(const ForwardCall& x, ForwardChunk<Compute<T>>& t, std::int64_t b, std::int64_t h,
                std::int64_t first, std::int64_t n, const SegmentRun& run) {
  using C = Compute<T>;
  load_queries_of<T>(t.a, t.ldm, x.a, b, h, first, n, x.how, run);
  transpose_tokens(t.a_t, t.lanes, t.a, t.ldm, n, x.z.features);
  tile_product<C>(t.y_t, t.lanes, {t.state, 1, t.ldp}, t.a_t, t.lanes, x.z.sums, x.z.features,
                  padded<C>(n) / Lane<C>::width, false);
}

template <class T>
void causal_chunk(const ForwardCall& x, ForwardChunk<Compute<T>>& t, std::int64_t b, std::int64_t s,
                  std::int64_t first, std::int64_t n, const SegmentRun& run) {
  using C = Compute<T>;
  const LinearSizes& z = x.z;
  const std::int64_t vectors = padded<C>(n) / Lane<C>::width;
  t.scale.read(x.how, b, s, first, n, t.lanes);
  load_tokens<T>(t.b, t.ldm, x.b, b, z.key_head(s), first, n, x.how.key_valid);
  load_values<T>(t.c, t.ldp, x.v, b, s / (z.states / z.value_heads), first, n, x.how, t.scale);
  for (std::int64_t h = s * z.group(); h < (s + 1) * z.group(); ++h) {
    state_rows<T>(x, t, b, h, first, n, run);
    for (std::int64_t p = 0; t.scale.decays && p < z.sums; ++p) {
      C* row = t.y_t + p * t.lanes;
      for (std::int64_t i = 0; i < t.lanes; i += Lane<C>::width)
        store(row + i, load(row + i) * load(t.scale.row + i));
    }
    tile_product<C>(t.w_t, t.lanes, {t.b, t.ldm, 1}, t.a_t, t.lanes, n, z.features, vectors, false);
    t.scale.mask(t.w_t, n, t.lanes);
    tile_product<C>(t.y_t, t.lanes, {t.c, 1, t.ldp}, t.w_t, t.lanes, z.sums, n, vectors, true);
    finish_rows<T>(x, t, b, h, first, n, 0);
  }
  const C* c = t.c;
  if (t.scale.decays) {
    for (std::int64_t j = 0; j < n; ++j)
      scale_row(t.kept + j * t.ldp, t.c + j * t.ldp, t.scale.key[j], t.ldp);
    for (std::int64_t r = 0; r < z.features; ++r)
      scale_row(t.state + r * t.ldp, t.state + r * t.ldp, t.scale.keep, t.ldp);
    c = t.kept;
  }
  add_to_state(t.state, t.ldp, t.b, t.ldm, c, z.features, n);
}

// One state of one sample.
template <class T>
void forward_state(const ForwardCall& x, std::int64_t b, std::int64_t s) {
  using C = Compute<T>;
  const LinearSizes& z = x.z;
  ForwardChunk<C> t(z);
  const auto for_chunks = [&](std::int64_t first, std::int64_t count, auto&& work) {
    for (std::int64_t at = 0; at < count; at += z.chunk)
      work(first + at, count - at < z.chunk ? count - at : z.chunk);
  };
  read_state(x, t, b, s);
  for (const SegmentRun& run : segment_runs(x.how, z, b)) {
    if (run.first_key != 0 || !x.how.causal) t.clear_state(z);
    if (x.how.causal) {
      for_chunks(run.first_key, run.keys, [&](std::int64_t first, std::int64_t n) {
        causal_chunk<T>(x, t, b, s, first, n, run);
      });
      continue;
    }
    for_chunks(run.first_key, run.keys, [&](std::int64_t first, std::int64_t n) {
      t.scale.read(x.how, b, s, first, n, t.lanes);
      load_tokens<T>(t.b, t.ldm, x.b, b, z.key_head(s), first, n, x.how.key_valid);
      load_values<T>(t.c, t.ldp, x.v, b, s / (z.states / z.value_heads), first, n, x.how, t.scale);
      add_to_state(t.state, t.ldp, t.b, t.ldm, t.c, z.features, n);
    });
    const std::int64_t keys = count_keys(x, b, run);
    for (std::int64_t h = s * z.group(); h < (s + 1) * z.group(); ++h) {
      for_chunks(run.first_query, run.queries, [&](std::int64_t first, std::int64_t n) {
        state_rows<T>(x, t, b, h, first, n, run);
        finish_rows<T>(x, t, b, h, first, n, keys);
      });
    }
  }
  write_state(x, t, b, s);
}

}  // namespace

void linear_attention_forward(StreamRef stream, const LinearOutputs& outputs, const View& state,
                              const View& a, const View& b, const View& v, const LinearSums& sums) {
  const LinearSizes z(a, b, v, sums);
  const ForwardCall x{outputs, state, a, b, v, sums, z};
  for_float(v.dtype, [&]<class T>(T*) {
    parallel_for(stream, z.batch * z.states, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at)
        forward_state<T>(x, at / z.states, at % z.states);
    });
  });
}

namespace {

// decay, weight and top of one state; see the header.
template <class C>
void scale_keys(const View& decay, const View& weight, const View& top, const View& tops,
                const View& exponent, const View& slopes, const LinearSums& how, std::int64_t b,
                std::int64_t s) {
  const std::int64_t states = weight.dim[1], n = weight.dim[2];
  const C none = -std::numeric_limits<C>::infinity();
  const C* from = exponent.ptr<C>() + (b * exponent.dim[1] + s / (states / exponent.dim[1])) * n;
  C* to = weight.ptr<C>() + (b * states + s) * n;
  C* after = tops ? tops.ptr<C>() + (b * states + s) * n : nullptr;
  C* shrink = decay ? decay.ptr<C>() + (b * states + s) * n : nullptr;
  const C slope = slopes ? slopes.ptr<C>()[s] : C(0);
  C largest = top ? top.ptr<C>()[b * states + s] : none;
  for (const TokenRun& run : token_runs(how.key_segments, how.key_valid, b, n)) {
    if (run.first != 0) largest = none;
    const auto real = [&](std::int64_t j) { return is_valid(how.key_valid, b, j); };
    if (shrink == nullptr) {
      for (std::int64_t j = run.first; j < run.first + run.count; ++j)
        largest = real(j) && from[j] > largest ? from[j] : largest;
    }
    for (std::int64_t j = run.first; j < run.first + run.count; ++j) {
      to[j] = 0;
      if (shrink != nullptr) shrink[j] = 0;
      if (after != nullptr) after[j] = largest;
      if (!real(j)) continue;
      if (shrink != nullptr) {
        const C past = largest - slope;
        largest = from[j] > past ? from[j] : past;
        if (past != none) shrink[j] = past - largest;
        if (after != nullptr) after[j] = largest;
      }
      to[j] = from[j] - largest;
    }
  }
  if (top) top.ptr<C>()[b * states + s] = largest;
}

double log2_sigmoid(double z) {
  return -(z < 0 ? std::log1p(std::exp(z)) - z : std::log1p(std::exp(-z))) * 1.4426950408889634;
}

}  // namespace

void key_scale(StreamRef stream, const View& decay, const View& weight, const View& top,
               const View& tops, const View& exponent, const View& slopes, const LinearSums& sums) {
  for_float(weight.dtype, [&]<class T>(T*) {
    parallel_for(stream, weight.dim[0] * weight.dim[1], 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t at = begin; at < end; ++at)
                     scale_keys<Compute<T>>(decay, weight, top, tops, exponent, slopes, sums,
                                            at / weight.dim[1], at % weight.dim[1]);
                 });
  });
}

void log_mass(StreamRef stream, const View& lse, const View& den, const View& exponent,
              const View& tops, double add) {
  const std::int64_t group = lse.dim[1] / tops.dim[1], n = lse.dim[2];
  for_float(lse.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    parallel_for(stream, lse.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const C mass = den.ptr<C>()[i], top = tops.ptr<C>()[i / n / group * n + i % n];
        const double scale = 0.69314718055994531 * double(exponent.ptr<C>()[i] + top) + add;
        lse.ptr<C>()[i] =
            mass > 0 ? std::log(mass) + static_cast<C>(scale) : -std::numeric_limits<C>::infinity();
      }
    });
  });
}

void gate_forward(StreamRef stream, const View& decay, const View& weight, const View& z,
                  const View& key_valid) {
  const std::int64_t tokens = z.dim[1], states = z.dim[2];
  for_float(z.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    parallel_for(stream, z.dim[0] * tokens, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t b = row / tokens, t = row % tokens;
        const bool real = is_valid(key_valid, b, t);
        for (std::int64_t s = 0; s < states; ++s) {
          const double at = real ? double(load_one(z.ptr<T>() + row * states + s)) : 0;
          const std::int64_t to = (b * states + s) * tokens + t;
          decay.ptr<C>()[to] = static_cast<C>(real ? log2_sigmoid(at) : 0);
          weight.ptr<C>()[to] = static_cast<C>(real ? log2_sigmoid(-at) : 0);
        }
      }
    });
  });
}

void gate_backward(StreamRef stream, const View& dz, const View& ddecay, const View& dweight,
                   const View& z, const View& key_valid) {
  const std::int64_t tokens = z.dim[1], states = z.dim[2];
  for_float(z.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    parallel_for(stream, z.dim[0] * tokens, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t b = row / tokens, t = row % tokens;
        for (std::int64_t s = 0; s < states; ++s) {
          const std::int64_t from = (b * states + s) * tokens + t;
          double sum = 0;
          if (is_valid(key_valid, b, t)) {
            const double gate =
                1 / (1 + std::exp(-double(load_one(z.ptr<T>() + row * states + s))));
            if (ddecay) sum += double(ddecay.ptr<C>()[from]) * (1 - gate);
            if (dweight) sum -= double(dweight.ptr<C>()[from]) * gate;
          }
          store_one(dz.ptr<T>() + row * states + s, static_cast<C>(sum * 1.4426950408889634));
        }
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
