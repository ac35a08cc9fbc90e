// What a probe found, for people and for programs.

#include <cstdio>

#include "core/text.h"
#include "study/probe.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

std::string shown(double value, int digits = 3) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string columns(const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t width = i < 2 ? 6 : 10;
    out += std::string(width > cells[i].size() ? width - cells[i].size() : 1, ' ') + cells[i];
  }
  return out;
}

std::string row_of(int layer, std::size_t head, const HeadProbe& h) {
  return columns({cat(layer), cat(head), shown(h.score_err_rms), shown(h.oracle_rms),
                  shown(h.logit_gain), shown(h.eps_hat), shown(h.e0_hat), shown(h.attn_frobenius),
                  shown(h.bound_corrected), shown(h.lemma2_ratio()), shown(h.attn_tv),
                  shown(h.out_err), shown(h.entropy_dense), shown(h.entropy_spa)});
}

std::string speed_text(const ProbeSpeed& s) {
  std::string out = cat("  at most ", shown(s.forward_limit), " times as fast forward and ",
                        shown(s.backward_limit), " backward (products alone); ", shown(s.on_tokens),
                        " forward where S is multiplied to ", s.dense.queries, " tokens");
  if (s.forward_ms == 0) return out;
  return out + cat("\n  measured: ", shown(s.dense_forward_ms / s.forward_ms), " forward (",
                   shown(s.forward_ms), " ms), ", shown(s.dense_backward_ms / s.backward_ms),
                   " backward (", shown(s.backward_ms), " ms)");
}

std::string unbiased_text(const Unbiased& of) {
  if (!of.worst) return cat("whether E[S S^T] = I was not checked: ", of.why_none);
  return cat("mean of S S^T over ", of.seeds, " seeds: within ", shown(*of.worst),
             " standard errors of I");
}

std::string layer_text(const LayerProbe& layer) {
  const MatrixProbe& s = layer.heads.front().s;
  const HeadProbe& first = layer.heads.front();
  std::string out =
      cat("layer ", layer.layer, ": ", layer.s, ", ", s.entries, " entries, ", s.empty_rows,
          " empty rows, ", s.empty_columns, " empty columns, row energy ",
          shown(s.row_energy_least), " to ", shown(s.row_energy_most), "\n  rank ", s.rank,
          " (effective ", shown(s.effective_rank), "), S S^T - I: delta_2 ", shown(s.delta2),
          ", whole ", shown(s.delta_full), "; scores are ", shown(first.expected_gain),
          " times as large as dense ones if E[S S^T] = I");
  if (layer.unbiased) out += cat("\n  ", unbiased_text(*layer.unbiased));
  return cat(out, "\n", speed_text(layer.speed));
}

// What failed, or that nothing did.
std::string verdict(const ProbeResult& result) {
  std::vector<std::string> wrong;
  bool vacuous = true;
  for (const LayerProbe& layer : result.layers) {
    for (std::size_t i = 0; i < layer.heads.size(); ++i) {
      const HeadProbe& head = layer.heads[i];
      const std::string at = cat("layer ", layer.layer, " head ", i, ": ");
      vacuous = vacuous && head.vacuous();
      if (!head.softmax_is_half_lipschitz())
        wrong.push_back(cat(at, "Lemma 2's ratio is ", shown(head.lemma2_ratio()), " > 1/2"));
      if (!head.closed_form_agrees())
        wrong.push_back(cat(at, "the closed form of the error is ", shown(head.closed_rms, 9),
                            ", streamed ", shown(head.all_pairs_rms, 9)));
      if (!head.bounds_hold())
        wrong.push_back(
            cat(at, "|P - P~| is ", shown(head.attn_frobenius), ", above a bound that must hold"));
    }
    if (layer.unbiased && !layer.unbiased->holds())
      wrong.push_back(cat("layer ", layer.layer, ": the mean of S S^T is ",
                          shown(*layer.unbiased->worst), " standard errors from I, above ",
                          shown(layer.unbiased->bound)));
  }
  std::string out = wrong.empty()
                        ? "Lemma 2 (with 1/2), the closed form and both bounds hold in every head"
                        : cat("FAILED: ", join(wrong, "\nFAILED: "));
  if (vacuous) out += "; the corrected bound says nothing: it is above sqrt(2 N) everywhere";
  return out;
}

std::string range_json(const Range& range) {
  train::JsonObject out;
  return out.add("min", range.least).add("mean", range.mean).add("max", range.most).str();
}

