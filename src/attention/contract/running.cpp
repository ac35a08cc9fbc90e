// How a method runs: the same twice, token by token, and on from what was saved.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

// Decodes `counts` tokens at a time, as many of every sample, and returns the worst distance of
// their rows from `full`.
double decode_together(const Trial& trial, const Tokens& tokens, const Tensor& full,
                       Session& session, DecodeState& state) {
  double error = 0;
  std::int64_t from = 0;
  for (const std::int64_t count : {61, 1, 1, 1, 1, 4, 1}) {
    const AttentionOutput out =
        session.method().step(session.ctx(), state, session.input(tokens, from, from + count));
    error = std::max(error,
                     distance(session.fetched(out.o.value()), full.slice(2, from, from + count)));
    from += count;
  }
  FOVEA_ASSERT(from == trial.queries);
  return error;
}

// Tokens [from[b], from[b] + count) of every sample b.
Tokens tokens_at(const Tokens& t, const std::vector<std::int64_t>& from, std::int64_t count) {
  Tokens out;
  const auto cut = [&](const Tensor& x, int axis) {
    Shape shape = x.shape();
    shape[axis] = count;
    Tensor made = Tensor::empty(shape, x.dtype(), kCpu);
    for (std::size_t b = 0; b < from.size(); ++b) {
      const auto sample = static_cast<std::int64_t>(b);
      copy_host(made.slice(0, sample, sample + 1).view(),
                x.slice(0, sample, sample + 1).slice(axis, from[b], from[b] + count).view());
    }
    return made;
  };
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global}) {
    out.*part = cut(t.*part, 2);
  }
  out.x = cut(t.x, 1);
  return out;
}

// Prompts of other lengths in one batch, then single tokens: the worst distance from `full`.
double decode_apart(const Tokens& tokens, const Tensor& full, Session& session,
                    DecodeState& state) {
  constexpr std::int64_t kPrompt = 41;
  std::vector<std::int64_t> lengths = {kPrompt, 23};
  Tokens prompt = tokens_at(tokens, {0, 0}, kPrompt);
  prompt.key_valid = lengths_mask(lengths, kPrompt);
  double error = 0;
  const auto compare = [&](const Tensor& o, std::size_t b, std::int64_t from, std::int64_t count) {
    const auto sample = static_cast<std::int64_t>(b);
    error =
        std::max(error, distance(o.slice(0, sample, sample + 1).slice(2, 0, count),
                                 full.slice(0, sample, sample + 1).slice(2, from, from + count)));
  };
  const auto step = [&](const Tokens& next) {
    const AttentionInput in = session.input(next, /*with_gradients=*/false);
    return session.fetched(session.method().step(session.ctx(), state, in).o.value());
  };
  const Tensor first = step(prompt);
  for (std::size_t b = 0; b < lengths.size(); ++b)
    compare(first, b, 0, lengths[b]);
  for (int count = 0; count < 3; ++count) {
    const Tensor o = step(tokens_at(tokens, lengths, 1));
    for (std::size_t b = 0; b < lengths.size(); ++b)
      compare(o, b, lengths[b]++, 1);
  }
  return error;
}

// Copies of what a checkpoint holds.
struct Saved {
  std::vector<Tensor> parameters, buffers;
};

Saved saved_of(Session& session) {
  Saved out;
  for (nn::Parameter* parameter : session.method().parameters())
    out.parameters.push_back(session.fetched(parameter->master));
  for (nn::Buffer* buffer : session.method().buffers())
    out.buffers.push_back(clone(buffer->value.to(kCpu, session.ctx().stream)));
  return out;
}

void restore(Session& session, const Saved& saved) {
  std::size_t i = 0;
  for (nn::Parameter* parameter : session.method().parameters())
    session.alone().set(*parameter, saved.parameters.at(i++));
  i = 0;
  for (nn::Buffer* buffer : session.method().buffers())
    transfer(buffer->value, saved.buffers.at(i++), session.ctx().stream);
}

}  // namespace

void check_determinism(const Trial& form, Report& report) {
  Trial trial = form.sized(130);
  trial.dropout = form.spec->caps.dropout ? 0.1 : 0;
  const Tokens tokens = draw_tokens(trial);
  const Outcome once = run(trial, tokens, {.training = true});
  report.add("bits that differ in a second run",
             differing(run(trial, tokens, {.training = true}), once), 0);
  if (form.place != nullptr) return;  // threads are the CPU's
  report.add("bits that differ with 3 threads",
             differing(run(trial, tokens, {.threads = 3, .training = true}), once), 0);
}

// Training goes on from a checkpoint behind step kSaved with the bits of the run that wrote it, and
// so does evaluation, which calls no hook.
void check_resume(const Trial& form, Report& report) {
  constexpr std::int64_t kLast = 3001, kMost = 10000;
  Trial trial = form.sized(33);
  trial.dropout = form.spec->caps.dropout ? 0.1 : 0;
  const Tokens tokens = draw_tokens(trial);
  const How training{.training = true};
  const auto begin = [&](Session& session, std::int64_t step) {
    session.method().before_step(session.ctx(), {.step = step, .max_steps = kMost});
  };
  const auto evaluated = [&](Session& session) {
    session.ctx().training = false;
    return session.outcome(tokens);
  };
  Session whole(trial, tokens, training);
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1}, kLast - 1}) {
    begin(whole, step);
    whole.method().forward(whole.ctx(), whole.input(tokens, /*with_gradients=*/false));
    whole.method().after_step(whole.ctx(), {.step = step + 1, .max_steps = kMost});
  }
  const Saved saved = saved_of(whole);
  begin(whole, kLast);
  const Outcome expected = whole.outcome(tokens);

  Session resumed(trial, tokens, training);
  restore(resumed, saved);
  begin(resumed, kLast);
  report.add("bits that differ after a restart", differing(resumed.outcome(tokens), expected), 0);

  Session second(trial, tokens, training), third(trial, tokens, training);
  restore(second, saved_of(whole));
  restore(third, saved_of(whole));
  third.ctx().seed = 2;  // what was drawn is in the buffers
  const Outcome loaded = evaluated(second);
  report.add(
      "bits that differ in an evaluation of what was saved",
      differing(loaded.at("o"), evaluated(whole).at("o")) + differing(loaded, evaluated(third)), 0);
}

void check_decode(const Trial& form, Report& report) {
  const Trial trial = form.sized(70);
  const Tokens tokens = draw_tokens(trial);
  const How forward{.backward = false};
  const Tensor full = run(trial, tokens, forward).at("o");
  Session session(trial, tokens, forward);
  const auto start = [&] {
    return session.method().start(session.ctx(), static_cast<int>(trial.batch), 70);
  };
  const std::unique_ptr<DecodeState> state = start(), ragged = start();
  if (state == nullptr || ragged == nullptr)
    return report.fail("decoding equals a full pass",
                       "caps.decode is set, but start() gave no state");
  const double bound = form.spec->caps.exact ? 1e-5 : 1e-4;
  const auto note = [](double error) { return error == 0 ? "bit for bit" : ""; };
  const double together = decode_together(trial, tokens, full, session, *state);
  report.add("decoding equals a full pass", together, bound, note(together));
  report.add("tokens the state has lost", std::fabs(static_cast<double>(state->length() - 70)), 0);
  if (!form.spec->caps.padding) return;
  const double apart = decode_apart(tokens, full, session, *ragged);
  report.add("decoding after prompts of other lengths equals a full pass", apart, bound,
             note(apart));
}

}  // namespace fovea::attention::contract
