// The table of SPA's options, and what they leave of its capabilities.

#include "attention/exact/exact_operator.h"
#include "attention/spa/schedule.h"
#include "attention/spa/settings.h"

namespace fovea::attention::spa {

namespace {

using config::Type;

constexpr config::Option kOptions[] = {
    {"pattern", Type::choice, "random_exact",
     "random_iid | random_exact | block | banded | hierarchical | conv | identity | learn | given",
     "Where S has entries: a fixed pattern; learned (see learn_mode); or a dense trained S "
     "(given). A fixed S asks for a lower learning rate of the projections: Adam may move W S by "
     "that of W times the absolute sum of a column of S, about 5 for random_iid with s = 5 and 64 "
     "features to 32. In configs/studies/spa_rates_books.yaml optim.lr_scale: "
     "{'*.attn.qkv.weight': 0.125} closed most of the gap to standard attention."},
    {"proj_dim", Type::integer, "32", "[1, 65536]",
     "d': the columns of S. For scope model of all heads together, a multiple of them."},
    {"proj_scope", Type::choice, "layer", "layer | head | model | single",
     "What S acts on: every head of a layer; one S for each key/value head; all heads side by side "
     "before they are cut; the same with one attention map for all."},
    {"proj_dims", Type::numbers, "", "[1, 65536]",
     "d' of each key/value head, for scope head and fixed patterns: narrower ones are filled up "
     "with "
     "empty columns and keep the scale of their own width."},
    {"score_scale", Type::choice, "inv_sqrt_dprime", "inv_sqrt_dprime | inv_sqrt_dk | value",
     "Of the scores: 1 / sqrt of a projected head's width (published), of the width before S "
     "(unbiased: for converted models), or scale_value."},
    {"scale_value", Type::number, "", "(0, inf)", "The scale of score_scale: value."},
    {"rope_site", Type::choice, "after_proj", "after_proj | before_proj",
     "Which comes first where model.position is rope: rotating the projected vector, S folds into "
     "the weights; rotating before S, it cannot."},
    {"gate", Type::choice, "none", "none | output | score | proj | logit | blend",
     "A learned factor of every head: of its output, its scores or its S; a shift of its mask's "
     "logits; or of S beside dense scores (blend: for analysis, wider than dense)."},
    {"s", Type::number, "5", "[1, inf)",
     "random_iid, random_exact: one entry in s is not zero; 5, 10, 20 for 80, 90, 95 %."},
    {"balance", Type::choice, "deck", "deck | none",
     "random_exact: whether columns are loaded equally."},
    {"b_r", Type::integer, "8", "[1, 65536]", "block: features of a block."},
    {"b_c", Type::integer, "8", "[1, 65536]", "block: columns of a block."},
    {"sparsity", Type::number, "0.8", "[0, 1)", "block: aimed at."},
    {"block_mode", Type::choice, "exact", "exact | bernoulli",
     "block: as many in every row of blocks, or each by chance."},
    {"w", Type::integer, "16", "[1, 65536]", "banded, conv: features of a column."},
    {"clip", Type::boolean, "false", "",
     "banded: bands end at the ends instead of wrapping around."},
    {"w_is_half_band", Type::boolean, "false", "",
     "banded: w features on either side of the middle one."},
    {"levels", Type::integer, "3", "[1, 8]", "hierarchical: levels of groups."},
    {"value_dist", Type::choice, "rademacher", "rademacher | gaussian",
     "Entries: of one size with random signs, or normal."},
    {"feature_perm", Type::boolean, "false", "",
     "Whether a fixed random order of the features comes first."},
    {"learn_mode", Type::choice, "concrete_st",
     "concrete | concrete_st | hard_concrete | magnitude",
     "learn: a relaxed mask; a hard one with the gradient of the relaxed; stretched and clipped, "
     "for a true count; or magnitude pruning. Masks that are drawn stay coin flips, and a noise in "
     "training, until their logits have moved far, which takes thousands of steps at the learning "
     "rate of the weights. optim.lr_scale: {'*.method.G': 100} gives the logits a faster one (with "
     "lambda0: 0, since the penalty gets faster too); magnitude suits short runs."},
    {"lambda0", Type::number, "1e-5", "[0, inf)",
     "learn: weight of the expected number of entries in the loss, summed over all S. Above 1e-4 S "
     "is known to collapse; where the loss learns nothing from attention any penalty closes all "
     "masks, since Adam's steps do not shrink with it."},
    {"tau", Type::number, "", "(0, inf)",
     "learn: a fixed temperature; by default it falls from 1 to tau_min."},
    {"tau_min", Type::number, "0.1", "(0, 1]", "learn: the last temperature."},
    {"tau_schedule", Type::choice, "exponential", "exponential | linear",
     "learn: how the temperature falls."},
    {"tau_steps", Type::number, "", "(0, inf)",
     "learn: steps until the last temperature; by default 0.8 of the run."},
    {"rho", Type::number, "0.8", "[0, 1)", "learn: the sparsity that pruning ends at."},
    {"prune_every", Type::integer, "100", "[0, inf)",
     "learn: steps between prunings (published: 1); 0: never, S starts at its density."},
    {"t0", Type::number, "", "[0, inf)",
     "learn: the step from which sparsity rises; by default the learning rate's warm-up."},
    {"t1", Type::number, "", "[0, inf)",
     "learn: the step at which it is rho; by default half of the run."},
    {"min_per_row", Type::integer, "0", "[0, 65536]",
     "learn: entries that pruning leaves every feature, whatever rho; at most proj_dim."},
    {"dense_shadow", Type::boolean, "true", "",
     "learn: pruned entries keep getting gradients and may come back; without, they are zero until "
     "regrown."},
    {"regrow", Type::choice, "none", "none | grad | random",
     "learn: what replaces the smallest entries after pruning: those with the largest gradients, "
     "or random ones."},
    {"regrow_fraction", Type::number, "0.3", "[0, 1]",
     "learn: the share that is replaced at first; it falls to 0 at regrow_end."},
    {"regrow_end", Type::number, "", "(0, inf)",
     "learn: the step from which nothing is replaced; by default 0.75 of the run."},
    {"decay", Type::boolean, "false", "", "learn, given: whether S's weights decay."},
    kExactKernelOption,
};

// Capabilities::note of scopes that mix heads, and of a learned S whose schedules follow from the
// length of the run.
constexpr std::string_view
    kWholeNote = "proj_scope model and single project queries and keys of all heads together",
    kLearnedNote = "a learned S takes tau_steps (or tau), t1 and, where it regrows, regrow_end",
    kWholeLearnedNote =
        "proj_scope model and single project queries and keys of all heads together; a learned S "
        "takes tau_steps (or tau), t1 and, where it regrows, regrow_end";

}  // namespace

std::span<const config::Option> option_table() {
  return kOptions;
}

Capabilities capabilities_with(Capabilities out, const config::Node& options) {
  const std::string scope = options.get_string("proj_scope");
  if (scope == "model" || scope == "single") {
    out.gqa = false;
    out.mixes_heads = true;
    out.note = kWholeNote;
  }
  if (scope == "single") out.bias = false;
  out.convex = options.get_string("gate") != "output";
  if (options.get_string("pattern") != "learn") return out;
  out.scheduled = !due_without_length(read_learn(options)).empty();
  if (out.scheduled) out.note = out.mixes_heads ? kWholeLearnedNote : kLearnedNote;
  const std::string mode = options.get_string("learn_mode");
  // Straight-through: hard masks, and pruned entries that get gradients.
  out.smooth = mode != "concrete_st" && !options.get_bool("dense_shadow");
  return out;
}

}  // namespace fovea::attention::spa
