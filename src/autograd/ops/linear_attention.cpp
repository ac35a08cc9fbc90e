#include "autograd/ops/linear_attention.h"

#include <cmath>
#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea {

namespace {

void require(bool ok, const char* op, const std::string& what) {
  if (!ok) throw ShapeError(cat(op, ": ", what));
}

void require_mask(const char* op, const char* name, const Tensor& mask, DType dtype, std::int64_t b,
                  std::int64_t n) {
  if (mask.defined()) require_tensor(op, name, mask, {b, n}, dtype);
}

// The mask with its defaults filled in, and checked.
LinearMask resolve(const char* op, const Var& a, const Var& b, const Var& v, LinearMask mask) {
  require(a.shape().rank() == 4 && b.shape().rank() == 4 && v.shape().rank() == 4, op,
          cat("queries, keys and values must be [B,H,N,D], but are ", a.shape().str(), ", ",
              b.shape().str(), ", ", v.shape().str()));
  const std::int64_t n = a.size(2), m = b.size(2);
  require(
      a.size(0) == b.size(0) && b.size(0) == v.size(0) && a.size(3) == b.size(3) && m == v.size(2),
      op,
      cat("queries ", a.shape().str(), ", keys ", b.shape().str(), " and values ", v.shape().str(),
          " do not fit together"));
  require(
      b.size(1) > 0 && v.size(1) > 0 && b.size(1) % v.size(1) == 0 && a.size(1) % b.size(1) == 0,
      op,
      cat(a.size(1), " query heads, ", b.size(1), " key heads and ", v.size(1),
          " value heads: each must be a multiple of the next"));
  require(a.dtype() == b.dtype() && a.dtype() == v.dtype() && is_float(a.dtype()), op,
          cat("queries ", name_of(a.dtype()), ", keys ", name_of(b.dtype()), " and values ",
              name_of(v.dtype()), " must be one float type"));
  require(!mask.causal || n == m, op,
          cat("causal attention needs as many queries as keys, but got ", n, " and ", m));
  require(!mask.causal || mask.normaliser != Normaliser::sqrt_n, op,
          "the sqrt_n normaliser has no causal form");
  require(mask.chunk > 0, op, cat("chunk is ", mask.chunk, ", but must be at least 1"));
  if (!mask.query_valid.defined() && n == m) mask.query_valid = mask.key_valid;
  if (!mask.key_segments.defined()) mask.key_segments = mask.query_segments;
  require(mask.query_segments.defined() == mask.key_segments.defined(), op,
          "key_segments need query_segments");
  require_mask(op, "key_valid", mask.key_valid, DType::u8, a.size(0), m);
  require_mask(op, "query_valid", mask.query_valid, DType::u8, a.size(0), n);
  require_mask(op, "key_segments", mask.key_segments, DType::i32, a.size(0), m);
  require_mask(op, "query_segments", mask.query_segments, DType::i32, a.size(0), n);
  return mask;
}

// States of a sample: as many as decay or have weights of their own, else the key heads.
std::int64_t states_of(const char* op, const KeyWeights& w, const Var& a, const Tensor& b,
                       const LinearMask& mask) {
  require(!w.decay.defined() || mask.causal, op, "only causal keys decay");
  const Var& first = w.decay.defined() ? w.decay : w.weight;
  if (!first.defined()) return b.size(1);
  const std::int64_t states = first.shape().rank() == 3 ? first.size(1) : 0;
  require(states > 0 && states % b.size(1) == 0 && a.size(1) % states == 0, op,
          cat("the weights are ", first.shape().str(), " for ", a.size(1), " query heads and ",
              b.size(1), " key heads"));
  const Shape shape{a.size(0), states, b.size(2)};
  for (const auto& [name, x] : {std::pair("decay", &w.decay), std::pair("weight", &w.weight)}) {
    if (x->defined()) require_tensor(op, name, x->value(), shape, acc_of(a.dtype()));
  }
  return states;
}

// Holds the tensors alive; the kernels see its views.
LinearSums sums_of(const LinearMask& mask, const Tensor& decay, const Tensor& weight) {
  LinearSums out;
  out.causal = mask.causal;
  out.normaliser = mask.normaliser;
  out.floor = mask.floor;
  out.chunk = mask.chunk;
  out.key_valid = mask.key_valid.view();
  out.query_valid = mask.query_valid.view();
  out.query_segments = mask.query_segments.view();
  out.key_segments = mask.key_segments.view();
  out.decay = decay.view();
  out.weight = weight.view();
  return out;
}

// The kernels walk rows: a copy where the last axis has no unit stride.
Tensor unit_rows(Ctx& ctx, const Tensor& x, const char* op) {
  return x.strides()[x.rank() - 1] == 1 || x.size(-1) == 1 ? x : contiguous(ctx, x, op);
}

// [B,H,N,Dv] stored as [B,N,H,Dv]; what rounding took of a 16-bit o, where a backward pass will
// ask; and the denominators.
struct Sums {
  Tensor o, rounding, den, lse;
  LinearOutputs views() const { return {o.view(), rounding.view(), den.view()}; }
};

// Where the logarithm of a row's mass starts from; undefined: it is not asked for.
struct MassScale {
  Tensor exponent, tops;
  double add = 0;
};

Sums run_forward(Ctx& ctx, const char* op, const Tensor& a, const Tensor& b, const Tensor& v,
                 const LinearSums& how, const Tensor& state, const MassScale& scale) {
  Sums out;
  const auto output = [&] {
    return ctx.empty({a.size(0), a.size(2), a.size(1), v.size(3)}, v.dtype(), op)
        .permute({0, 2, 1, 3});
  };
  out.o = output();
  if (ctx.tape != nullptr && ctx.tape->keeps() && size_of(v.dtype()) == 2) out.rounding = output();
  out.den = ctx.empty({a.size(0), a.size(1), a.size(2)}, acc_of(v.dtype()), op);
  FOVEA_ON(ctx.device, linear_attention_forward(ctx.stream.ref(), out.views(), state.view(),
                                                a.view(), b.view(), v.view(), how));
  if (!scale.exponent.defined()) return out;
  require_tensor(op, "query_exponent", scale.exponent, out.den.shape(), out.den.dtype());
  require(scale.tops.defined(), op, "a logarithm of sums needs the keys' tops");
  out.lse = ctx.empty(out.den.shape(), out.den.dtype(), op);
  FOVEA_ON(ctx.device, log_mass(ctx.stream.ref(), out.lse.view(), out.den.view(),
                                scale.exponent.view(), scale.tops.view(), scale.add));
  return out;
}

// o, and lse where it was made.
AttentionResult finish_sums(Ctx& ctx, const char* op, const Sums& out, std::vector<GradRef> inputs,
                            Backward backward) {
  std::vector<Tensor> outs = {out.o};
  if (out.lse.defined()) outs.push_back(out.lse);
  std::vector<Var> vars = finish(ctx, op, outs, std::move(inputs), std::move(backward));
  return {vars[0], out.lse.defined() ? vars[1] : Var()};
}

// The gradients of both outputs as the kernel wants them; dout zero where only lse has one.
struct OutputGradients {
  Tensor dout, dlse;
  OutputGradients(Ctx& c, const char* op, std::span<const Tensor> given, const Tensor& o)
      : dout(given[0].defined() ? unit_rows(c, given[0], op) : c.zeros(o.shape(), o.dtype(), op)),
        dlse(given.size() > 1 ? contiguous(c, given[1], op) : Tensor()) {}
};

void give_rounded(Ctx& c, const char* op, const GradRef& to, const Tensor& g, DType dtype) {
  if (!to || g.dtype() == dtype) return give(c, to, g);
  const Tensor narrow = c.empty(g.shape(), dtype, op);
  FOVEA_ON(c.device, copy(c.stream.ref(), narrow.view(), g.view()));
  give(c, to, narrow);
}

}  // namespace

