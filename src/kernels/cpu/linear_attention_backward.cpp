#include "kernels/cpu/linear_tile.h"
#include "kernels/linear_attention.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

struct BackwardCall {
  const LinearGradients& d;
  const View &dout, &dlse, &a, &b, &v;
  const LinearOutputs& out;
  const LinearSums& how;
  const LinearSizes& z;
};

// Buffers of one (sample, value head): gradients of its keys and values, the states before every
// chunk, and one chunk.
template <class C>
struct BackwardChunk {
  explicit BackwardChunk(const LinearSizes& z, std::int64_t chunks)
      : ldm(padded<C>(z.features)),
        ldp(padded<C>(z.sums)),
        lanes(padded<C>(z.chunk)),
        size(z.features * ldp),
        memory(z.keys * (ldm * (z.key_heads / z.value_heads) + ldp + 2) + (chunks + 2) * size +
               z.sums * ldm + lanes * (3 * ldm + 6 * ldp + 2 * z.features + z.sums + 2 * lanes) +
               ChunkScale<C>::room(lanes)),
        db(memory.data()),
        dc(db + z.keys * ldm * (z.key_heads / z.value_heads)),
        row(dc + z.keys * ldp),
        col(row + z.keys),
        states(col + z.keys),
        past(states + (chunks + 1) * size),
        past_t(past + size),
        a(past_t + z.sums * ldm),
        b(a + lanes * ldm),
        kept_b(b + lanes * ldm),
        c(kept_b + lanes * ldm),
        kept_c(c + lanes * ldp),
        dy(kept_c + lanes * ldp),
        late_dy(dy + lanes * ldp),
        o(late_dy + lanes * ldp),
        dc_chunk(o + lanes * ldp),
        a_t(dc_chunk + lanes * ldp),
        da_t(a_t + z.features * lanes),
        dy_t(da_t + z.features * lanes),
        w_t(dy_t + z.sums * lanes),
        g_t(w_t + lanes * lanes),
        scale(g_t + lanes * lanes, lanes) {
    std::memset(static_cast<void*>(db), 0, static_cast<std::size_t>(states - db) * sizeof(C));
  }
  std::int64_t ldm, ldp, lanes, size;
  Scratch<C> memory;
  C *db, *dc, *row, *col;     // [Hb/Hk][M][m] [M][p] [M] [M]: sums of T_ij over j, over i
  C *states, *past, *past_t;  // S before every chunk; R, the sums of later queries: [m][p] [p][m]
  C *a, *b, *kept_b, *c, *kept_c, *dy, *late_dy, *o, *dc_chunk;  // rows
  C *a_t, *da_t, *dy_t, *w_t, *g_t;                              // [.][i], [j][i]
  ChunkScale<C> scale;
};

// Gradients of the sums: dy = [dout / D, -<dout, o> / D], zero where the denominator is none.
// Returns <dy, y> of a row, which is not zero only where D did not divide.
template <class T>
Compute<T> row_gradient(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b,
                        std::int64_t h, std::int64_t token, std::int64_t i) {
  using C = Compute<T>;
  C* dy = t.dy + i * t.ldp;
  const C* o = t.o + i * t.ldp;
  const C den = x.out.den.ptr<C>()[(b * x.z.heads + h) * x.z.queries + token];
  const auto floor = static_cast<C>(x.how.floor);
  const bool clamped = x.how.normaliser == Normaliser::clamp && den < floor;
  const C by = clamped ? floor : den;
  C mass = 0;
  for (std::int64_t c = 0; c < x.z.values; ++c) {
    mass = std::fma(dy[c], o[c], mass);
    dy[c] /= by;
  }
  const bool divided = !clamped && x.how.normaliser != Normaliser::sqrt_n;
  const C dlse = x.dlse ? x.dlse.ptr<C>()[(b * x.z.heads + h) * x.z.queries + token] : C(0);
  dy[x.z.values] = divided ? (dlse - mass) / by : C(0);
  if (!divided) return mass;
  return dlse + (x.how.normaliser == Normaliser::add ? (mass - dlse) * (floor / den) : C(0));
}

