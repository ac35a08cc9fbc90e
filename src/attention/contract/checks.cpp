// The list of checks, and which a form of a method promises.

#include "attention/contract/checks.h"

#include <array>

namespace fovea::attention::contract {

namespace {

constexpr ContractPromise kYes{};
constexpr ContractPromise kOtherForm{.in_form = false};

ContractPromise if_so(bool promised, std::string_view why_not) {
  return promised ? kYes : ContractPromise{.promised = false, .why = why_not};
}

ContractPromise always(const Trial& /*form*/) {
  return kYes;
}

ContractPromise smooth(const Trial& form) {
  return if_so(form.spec->caps.smooth, "its gradients are no derivatives by design");
}

ContractPromise has_dense(const Trial& form) {
  const AttentionSpec& spec = *form.spec;
  return if_so(spec.caps.exact || !spec.dense_when.empty() || spec.definition != nullptr,
               "it has no definition to compare with");
}

ContractPromise takes_alibi(const Trial& form) {
  if (form.cross) return kOtherForm;
  const Capabilities& caps = form.spec->caps;
  const bool decays = caps.decay && form.causal && form.spec->definition != nullptr;
  return if_so(caps.bias || decays, "it takes no ALiBi");
}

ContractPromise convex(const Trial& form) {
  return if_so(form.spec->caps.convex, "its weights are not convex");
}

ContractPromise unordered(const Trial& form) {
  if (form.causal) return kOtherForm;
  return if_so(form.spec->caps.unordered, "where a token stands matters");
}

ContractPromise causal(const Trial& form) {
  if (!form.causal) return kOtherForm;
  return if_so(form.spec->caps.strict,
               "what a token sees follows from later tokens too, by design");
}

ContractPromise padding(const Trial& form) {
  return if_so(form.spec->caps.padding, "it takes none");
}

ContractPromise segments(const Trial& form) {
  return form.cross ? kOtherForm : if_so(form.spec->caps.segments, "it takes none");
}

ContractPromise decodes(const Trial& form) {
  return form.causal ? if_so(form.spec->caps.decode, "it has no decoding state") : kOtherForm;
}

ContractPromise grows_linearly(const Trial& form) {
  return if_so(is_linear(*form.spec, form.config(), form.options),
               "its cost is not linear in the number of tokens");
}

constexpr auto kChecks = std::to_array<Check>({
    {"grad",
     "Gradients are derivatives: central differences in f64, plain, padded, packed, biased "
     "and with dropout; on a GPU those of f32 are f64's.",
     smooth, check_gradients},
    {"dense",
     "It equals its definition by all pairs, or exact attention under the options that "
     "make it so.",
     has_dense, check_dense},
    {"alibi", "model.position: alibi is the bias, or the decay, of its formula.", takes_alibi,
     check_alibi},
    {"length", "Any length works, 1 and odd ones included, and is near f64.", always,
     check_lengths},
    {"mass", "Values of one make rows of one.", convex, check_mass},
    {"order", "Tokens in another order give the same rows in that order.", unordered, check_order},
    {"stress", "Large, small, zero and equal inputs stay finite, gradients too.", always,
     check_stress},
    {"dtype", "16 bit and f32 drift from f64 by no more than a bound.", always, check_precision},
    {"causal", "No bit of an earlier output or gradient depends on later tokens.", causal,
     check_causality},
    {"pad",
     "A padded sample is itself alone, whatever the padding holds; samples without a token "
     "are zero.",
     padding, check_padding},
    {"pack", "Packed segments do not see each other.", segments, check_segments},
    {"apart", "Samples and heads do not see each other, bit for bit.", always, check_independence},
    {"repeat", "A second run has the same bits, with more threads too.", always, check_determinism},
    {"resume",
     "Parameters and buffers are all there is to save: a method that gets them goes on "
     "bit for bit.",
     always, check_resume},
    {"decode", "A prompt and single tokens give the rows of one full pass.", decodes, check_decode},
    {"cost", "The formula of its FLOPs is what is counted.", always, check_cost},
    {"growth", "Memory and FLOPs grow as the number of tokens.", grows_linearly, check_growth},
});

}  // namespace

std::span<const Check> all_checks() {
  return kChecks;
}

}  // namespace fovea::attention::contract