AttentionResult linear_attention(Ctx& ctx, const Var& a, const Var& b, const Var& v,
                                 const KeyWeights& weights, const LinearMask& asked,
                                 const Tensor& sums, const Tensor& query_exponent, double add) {
  constexpr const char* kOp = "linear_attention";
  const LinearMask mask = resolve(kOp, a, b, v, asked);
  const std::int64_t states = states_of(kOp, weights, a, b.value(), mask);
  if (sums.defined()) {
    require(mask.causal, kOp, "only causal sums have a state");
    require_tensor(kOp, "sums", sums, {a.size(0), states, a.size(3), v.size(3) + 1},
                   acc_of(a.dtype()));
  }
  const Tensor at = unit_rows(ctx, a.value(), kOp), bt = unit_rows(ctx, b.value(), kOp),
               vt = unit_rows(ctx, v.value(), kOp);
  const Tensor decay = contiguous(ctx, weights.decay.value(), kOp),
               weight = contiguous(ctx, weights.weight.value(), kOp);
  const Sums out = run_forward(ctx, kOp, at, bt, vt, sums_of(mask, decay, weight), sums,
                               {query_exponent, weights.tops, add});
  auto backward = [at, bt, vt, decay, weight, out, mask, ga = a.grad(), gb = b.grad(),
                   gv = v.grad(), gd = weights.decay.grad(),
                   gw = weights.weight.grad()](Ctx& c, std::span<const Tensor> dout) {
    const auto made = [&](const GradRef& to, const Tensor& like, DType dtype) {
      return to ? c.empty(like.shape(), dtype, kOp) : Tensor();
    };
    const DType acc = acc_of(vt.dtype());
    const Tensor da = made(ga, at, acc), db = made(gb, bt, acc), dv = made(gv, vt, vt.dtype()),
                 dd = made(gd, decay, acc), dw = made(gw, weight, acc);
    const LinearGradients gradients{da.view(), db.view(), dv.view(), dd.view(), dw.view()};
    const OutputGradients given(c, kOp, dout, out.o);
    FOVEA_ON(c.device, linear_attention_backward(c.stream.ref(), gradients, given.dout.view(),
                                                 given.dlse.view(), at.view(), bt.view(), vt.view(),
                                                 out.views(), sums_of(mask, decay, weight)));
    give_rounded(c, kOp, ga, da, at.dtype());
    give_rounded(c, kOp, gb, db, bt.dtype());
    give(c, gv, dv);
    give(c, gd, dd);
    give(c, gw, dw);
  };
  return finish_sums(ctx, kOp, out,
                     {a.grad(), b.grad(), v.grad(), weights.decay.grad(), weights.weight.grad()},
                     std::move(backward));
}