// a, a_t, dy, dy_t of n queries, and their row sums.
template <class T>
void load_queries(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b,
                  std::int64_t h, std::int64_t first, std::int64_t n, const SegmentRun& run) {
  using C = Compute<T>;
  load_queries_of<T>(t.a, t.ldm, x.a, b, h, first, n, x.how, run);
  load_queries_of<T>(t.dy, t.ldp, x.dout, b, h, first, n, x.how, run);
  load_tokens<T>(t.o, t.ldp, x.out.o, b, h, first, n, x.how.query_valid);
  if (x.out.rounding) {
    load_tokens<T>(t.late_dy, t.ldp, x.out.rounding, b, h, first, n, x.how.query_valid);
    for (std::int64_t e = 0; e < n * t.ldp; e += Lane<C>::width)
      store(t.o + e, load(t.o + e) + load(t.late_dy + e));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_query_of(x.how, b, first + i, run)) {
      const C sum = row_gradient<T>(x, t, b, h, first + i, i);
      if (x.how.causal) t.row[first + i] += sum;
    }
  }
  transpose_tokens(t.a_t, t.lanes, t.a, t.ldm, n, x.z.features);
  transpose_tokens(t.dy_t, t.lanes, t.dy, t.ldp, n, x.z.sums);
}

// b and c of n keys of state s, and how they are weighed.
template <class T>
void load_keys(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b, std::int64_t s,
               std::int64_t first, std::int64_t n) {
  t.scale.read(x.how, b, s, first, n, t.lanes);
  load_tokens<T>(t.b, t.ldm, x.b, b, x.z.key_head(s), first, n, x.how.key_valid);
  load_values<T>(t.c, t.ldp, x.v, b, s / (x.z.states / x.z.value_heads), first, n, x.how, t.scale);
}

// The chunk's keys as they reach later queries: kept_b, kept_c.
template <class C>
void keep_keys(BackwardChunk<C>& t, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const C by = t.scale.decays ? t.scale.key[j] : C(1);
    scale_row(t.kept_b + j * t.ldm, t.b + j * t.ldm, by, t.ldm);
    scale_row(t.kept_c + j * t.ldp, t.c + j * t.ldp, by, t.ldp);
  }
}

// da_t, which is one chunk of queries, to da.
template <class C>
void store_da(const BackwardCall& x, const BackwardChunk<C>& t, std::int64_t b, std::int64_t h,
              std::int64_t first, std::int64_t n) {
  if (!x.d.da) return;
  C* to = x.d.da.ptr<C>() + ((b * x.z.heads + h) * x.z.queries + first) * x.z.features;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t r = 0; r < x.z.features; ++r)
      to[i * x.z.features + r] = t.da_t[r * t.lanes + i];
  }
}

// da_t = state dy^T: the part of a query's gradient that comes through its state.
template <class C>
void state_gradient(const BackwardCall& x, BackwardChunk<C>& t, const C* state, std::int64_t n) {
  tile_product<C>(t.da_t, t.lanes, {state, t.ldp, 1}, t.dy_t, t.lanes, x.z.features, x.z.sums,
                  padded<C>(n) / Lane<C>::width, false);
}

// The part of the keys' gradients that comes through later queries, into the sums of their head.
template <class C>
void late_gradients(const BackwardCall& x, BackwardChunk<C>& t, C* db, std::int64_t n) {
  transpose_tokens(t.past, t.ldp, t.past_t, t.ldm, x.z.sums, x.z.features);
  tile_product<C>(db, t.ldm, {t.kept_c, t.ldp, 1}, t.past_t, t.ldm, n, x.z.sums,
                  t.ldm / Lane<C>::width, true);
  tile_product<C>(t.dc_chunk, t.ldp, {t.kept_b, t.ldm, 1}, t.past, t.ldp, n, x.z.features,
                  t.ldp / Lane<C>::width, true);
}

// past_t += dy^T a over n queries, rows of dy as they meet the state.
template <class C>
void add_to_past(const BackwardCall& x, BackwardChunk<C>& t, const C* dy, std::int64_t n) {
  tile_product<C>(t.past_t, t.ldm, {dy, 1, t.ldp}, t.a, t.ldm, x.z.sums, n, t.ldm / Lane<C>::width,
                  true);
}

// dc_chunk, which is complete, into dv's sums and the column sums <dc_j, c_j>.
template <class C>
void take_values(const BackwardCall& x, BackwardChunk<C>& t, std::int64_t first, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    C* to = t.dc + (first + j) * t.ldp;
    const C by = t.scale.weighted ? t.scale.weight[j] : C(1);
    const C* from = t.dc_chunk + j * t.ldp;
    const C* c = t.c + j * t.ldp;
    C sum = 0;
    for (std::int64_t p = 0; p < x.z.sums; ++p) {
      to[p] = std::fma(from[p], by, to[p]);
      sum = std::fma(from[p], c[p], sum);
    }
    t.col[first + j] += sum;
  }
}

