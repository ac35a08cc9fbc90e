#include "attention/contract/trial.h"

#include <cmath>
#include <limits>

#include "attention/contract/named_inputs.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention::contract {

AttentionConfig Trial::config() const {
  AttentionConfig out;
  out.n_embd = heads * v_dim;
  out.n_head = heads;
  out.n_kv_head = kv_heads;
  out.qk_dim = qk_dim;
  out.v_dim = v_dim;
  out.max_len = max_len;
  out.causal = causal;
  out.cross = cross;
  out.packed = packed;
  out.dropout = dropout;
  out.position = position;
  return out;
}

AttentionConfig Trial::projected() const {
  return as_projected(*spec, config(), config::complete(options, spec->options, "model.attention"));
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

// Of a log-sum-exp with fewer heads than the queries: of its heads.
Tensor for_heads(const Tensor& dlse, const Tensor& lse) {
  const bool fewer = dlse.defined() && lse.defined() && lse.size(1) < dlse.size(1);
  return fewer ? clone(dlse.slice(1, 0, lse.size(1))) : dlse;
}

std::shared_ptr<Place> place_of(const Trial& trial, const How& how) {
  if (trial.place != nullptr && how.precision != Precision::fp64) return trial.place;
  return std::make_shared<Place>(kCpu, how.threads);
}

}  // namespace