KeyWeights KeyWeights::relative(Ctx& ctx, const Tensor& exponent, const Tensor& slopes,
                                const LinearMask& mask, const Tensor& top, bool with_tops) {
  constexpr const char* kOp = "key_scale";
  require(exponent.defined() && exponent.rank() == 3, kOp, "exponent must be [B,H,M]");
  const std::int64_t states = slopes.defined() ? slopes.size(0) : exponent.size(1);
  require(states % exponent.size(1) == 0 && (mask.causal || !slopes.defined()), kOp,
          cat(states, " slopes for ", exponent.size(1), " key heads",
              mask.causal ? "" : " without causality"));
  const Shape shape{exponent.size(0), states, exponent.size(2)};
  if (top.defined()) require_tensor(kOp, "top", top, {exponent.size(0), states}, exponent.dtype());
  const Tensor weight = ctx.empty(shape, exponent.dtype(), kOp),
               decay = mask.causal ? ctx.empty(shape, exponent.dtype(), kOp) : Tensor(),
               tops = with_tops ? ctx.empty(shape, exponent.dtype(), kOp) : Tensor();
  LinearMask keys = mask;
  if (!keys.key_segments.defined()) keys.key_segments = keys.query_segments;
  FOVEA_ON(ctx.device,
           key_scale(ctx.stream.ref(), decay.view(), weight.view(), top.view(), tops.view(),
                     exponent.view(), slopes.view(), sums_of(keys, {}, {})));
  return {decay.defined() ? Var(decay) : Var(), Var(weight), tops};
}