std::string matrix_json(const MatrixProbe& s) {
  train::JsonObject out;
  out.add("nnz", s.entries).add("empty_rows", s.empty_rows).add("empty_columns", s.empty_columns);
  out.add("row_energy_min", s.row_energy_least).add("row_energy_max", s.row_energy_most);
  out.add("rank", s.rank).add("effective_rank", s.effective_rank);
  std::vector<std::string> values;
  for (const double x : s.singular)
    values.push_back(train::json_number(x));
  return out.raw("singular_values", cat("[", join(values, ","), "]")).str();
}

std::string head_json(int layer, std::size_t index, const HeadProbe& h) {
  train::JsonObject out;
  out.add("layer", layer).add("head", index);
  out.raw("q_norms", range_json(h.q_norms)).raw("k_norms", range_json(h.k_norms));
  out.add("q_frob", h.q_frobenius).add("k_frob", h.k_frobenius);
  out.add("score_err_rms", h.score_err_rms).add("score_err_max", h.score_err_max);
  out.add("score_bias", h.score_bias).add("logit_gain", h.logit_gain);
  out.add("expected_gain", h.expected_gain).add("score_err_rms_all", h.all_pairs_rms);
  out.add("score_err_rms_closed", h.closed_rms).add("oracle_rank_err", h.oracle_rms);
  out.add("scores_effective_rank", h.scores_effective_rank);
  out.add("eps_hat", h.eps_hat).add("e0_hat", h.e0_hat);
  out.add("attn_frob", h.attn_frobenius).add("attn_tv", h.attn_tv);
  out.add("logit_frob", h.logit_frobenius).add("lemma2_ratio", h.lemma2_ratio());
  out.add("bound_corrected", h.bound_corrected).add("bound_trivial", h.bound_trivial);
  out.add("C_implied", h.c_implied).add("vacuous", h.vacuous());
  out.add("delta2", h.s.delta2).add("delta_full", h.s.delta_full);
  out.add("delta_data", h.delta_data).add("out_err", h.out_err);
  out.add("entropy_dense", h.entropy_dense).add("entropy_spa", h.entropy_spa);
  return out.raw("S_stats", matrix_json(h.s)).str();
}

std::string speed_json(const ProbeSpeed& s) {
  train::JsonObject out;
  out.add("d_k", s.dense.qk_dim).add("d_v", s.dense.v_dim).add("d", s.projected);
  out.add("forward_limit", s.forward_limit).add("backward_limit", s.backward_limit);
  out.add("forward_limit_on_tokens", s.on_tokens).add("flops", s.flops);
  if (s.forward_ms == 0) return out.str();
  out.add("dense_forward_ms", s.dense_forward_ms).add("forward_ms", s.forward_ms);
  out.add("dense_backward_ms", s.dense_backward_ms).add("backward_ms", s.backward_ms);
  out.add("tflops", s.flops / s.forward_ms / 1e9);
  return out.add("dense_equiv_tflops", s.dense_flops / s.forward_ms / 1e9).str();
}

}  // namespace

std::string text_of(const ProbeResult& result) {
  std::string out = columns({"layer", "head", "score rms", "oracle", "gain", "eps", "e0", "|P-P~|",
                             "bound", "Lemma 2", "TV", "out err", "H dense", "H S"});
  for (const LayerProbe& layer : result.layers) {
    for (std::size_t i = 0; i < layer.heads.size(); ++i)
      out += cat("\n", row_of(layer.layer, i, layer.heads[i]));
  }
  for (const LayerProbe& layer : result.layers)
    out += cat("\n", layer_text(layer));
  const std::int64_t tokens = result.layers.front().speed.dense.queries;
  return cat(out, "\nTheorem 1 promises eps 0.5 for ", tokens,
             " tokens from d' = ", jl_dimension(tokens, 0.5), " on\n", verdict(result));
}

std::string heads_json(const ProbeResult& result) {
  std::vector<std::string> out;
  for (const LayerProbe& layer : result.layers) {
    for (std::size_t i = 0; i < layer.heads.size(); ++i)
      out.push_back(head_json(layer.layer, i, layer.heads[i]));
  }
  return cat("[", join(out, ","), "]");
}

std::string layers_json(const ProbeResult& result) {
  std::vector<std::string> out;
  for (const LayerProbe& layer : result.layers) {
    train::JsonObject one;
    one.add("layer", layer.layer).add("S", layer.s).raw("speed", speed_json(layer.speed));
    if (const auto& of = layer.unbiased) {
      one.add("seeds", of->seeds);
      if (of->worst)
        one.add("standard_errors", *of->worst).add("standard_errors_bound", of->bound);
      else
        one.raw("standard_errors", "null").add("not_checked", of->why_none);
    }
    out.push_back(one.str());
  }
  return cat("[", join(out, ","), "]");
}

}  // namespace fovea::study