template <class C>
void clear(C* at, std::int64_t n) {
  std::memset(static_cast<void*>(at), 0, static_cast<std::size_t>(n) * sizeof(C));
}

// The gradients of one chunk; t.states + at * size is the state before it.
template <class T>
void causal_chunk(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b,
                  std::int64_t s, std::int64_t first, std::int64_t n, const Compute<T>* state,
                  Compute<T>* db, const SegmentRun& run) {
  using C = Compute<T>;
  const LinearSizes& z = x.z;
  const std::int64_t vectors = padded<C>(n) / Lane<C>::width;
  load_keys<T>(x, t, b, s, first, n);
  keep_keys(t, n);
  clear(t.dc_chunk, n * t.ldp);
  late_gradients(x, t, db, n);
  for (std::int64_t p = 0; t.scale.decays && p < z.sums; ++p)
    scale_row(t.past_t + p * t.ldm, t.past_t + p * t.ldm, t.scale.keep, t.ldm);
  for (std::int64_t h = s * z.group(); h < (s + 1) * z.group(); ++h) {
    load_queries<T>(x, t, b, h, first, n, run);
    tile_product<C>(t.w_t, t.lanes, {t.b, t.ldm, 1}, t.a_t, t.lanes, n, z.features, vectors, false);
    tile_product<C>(t.g_t, t.lanes, {t.c, t.ldp, 1}, t.dy_t, t.lanes, n, z.sums, vectors, false);
    t.scale.mask(t.w_t, n, t.lanes);
    t.scale.mask(t.g_t, n, t.lanes);
    tile_product<C>(db, t.ldm, {t.g_t, t.lanes, 1}, t.a, t.ldm, n, n, t.ldm / Lane<C>::width, true);
    tile_product<C>(t.dc_chunk, t.ldp, {t.w_t, t.lanes, 1}, t.dy, t.ldp, n, n,
                    t.ldp / Lane<C>::width, true);
    const C* late = t.dy;
    if (t.scale.decays) {
      for (std::int64_t i = 0; i < n; ++i)
        scale_row(t.late_dy + i * t.ldp, t.dy + i * t.ldp, t.scale.row[i], t.ldp);
      for (std::int64_t p = 0; p < z.sums; ++p) {
        for (std::int64_t i = 0; i < t.lanes; i += Lane<C>::width)
          store(t.dy_t + p * t.lanes + i, load(t.dy_t + p * t.lanes + i) * load(t.scale.row + i));
      }
      late = t.late_dy;
    }
    add_to_past(x, t, late, n);
    state_gradient(x, t, state, n);
    tile_product<C>(t.da_t, t.lanes, {t.b, 1, t.ldm}, t.g_t, t.lanes, z.features, n, vectors, true);
    store_da(x, t, b, h, first, n);
  }
  take_values(x, t, first, n);
}

// The state after `n` more keys, which are loaded.
template <class C>
void advance_state(const BackwardCall& x, BackwardChunk<C>& t, C* to, const C* from,
                   std::int64_t n) {
  keep_keys(t, n);
  for (std::int64_t r = 0; r < x.z.features; ++r)
    scale_row(to + r * t.ldp, from + r * t.ldp, t.scale.decays ? t.scale.keep : C(1), t.ldp);
  add_to_state(to, t.ldp, t.b, t.ldm, t.kept_c, x.z.features, n);
}

template <class T>
void causal_run(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b, std::int64_t s,
                const SegmentRun& run, Compute<T>* db) {
  const LinearSizes& z = x.z;
  const std::int64_t chunks = (run.keys + z.chunk - 1) / z.chunk;
  const auto length = [&](std::int64_t at) {
    return run.keys - at * z.chunk < z.chunk ? run.keys - at * z.chunk : z.chunk;
  };
  clear(t.states, t.size);
  for (std::int64_t at = 0; at + 1 < chunks; ++at) {
    load_keys<T>(x, t, b, s, run.first_key + at * z.chunk, length(at));
    advance_state(x, t, t.states + (at + 1) * t.size, t.states + at * t.size, length(at));
  }
  clear(t.past_t, z.sums * t.ldm);
  for (std::int64_t at = chunks - 1; at >= 0; --at) {
    const std::int64_t first = run.first_key + at * z.chunk;
    causal_chunk<T>(x, t, b, s, first, length(at), t.states + at * t.size, db + first * t.ldm, run);
  }
}