std::string refusal_of(const Trial& trial) {
  try {
    const Standalone built(*trial.spec, trial.projected(), trial.options, Precision::fp32, kCpu);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

Trial with_width(Trial trial, int width) {
  Trial out = trial;
  for (const int other : {width, 4, 8, 16, 32, 64, 128, 12, 24, 48, 96}) {
    out.qk_dim = out.v_dim = other;
    if (refusal_of(out).empty()) return out;
  }
  return trial;
}

Tensor clone(const Tensor& x) {
  if (!x.defined()) return {};
  Tensor out = Tensor::empty(x.shape(), x.dtype(), kCpu);
  copy_host(out.view(), x.view());
  return out;
}

Tokens draw_tokens(const Trial& t, const std::string& name, double size) {
  Tokens out;
  const AttentionConfig made = t.projected();
  const auto stream = [&](const char* part) { return cat("contract ", name, " ", part); };
  out.q = draw(stream("q"), {t.batch, t.heads, t.queries, made.qk_dim}, size);
  out.k = draw(stream("k"), {t.batch, t.kv_heads, t.keys, made.qk_dim}, size);
  out.v = draw(stream("v"), {t.batch, t.kv_heads, t.keys, made.v_dim});
  out.x = draw(stream("x"), {t.batch, t.queries, std::int64_t{t.heads} * t.v_dim});
  out.q_global = draw(stream("q_global"), out.q.shape(), size);
  out.k_global = draw(stream("k_global"), out.k.shape(), size);
  out.v_global = draw(stream("v_global"), out.v.shape());
  out.dout = draw(stream("dout"), {t.batch, t.heads, t.queries, made.v_dim});
  out.dlse = draw(stream("dlse"), {t.batch, t.heads, t.queries});
  Standalone alone(*t.spec, made, t.options, Precision::fp64, kCpu);
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

Session::Session(const Trial& trial, const Tokens& tokens, const How& how)
    : how_(how),
      place_(place_of(trial, how)),
      alone_(*trial.spec, trial.projected(), trial.options, how.precision, place_->device()),
      ctx_{.device = place_->device(), .stream = place_->stream, .activations = place_->memory} {
  for (const auto& [name, parameter] : alone_.parameters()) {
    const auto given = tokens.parameters.find(name);
    if (given != tokens.parameters.end()) alone_.set(*parameter, given->second);
  }
  if (how.backward) alone_.want_gradients();
  if (ctx_.device.is_cuda()) ctx_.stream.set_tf32(how.precision == Precision::tf32);
  ctx_.training = how.training;
  ctx_.precision = how.precision;
  ctx_.seed = 1;
  method().before_step(ctx_, nn::Clock{});
}

Tensor Session::placed(const Tensor& x, DType dtype) {
  if (!x.defined()) return {};
  const Tensor made = Tensor::empty(x.shape(), dtype, kCpu);
  copy_host(made.view(), x.view());
  return ctx_.device.is_cpu() ? made : made.to(ctx_.device, ctx_.stream);
}

AttentionInput Session::input(const Tokens& tokens, bool with_gradients) {
  const DType dtype = compute_dtype(how_.precision);
  const auto var = [&](const Tensor& x) {
    const Tensor value = placed(x, dtype);
    return !value.defined() ? Var() : with_gradients ? leaf(value) : Var(value);
  };
  AttentionInput in;
  in.q = var(tokens.q);
  in.k = var(tokens.k);
  in.v = var(tokens.v);
  in.x = var(tokens.x);
  in.q_global = var(tokens.q_global);
  in.k_global = var(tokens.k_global);
  in.v_global = var(tokens.v_global);
  in.bias = var(tokens.bias);
  in.q_unrotated = in.q;
  in.k_unrotated = in.k;
  in.key_valid = placed(tokens.key_valid, DType::u8);
  in.query_valid = placed(tokens.query_valid, DType::u8);
  in.segments = placed(tokens.segments, DType::i32);
  return in;
}

AttentionInput Session::input(const Tokens& tokens, std::int64_t from, std::int64_t to) {
  Tokens part;
  for (Tensor Tokens::*one : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global,
                              &Tokens::k_global, &Tokens::v_global}) {
    part.*one = (tokens.*one).slice(2, from, to);
  }
  part.x = tokens.x.slice(1, from, to);
  return input(part, /*with_gradients=*/false);
}

Tensor Session::fetched(const Tensor& x) {
  const Tensor near =
      x.device().is_cpu() ? x : contiguous(ctx_, x, "fetched").to(kCpu, ctx_.stream);
  Tensor out = Tensor::empty(x.shape(), DType::f64, kCpu);
  copy_host(out.view(), near.view());
  return out;
}

Tensor Session::seed_of(const Var& output, const Tensor& gradient) {
  if (!output.defined() || !output.requires_grad()) return {};
  if (gradient.defined()) return placed(gradient, output.dtype());
  const std::vector<double> ones(static_cast<std::size_t>(output.shape().numel()), 1.0);
  return placed(Tensor::from(ones, output.shape(), DType::f64), output.dtype());
}

void Session::keep(Outcome& into, const std::string& name, const Tensor& value,
                   const Tensor& like) {
  if (value.defined())
    into[name] = fetched(value);
  else if (like.defined())
    into[name] = Tensor::from(std::vector<double>(static_cast<std::size_t>(like.numel()), 0.0),
                              like.shape(), DType::f64);
}

Outcome Session::outcome(const Tokens& tokens) {
  Tape tape;
  ctx_.tape = how_.backward ? &tape : nullptr;
  const AttentionInput in = input(tokens, /*with_gradients=*/true);
  const AttentionOutput out = method().forward(ctx_, in);
  Outcome result;
  keep(result, "o", out.o.value(), {});
  keep(result, "lse", out.lse.value(), {});
  keep(result, "aux", out.aux.value(), {});
  if (how_.backward) {
    const Var outputs[] = {out.o, out.lse, out.aux};
    const Tensor seeds[] = {seed_of(out.o, tokens.dout),
                            seed_of(out.lse, for_heads(tokens.dlse, out.lse.value())),
                            seed_of(out.aux, {})};
    tape.backward(ctx_, outputs, seeds);
    for (const auto& [gradient, input] : kNamedInputs) {
      const Var& leaf_var = in.*input;
      if (leaf_var.defined())
        keep(result, std::string(gradient), leaf_var.grad()->value, leaf_var.value());
    }
    for (const auto& [name, parameter] : alone_.parameters())
      keep(result, cat("grad.param.", name), parameter->grad->value, {});
  }
  ctx_.tape = nullptr;
  return result;
}

Outcome run(const Trial& trial, const Tokens& tokens, const How& how) {
  return Session(trial, tokens, how).outcome(tokens);
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

double distance(const Outcome& a, const Outcome& b) {
  double error = 0;
  for (const auto& [name, value] : b)
    error = std::max(error, distance(a.at(name), value));
  return error;
}

double differing(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  double count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    count += x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ? 0 : 1;
  return count;
}

double differing(const Outcome& a, const Outcome& b) {
  double count = 0;
  for (const auto& [name, value] : b)
    count += differing(a.at(name), value);
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
