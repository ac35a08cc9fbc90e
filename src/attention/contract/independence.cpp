// What must not matter, bit for bit: later tokens, padding, other samples, other heads, other
// segments.

#include <limits>

#include "attention/contract/checks.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

constexpr const char* kTokenGradients[] = {"grad.q",        "grad.k",        "grad.v",
                                           "grad.q_global", "grad.k_global", "grad.v_global"};

// Positions [from, to) of every token-wise part of an outcome; x counts them on axis 1.
Outcome positions(const Outcome& of, std::int64_t from, std::int64_t to) {
  Outcome out;
  for (const auto& [name, value] : of) {
    if (name.starts_with("grad.param.") || name == "grad.bias" || name == "aux") continue;
    out[name] = value.slice(name == "grad.x" ? 1 : 2, from, to);
  }
  return out;
}

Tensor sample_of(const Tensor& x, std::int64_t b) {
  return x.defined() ? x.slice(0, b, b + 1) : x;
}

Outcome sample_of(const Outcome& of, std::int64_t b) {
  Outcome out;
  for (const auto& [name, value] : of) {
    if (!name.starts_with("grad.param.") && name != "grad.bias" && name != "aux")
      out[name] = sample_of(value, b);
  }
  return out;
}

// [b, b+1) of every token tensor; positions [from, to).
Tokens part_of(const Tokens& t, std::int64_t b, std::int64_t from, std::int64_t to) {
  Tokens out = t;
  for (Tensor Tokens::*part :
       {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global, &Tokens::k_global, &Tokens::v_global,
        &Tokens::dout, &Tokens::dlse}) {
    out.*part = clone(sample_of(t.*part, b).slice(2, from, to));
  }
  out.x = clone(sample_of(t.x, b).slice(1, from, to));
  out.key_valid = out.query_valid = out.segments = Tensor{};
  return out;
}

// NaN in the queries, keys and values of sample 1 from position `from` on.
Tokens with_nan_behind(const Tokens& t, std::int64_t from) {
  Tokens out = t;
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global}) {
    out.*part = clone(t.*part);
    const Tensor tail = sample_of(out.*part, 1).slice(2, from, (t.*part).size(2));
    const std::vector<double> nan(static_cast<std::size_t>(tail.numel()),
                                  std::numeric_limits<double>::quiet_NaN());
    copy_host(tail.view(), Tensor::from(nan, tail.shape(), DType::f64).view());
  }
  return out;
}

Outcome parameters_of(Outcome of) {
  std::erase_if(of, [](const auto& part) { return !part.first.starts_with("grad.param."); });
  return of;
}

Outcome outputs_of(Outcome of) {
  std::erase_if(of, [](const auto& part) { return part.first.starts_with("grad."); });
  return of;
}

// Exact methods promise bits, a GPU those of outputs; others that sums of other lengths round
// alike. A GPU's products of other sizes may add in another order.
void add_invariance(Report& report, const Trial& form, const std::string& name,
                    const Outcome& found, const Outcome& expected) {
  const bool cpu = form.place == nullptr;
  if (!form.spec->caps.exact) {
    report.add(name, distance(found, expected), cpu ? 1e-6 : 1e-5);
  } else if (cpu) {
    report.add(cat(name, ", bit for bit"), differing(found, expected), 0);
  } else {
    report.add(cat(name, ", bit for bit"), differing(outputs_of(found), outputs_of(expected)), 0);
    report.add(cat(name, ", gradients"), distance(found, expected), 1e-5);
  }
}

}  // namespace

void check_causality(const Trial& form, Report& report) {
  const Trial trial = form.sized(130);
  const Tokens tokens = draw_tokens(trial), other = draw_tokens(trial, "future", 3);
  const How forward{.backward = false};
  const Outcome expected = run(trial, tokens, forward);
  double changed = 0, leaked = 0;
  for (const std::int64_t from : {1, 37, 64, 65, 129}) {
    const Outcome found = run(trial, replaced(tokens, from, other), forward);
    changed += differing(positions(found, 0, from), positions(expected, 0, from));
    Tokens past = tokens;  // only rows below `from` are asked for a gradient
    past.dout = clone(tokens.dout);
    past.dlse = clone(tokens.dlse);
    for (const Tensor& gradient : {past.dout, past.dlse}) {
      const Tensor late = gradient.slice(2, from, 130);
      const std::vector<double> zeros(static_cast<std::size_t>(late.numel()), 0.0);
      copy_host(late.view(), Tensor::from(zeros, late.shape(), DType::f64).view());
    }
    Outcome gradients = positions(run(trial, past), from, 130);
    gradients.erase("o");
    gradients.erase("lse");
    for (const auto& [name, value] : gradients)
      leaked += nonzero(value);
  }
  report.add("earlier outputs that a later token changes", changed, 0);
  report.add("later tokens that earlier outputs send a gradient", leaked, 0);
}

