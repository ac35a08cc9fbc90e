#include "attention/contract/trial.h"

#include <cmath>
#include <limits>

#include "attention/standalone.h"
#include "autograd/tape.h"
#include "core/text.h"

namespace fovea::attention::contract {

AttentionConfig Trial::config() const {
  AttentionConfig out;
  out.n_embd = heads * v_dim;
  out.n_head = heads;
  out.n_kv_head = kv_heads;
  out.qk_dim = qk_dim;
  out.v_dim = v_dim;
  out.max_len = kMaxLength;
  out.causal = causal;
  out.cross = cross;
  out.dropout = dropout;
  out.position = position;
  return out;
}

Trial Trial::sized(std::int64_t n) const {
  Trial out = *this;
  out.queries = out.keys = n;
  return out;
}

namespace {

Tensor draw(const std::string& name, Shape shape, double size = 1) {
  const NamedStream stream(1, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = size * stream.normal(i);
  return Tensor::from(values, shape, DType::f64);
}

// f64 of any strides and dtype.
Tensor widened(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::f64, kCpu);
  copy_host(out.view(), x.view());
  return out;
}

Var leaf_of(const Tensor& x, DType dtype) {
  if (!x.defined()) return {};
  Tensor out = Tensor::empty(x.shape(), dtype, kCpu);
  copy_host(out.view(), x.view());
  return leaf(out);
}

Tensor seed_of(const Var& output, const Tensor& gradient) {
  if (!output.defined() || !output.requires_grad()) return {};
  Tensor out = Tensor::empty(output.shape(), output.dtype(), kCpu);
  if (gradient.defined()) {
    copy_host(out.view(), gradient.view());
  } else {
    const std::vector<double> ones(static_cast<std::size_t>(out.numel()), 1.0);
    out = Tensor::from(ones, output.shape(), output.dtype());
  }
  return out;
}

// Of a log-sum-exp with fewer heads than the queries: of its heads.
Tensor for_heads(const Tensor& dlse, const Tensor& lse) {
  const bool fewer = dlse.defined() && lse.defined() && lse.size(1) < dlse.size(1);
  return fewer ? clone(dlse.slice(1, 0, lse.size(1))) : dlse;
}

void keep(Outcome& into, const std::string& name, const Tensor& value, const Tensor& like) {
  if (value.defined())
    into[name] = widened(value);
  else if (like.defined())
    into[name] = Tensor::from(std::vector<double>(static_cast<std::size_t>(like.numel()), 0.0),
                              like.shape(), DType::f64);
}

}  // namespace

Tensor clone(const Tensor& x) {
  if (!x.defined()) return {};
  Tensor out = Tensor::empty(x.shape(), x.dtype(), kCpu);
  copy_host(out.view(), x.view());
  return out;
}

Tokens draw_tokens(const Trial& t, const std::string& name, double size) {
  Tokens out;
  const auto stream = [&](const char* part) { return cat("contract ", name, " ", part); };
  out.q = draw(stream("q"), {t.batch, t.heads, t.queries, t.qk_dim}, size);
  out.k = draw(stream("k"), {t.batch, t.kv_heads, t.keys, t.qk_dim}, size);
  out.v = draw(stream("v"), {t.batch, t.kv_heads, t.keys, t.v_dim});
  out.x = draw(stream("x"), {t.batch, t.queries, std::int64_t{t.heads} * t.v_dim});
  out.q_global = draw(stream("q_global"), out.q.shape(), size);
  out.k_global = draw(stream("k_global"), out.k.shape(), size);
  out.v_global = draw(stream("v_global"), out.v.shape());
  out.dout = draw(stream("dout"), {t.batch, t.heads, t.queries, t.v_dim});
  out.dlse = draw(stream("dlse"), {t.batch, t.heads, t.queries});
  Standalone alone(*t.spec, t.config(), t.options, Precision::fp64, kCpu);
  for (const auto& [path, parameter] : alone.parameters()) {
    // A little off the initial value, so that zeros and ones do not hide a term.
    Tensor value = clone(parameter->master);
    const NamedStream noise(1, cat("contract ", path));
    for (std::int64_t i = 0; i < value.numel(); ++i)
      value.data<double>()[i] += 0.01 * noise.normal(static_cast<std::uint64_t>(i));
    out.parameters[path] = value;
  }
  return out;
}

Tokens replaced(const Tokens& to, std::int64_t from, const Tokens& other) {
  Tokens out = to;
  const auto tail = [from](const Tensor& x, const Tensor& y, int axis) {
    if (!x.defined() || !y.defined() || from >= x.size(axis)) return x;
    Tensor mixed = clone(x);
    copy_host(mixed.slice(axis, from, x.size(axis)).view(),
              y.slice(axis, from, x.size(axis)).view());
    return mixed;
  };
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global}) {
    out.*part = tail(to.*part, other.*part, 2);
  }
  out.x = tail(to.x, other.x, 1);
  return out;
}