KeyWeights gate_weights(Ctx& ctx, const Var& z, const Tensor& key_valid) {
  constexpr const char* kOp = "gate_weights";
  require_float(kOp, "z", z.value());
  require(z.value().rank() == 3, kOp, cat("z is ", z.shape().str(), ", but must be [B,M,S]"));
  require_mask(kOp, "key_valid", key_valid, DType::u8, z.size(0), z.size(1));
  const Tensor zt = contiguous(ctx, z.value(), kOp);
  const Shape shape{z.size(0), z.size(2), z.size(1)};
  const Tensor outs[] = {ctx.empty(shape, acc_of(z.dtype()), kOp),
                         ctx.empty(shape, acc_of(z.dtype()), kOp)};
  FOVEA_ON(ctx.device, gate_forward(ctx.stream.ref(), outs[0].view(), outs[1].view(), zt.view(),
                                    key_valid.view()));
  auto backward = [zt, key_valid, gz = z.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dz = c.empty(zt.shape(), zt.dtype(), kOp);
    FOVEA_ON(c.device,
             gate_backward(c.stream.ref(), dz.view(), contiguous(c, dout[0], kOp).view(),
                           contiguous(c, dout[1], kOp).view(), zt.view(), key_valid.view()));
    give(c, gz, dz);
  };
  const std::vector<Var> both = finish(ctx, kOp, outs, {z.grad()}, std::move(backward));
  return {both[0], both[1], {}};
}

namespace {

// Of the factor m^(-1/2) that features on both sides lack.
double log_scale(std::int64_t features) {
  return -std::log(static_cast<double>(features));
}

// Its composition of plain ops.
AttentionResult composed(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                         const Features& query_map, const Features& key_map,
                         const KeyWeights& weights, const LinearMask& mask, const Tensor& slopes,
                         const LinearState& state) {
  const MappedFeatures a = map_features(ctx, q, query_map, mask.query_valid, mask.query_segments);
  const MappedFeatures b = map_features(ctx, k, key_map, mask.key_valid, mask.key_segments);
  const KeyWeights own = key_map.exponential() ? KeyWeights::relative(ctx, b.exponent, slopes, mask,
                                                                      state.top, mask.lse)
                                               : weights;
  return linear_attention(ctx, a.y, b.y, v, own, mask, state.sums, mask.lse ? a.exponent : Tensor(),
                          log_scale(a.y.size(3)));
}

// What a call of feature_attention keeps.
struct FeatureCall {
  FeatureRows queries, keys;
  Features query_map, key_map;
  Tensor v;
  KeyWeights weights;
  LinearMask mask;
  Sums out;

  LinearSums sums() const { return sums_of(mask, weights.decay.value(), weights.weight.value()); }
};

// Features, weights and sums.
void run_features(Ctx& ctx, const char* op, FeatureCall& call, const Var& q, const Tensor& slopes,
                  const LinearState& state) {
  Tensor exponent, query_exponent;
  const bool lse = call.mask.lse;
  const Tensor a = call.queries.map(ctx, call.query_map, lse ? &query_exponent : nullptr, false),
               b = call.keys.map(ctx, call.key_map, &exponent, false);
  if (call.key_map.exponential())
    call.weights = KeyWeights::relative(ctx, exponent, slopes, call.mask, state.top, lse);
  const std::int64_t states = states_of(op, call.weights, q, b, call.mask);
  if (state.sums.defined()) {
    require_tensor(op, "sums", state.sums, {q.size(0), states, a.size(3), call.v.size(3) + 1},
                   acc_of(q.dtype()));
  }
  call.out = run_forward(ctx, op, a, b, call.v, call.sums(), state.sums,
                         {query_exponent, call.weights.tops, log_scale(a.size(3))});
  call.weights.tops = {};
}

}  // namespace