void check_padding(const Trial& form, Report& report) {
  if (!form.cross) {
    const std::int64_t length = 50, total = 97;
    const Trial trial = form.sized(total);
    const Tokens tokens = draw_tokens(trial);
    // Sample 1 holds nonsense behind its 50 tokens; alone it has none.
    Tokens padded = replaced(tokens, length, draw_tokens(trial, "nonsense", 1e4));
    copy_host(sample_of(padded.q, 0).view(), sample_of(tokens.q, 0).view());
    copy_host(sample_of(padded.k, 0).view(), sample_of(tokens.k, 0).view());
    padded.key_valid = lengths_mask({total, length}, total);
    Trial short_trial = form.sized(length);
    short_trial.batch = 1;
    const Outcome whole = run(trial, padded), found = sample_of(whole, 1);
    const Outcome alone = run(short_trial, part_of(tokens, 1, 0, length));
    add_invariance(report, form, "a padded sample equals itself alone", positions(found, 0, length),
                   sample_of(alone, 0));
    Outcome tail = positions(found, length, total);
    tail.erase("lse");
    double traces = 0;
    for (const auto& [name, value] : tail)
      traces += nonzero(value);
    report.add("padded positions whose output or gradient is not zero", traces, 0);
    // Gradients of padding, and of parameters, may meet what it holds times zero: finite, then.
    Tokens other = replaced(padded, length, draw_tokens(trial, "other nonsense", 100));
    for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::x, &Tokens::q_global,
                                 &Tokens::k_global, &Tokens::v_global}) {
      copy_host(sample_of(other.*part, 0).view(), sample_of(padded.*part, 0).view());
    }
    const Outcome hollow = run(trial, with_nan_behind(padded, length));
    report.add(
        "bits of real tokens that NaN in padding changes",
        differing(sample_of(hollow, 0), sample_of(whole, 0)) +
            differing(positions(sample_of(hollow, 1), 0, length), positions(found, 0, length)),
        0);
    report.add("bits of parameters' gradients that other padding changes",
               differing(parameters_of(run(trial, other)), parameters_of(whole)), 0);
  }
  Tokens hidden = draw_tokens(form);
  hidden.key_valid = lengths_mask({form.keys, 0}, form.keys);
  const Outcome empty = sample_of(run(form, hidden), 1);
  double traces = nonzero(empty.at("o"));
  for (const char* name : kTokenGradients)
    traces += nonzero(empty.at(name));
  report.add("a sample without keys: outputs or gradients that are not zero", traces, 0);
}

void check_segments(const Trial& form, Report& report) {
  const std::int64_t cut = 31, total = 70;
  Trial trial = form.sized(total);
  trial.batch = 1;
  Tokens packed = draw_tokens(trial);
  std::vector<double> ids(static_cast<std::size_t>(total), 0.0);
  for (std::int64_t i = cut; i < total; ++i)
    ids[static_cast<std::size_t>(i)] = 1;
  packed.segments = Tensor::from(ids, {1, total}, DType::i32);
  const Outcome together = run(trial, packed);
  if (form.spec->caps.anchored) {
    // Alone a segment would begin at another place; but what the others hold must not matter.
    const Tokens other = draw_tokens(trial, "other segment", 2);
    Tokens turned = replaced(other, cut, packed);
    turned.segments = packed.segments;
    turned.dout = packed.dout;
    turned.dlse = packed.dlse;
    const Outcome later = run(trial, replaced(packed, cut, other)), first = run(trial, turned);
    report.add("bits of a packed segment that another one changes",
               differing(positions(later, 0, cut), positions(together, 0, cut)) +
                   differing(positions(first, cut, total), positions(together, cut, total)),
               0);
    return;
  }
  double error = 0;
  for (const auto& [from, to] : {std::pair(std::int64_t{0}, cut), std::pair(cut, total)}) {
    Trial alone = form.sized(to - from);
    alone.batch = 1;
    error = std::max(error, distance(sample_of(run(alone, part_of(packed, 0, from, to)), 0),
                                     positions(together, from, to)));
  }
  report.add("packed segments equal their own runs", error, 1e-5);
}

void check_independence(const Trial& form, Report& report) {
  const Tokens tokens = draw_tokens(form), other = draw_tokens(form, "other", 2);
  const Outcome expected = run(form, tokens);
  Tokens neighbour = replaced(tokens, 0, other);
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::x, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global}) {
    copy_host(sample_of(neighbour.*part, 0).view(), sample_of(tokens.*part, 0).view());
  }
  report.add("bits of a sample that its neighbour changes",
             differing(sample_of(run(form, neighbour), 0), sample_of(expected, 0)), 0);

  if (form.spec->caps.mixes_heads) {
    report.skip("bits of a head that another head changes", "heads are mixed by design");
    return;
  }
  // The last key/value head and its query heads.
  const std::int64_t group = form.heads / form.kv_heads, first = form.heads - group;
  Tokens heads = tokens;
  for (const auto& [part, from] :
       {std::pair(&Tokens::q, first), std::pair(&Tokens::k, std::int64_t{form.kv_heads - 1}),
        std::pair(&Tokens::v, std::int64_t{form.kv_heads - 1})}) {
    heads.*part = clone(tokens.*part);
    const std::int64_t end = (tokens.*part).size(1);
    copy_host((heads.*part).slice(1, from, end).view(), (other.*part).slice(1, from, end).view());
  }
  // Gradients go back to other heads through parameters and x alone.
  const Outcome found = run(form, heads);
  double changed = 0;
  for (const auto& [name, end] :
       {std::pair("o", first), std::pair("grad.q", first), std::pair("grad.k", first / group),
        std::pair("grad.v", first / group)}) {
    changed += differing(found.at(name).slice(1, 0, end), expected.at(name).slice(1, 0, end));
  }
  report.add("bits of a head that another head changes", changed, 0);
}

}  // namespace fovea::attention::contract