Tensor lengths_mask(const std::vector<std::int64_t>& lengths, std::int64_t n) {
  std::vector<double> valid;
  for (const std::int64_t length : lengths) {
    for (std::int64_t j = 0; j < n; ++j)
      valid.push_back(j < length ? 1 : 0);
  }
  return Tensor::from(valid, {static_cast<std::int64_t>(lengths.size()), n}, DType::u8);
}

Outcome run(const Trial& trial, const Tokens& tokens, const How& how) {
  Standalone alone(*trial.spec, trial.config(), trial.options, how.precision, kCpu);
  for (const auto& [name, parameter] : alone.parameters()) {
    const auto given = tokens.parameters.find(name);
    if (given != tokens.parameters.end()) alone.set(*parameter, given->second);
  }
  if (how.backward) alone.want_gradients();
  Stream stream(kCpu, how.threads);
  CachingAllocator memory(memory_source(kCpu));
  Tape tape;
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  ctx.tape = how.backward ? &tape : nullptr;
  ctx.training = how.training;
  ctx.precision = how.precision;
  ctx.seed = 1;
  alone.method().before_step(ctx, nn::Clock{});
  const DType dtype = compute_dtype(how.precision);
  AttentionInput in;
  in.q = leaf_of(tokens.q, dtype);
  in.k = leaf_of(tokens.k, dtype);
  in.v = leaf_of(tokens.v, dtype);
  in.x = leaf_of(tokens.x, dtype);
  in.q_global = leaf_of(tokens.q_global, dtype);
  in.k_global = leaf_of(tokens.k_global, dtype);
  in.v_global = leaf_of(tokens.v_global, dtype);
  in.bias = leaf_of(tokens.bias, dtype);
  in.q_unrotated = in.q;
  in.k_unrotated = in.k;
  in.key_valid = tokens.key_valid;
  in.query_valid = tokens.query_valid;
  in.segments = tokens.segments;
  const AttentionOutput out = alone.method().forward(ctx, in);

  Outcome result;
  keep(result, "o", out.o.value(), {});
  keep(result, "lse", out.lse.value(), {});
  keep(result, "aux", out.aux.value(), {});
  if (!how.backward) return result;
  const Var outputs[] = {out.o, out.lse, out.aux};
  const Tensor seeds[] = {seed_of(out.o, tokens.dout),
                          seed_of(out.lse, for_heads(tokens.dlse, out.lse.value())),
                          seed_of(out.aux, {})};
  tape.backward(ctx, outputs, seeds);
  const std::pair<const char*, const Var*> leaves[] = {{"grad.q", &in.q},
                                                       {"grad.k", &in.k},
                                                       {"grad.v", &in.v},
                                                       {"grad.x", &in.x},
                                                       {"grad.bias", &in.bias},
                                                       {"grad.q_global", &in.q_global},
                                                       {"grad.k_global", &in.k_global},
                                                       {"grad.v_global", &in.v_global}};
  for (const auto& [name, leaf_var] : leaves) {
    if (leaf_var->defined()) keep(result, name, leaf_var->grad()->value, leaf_var->value());
  }
  for (const auto& [name, parameter] : alone.parameters())
    keep(result, cat("grad.param.", name), parameter->grad->value, {});
  return result;
}

double loss_of(const Outcome& outcome, const Tokens& tokens) {
  double sum = 0;
  const auto add = [&sum](const Outcome& from, const char* name, const Tensor& weights) {
    const auto found = from.find(name);
    if (found == from.end()) return;
    const std::vector<double> values = found->second.values(), w = weights.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) sum += values[i] * w[i];
    }
  };
  add(outcome, "o", tokens.dout);
  const auto lse = outcome.find("lse");
  add(outcome, "lse", for_heads(tokens.dlse, lse != outcome.end() ? lse->second : Tensor{}));
  if (outcome.count("aux") != 0) sum += outcome.at("aux").item();
  return sum;
}

double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  double error = 0, size = 1e-2;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(y[i])) size = std::max(size, std::fabs(y[i]));
    if (x[i] == y[i]) continue;
    const double difference = std::fabs(x[i] - y[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    error = std::max(error, difference);
  }
  return error / size;
}

double differing(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  double count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    count += x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ? 0 : 1;
  return count;
}

double nonzero(const Tensor& a) {
  double count = 0;
  for (const double value : a.values())
    count += value == 0 ? 0 : 1;
  return count;
}

double nonfinite(const Tensor& a) {
  double count = 0;
  for (const double value : a.values())
    count += std::isfinite(value) ? 0 : 1;
  return count;
}

}  // namespace fovea::attention::contract