AttentionResult feature_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                  const Features& query_map, const Features& key_map,
                                  const KeyWeights& weights, const LinearMask& asked,
                                  const Tensor& slopes, const LinearState& state) {
  constexpr const char* kOp = "feature_attention";
  const LinearMask mask = resolve(kOp, q, k, v, asked);
  require(!key_map.exponential() || !(weights.decay.defined() || weights.weight.defined()), kOp,
          "exponential maps have weights of their own");
  require(!mask.lse || (mask.causal && key_map.exponential() && query_map.exponential()), kOp,
          "only causal sums of exponential maps have a logarithm");
  if (!ctx.fuse) return composed(ctx, q, k, v, query_map, key_map, weights, mask, slopes, state);
  FeatureCall call{FeatureRows(ctx, kOp, q, query_map, mask.query_valid, mask.query_segments),
                   FeatureRows(ctx, kOp, k, key_map, mask.key_valid, mask.key_segments),
                   query_map,
                   key_map,
                   unit_rows(ctx, v.value(), kOp),
                   weights,
                   mask,
                   {}};
  run_features(ctx, kOp, call, q, slopes, state);
  auto backward = [call, gq = q.grad(), gk = k.grad(), gv = v.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    FeatureRows queries = call.queries, keys = call.keys;
    const bool sigma = call.query_map.sigma.requires_grad();
    const Tensor a = queries.map(c, call.query_map, nullptr, true),
                 b = keys.map(c, call.key_map, nullptr, true);
    const auto made = [&](bool want, const Tensor& like, DType dtype) {
      return want ? c.empty(like.shape(), dtype, kOp) : Tensor();
    };
    const DType acc = acc_of(call.v.dtype());
    const Var &decay = call.weights.decay, &weight = call.weights.weight;
    // What the maps' gradients round anyway may leave in half the bytes.
    const bool rounds = c.device.is_cuda() && !decay.requires_grad() && !weight.requires_grad() &&
                        rounds_gradients(a.view(), call.v.view(), call.sums());
    const DType wide = rounds ? DType::bf16 : acc;
    const Tensor da = made(gq || sigma, a, wide), db = made(gk || sigma, b, wide),
                 dv = made(gv != nullptr, call.v, call.v.dtype()),
                 dd = made(decay.requires_grad(), decay.value(), acc),
                 dw = made(weight.requires_grad(), weight.value(), acc);
    const LinearGradients gradients{da.view(), db.view(), dv.view(), dd.view(), dw.view()};
    const OutputGradients given(c, kOp, dout, call.out.o);
    FOVEA_ON(c.device, linear_attention_backward(c.stream.ref(), gradients, given.dout.view(),
                                                 given.dlse.view(), a.view(), b.view(),
                                                 call.v.view(), call.out.views(), call.sums()));
    give(c, gv, dv);
    give(c, decay.grad(), dd);
    give(c, weight.grad(), dw);
    if (da.defined()) queries.give_gradients(c, gq, call.query_map, da);
    if (db.defined()) keys.give_gradients(c, gk, call.key_map, db);
  };
  return finish_sums(ctx, kOp, call.out,
                     {q.grad(), k.grad(), v.grad(), call.weights.decay.grad(),
                      call.weights.weight.grad(), query_map.sigma.grad(), key_map.sigma.grad()},
                     std::move(backward));
}

}  // namespace fovea