template <class T>
void full_run(const BackwardCall& x, BackwardChunk<Compute<T>>& t, std::int64_t b, std::int64_t s,
              const SegmentRun& run, Compute<T>* db) {
  using C = Compute<T>;
  const LinearSizes& z = x.z;
  const auto for_chunks = [&](std::int64_t first, std::int64_t count, auto&& work) {
    for (std::int64_t at = 0; at < count; at += z.chunk)
      work(first + at, count - at < z.chunk ? count - at : z.chunk);
  };
  C* state = t.states;
  clear(state, t.size);
  for_chunks(run.first_key, run.keys, [&](std::int64_t first, std::int64_t n) {
    load_keys<T>(x, t, b, s, first, n);
    add_to_state(state, t.ldp, t.b, t.ldm, t.c, z.features, n);
  });
  clear(t.past_t, z.sums * t.ldm);
  for (std::int64_t h = s * z.group(); h < (s + 1) * z.group(); ++h) {
    for_chunks(run.first_query, run.queries, [&](std::int64_t first, std::int64_t n) {
      load_queries<T>(x, t, b, h, first, n, run);
      state_gradient(x, t, state, n);
      store_da(x, t, b, h, first, n);
      add_to_past(x, t, t.dy, n);
    });
  }
  for_chunks(run.first_key, run.keys, [&](std::int64_t first, std::int64_t n) {
    load_keys<T>(x, t, b, s, first, n);
    keep_keys(t, n);
    clear(t.dc_chunk, n * t.ldp);
    late_gradients(x, t, db + first * t.ldm, n);
    take_values(x, t, first, n);
  });
}

// dweight_j = ln 2 col_j; ddecay_t = ln 2 sum over i >= t of (row_i - col_i), inside a run: T_ij
// depends on the decays of j < t <= i.
template <class C>
void scale_gradients(const BackwardCall& x, BackwardChunk<C>& t, std::int64_t b, std::int64_t s,
                     const std::vector<SegmentRun>& runs) {
  constexpr double kLn2 = 0.69314718055994531;
  const auto to = [&](const View& view, std::int64_t j) {
    return view.ptr<C>() + (b * x.z.states + s) * x.z.keys + j;
  };
  for (std::int64_t j = 0; x.d.dweight && j < x.z.keys; ++j)
    *to(x.d.dweight, j) = static_cast<C>(kLn2 * double(t.col[j]));
  if (!x.d.ddecay) return;
  for (const SegmentRun& run : runs) {
    double sum = 0;
    for (std::int64_t j = run.first_key + run.keys - 1; j >= run.first_key; --j) {
      sum += double(t.row[j]) - double(t.col[j]);
      *to(x.d.ddecay, j) = static_cast<C>(is_valid(x.how.key_valid, b, j) ? kLn2 * sum : 0);
    }
  }
}

// One (sample, value head): its states in order, so that every sum over them has one order.
template <class T>
void backward_head(const BackwardCall& x, std::int64_t b, std::int64_t value_head) {
  using C = Compute<T>;
  const LinearSizes& z = x.z;
  const std::vector<SegmentRun> runs = segment_runs(x.how, z, b);
  BackwardChunk<C> t(z, x.how.causal ? (z.keys + z.chunk - 1) / z.chunk : 1);
  const std::int64_t per_value = z.states / z.value_heads, shared = z.key_heads / z.value_heads;
  for (std::int64_t s = value_head * per_value; s < (value_head + 1) * per_value; ++s) {
    C* db = t.db + (z.key_head(s) - value_head * shared) * z.keys * t.ldm;
    clear(t.row, 2 * z.keys);
    for (const SegmentRun& run : runs)
      x.how.causal ? causal_run<T>(x, t, b, s, run, db) : full_run<T>(x, t, b, s, run, db);
    scale_gradients(x, t, b, s, runs);
  }
  for (std::int64_t h = 0; x.d.db && h < shared; ++h)
    store_tokens<C>(x.d.db, b, value_head * shared + h, 0, z.keys, t.db + h * z.keys * t.ldm,
                    t.ldm);
  if (x.d.dv) store_tokens<T>(x.d.dv, b, value_head, 0, z.keys, t.dc, t.ldp);
}

}  // namespace

void linear_attention_backward(StreamRef stream, const LinearGradients& gradients, const View& dout,
                               const View& dlse, const View& a, const View& b, const View& v,
                               const LinearOutputs& outputs, const LinearSums& sums) {
  const LinearSizes z(a, b, v, sums);
  const BackwardCall x{gradients, dout, dlse, a, b, v, outputs, sums, z};
  for_float(v.dtype, [&]<class T>(T*) {
    parallel_for(stream, z.batch * z.value_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at)
        backward_head<T>(x, at / z.value_heads, at % z.value_heads);
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
