// Linformer by its formulas, for the checks: a row's keys and values written out, then softmax.

#include "attention/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/linformer/linformer.h"

namespace fovea::attention {

namespace {

using Row = std::vector<double>;

// The tokens of one sample and key/value head, and the maps that it has.
struct Head {
  const double *k, *v;
  const double* valid;  // null: all
  std::int64_t qk_dim, v_dim;
  const double *e, *f;
  std::int64_t slots, columns;
  bool renormalise;

  bool real(std::int64_t token) const { return valid == nullptr || valid[token] != 0; }

  // The slot r of `map`, over tokens [from, to), whose columns begin with the map's first.
  Row slot(const double* map, const double* rows, std::int64_t width, std::int64_t r,
           std::int64_t from, std::int64_t to) const {
    Row out(static_cast<std::size_t>(width), 0.0);
    double all = 0, held = 0;
    for (std::int64_t at = 0; at < columns; ++at)
      all += std::fabs(map[r * columns + at]);
    for (std::int64_t j = from; j < to; ++j) {
      if (!real(j)) continue;
      const double weight = map[r * columns + j - from];
      held += std::fabs(weight);
      for (std::int64_t c = 0; c < width; ++c)
        out[static_cast<std::size_t>(c)] += weight * rows[j * width + c];
    }
    if (!renormalise) return out;
    for (double& x : out)
      x *= held == 0 ? 0 : all / held;
    return out;
  }
};

// What a query sees.
struct Seen {
  std::vector<Row> keys, values;

  void add_slots(const Head& head, std::int64_t from, std::int64_t to) {
    for (std::int64_t r = 0; r < head.slots; ++r) {
      keys.push_back(head.slot(head.e, head.k, head.qk_dim, r, from, to));
      values.push_back(head.slot(head.f, head.v, head.v_dim, r, from, to));
    }
  }
  void add_token(const Head& head, std::int64_t j) {
    if (!head.real(j)) return;
    keys.emplace_back(head.k + j * head.qk_dim, head.k + (j + 1) * head.qk_dim);
    values.emplace_back(head.v + j * head.v_dim, head.v + (j + 1) * head.v_dim);
  }

  void attend(const double* q, double scale, double* o) const {
    if (keys.empty()) return;
    std::vector<double> scores;
    for (const Row& key : keys) {
      double sum = 0;
      for (std::size_t c = 0; c < key.size(); ++c)
        sum += q[c] * key[c];
      scores.push_back(scale * sum);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double mass = 0;
    for (double& score : scores)
      mass += score = std::exp(score - most);
    for (std::size_t at = 0; at < scores.size(); ++at) {
      for (std::size_t c = 0; c < values[at].size(); ++c)
        o[c] += scores[at] / mass * values[at][c];
    }
  }
};

// The slots of whole blocks before the query's window that hold a real token, and its window.
Seen seen_by_blocks(const Head& head, const LinformerSettings& settings, std::int64_t query) {
  const std::int64_t c = settings.block;
  const std::int64_t window = std::max<std::int64_t>(0, query / c - settings.window_blocks);
  Seen seen;
  for (std::int64_t block = 0; block < window; ++block) {
    bool any = false;
    for (std::int64_t j = block * c; j < (block + 1) * c; ++j)
      any = any || head.real(j);
    if (any) seen.add_slots(head, block * c, (block + 1) * c);
  }
  for (std::int64_t j = window * c; j <= query; ++j)
    seen.add_token(head, j);
  return seen;
}

}  // namespace

Tensor linformer_definition(Attention& method, const AttentionConfig& config,
                            const LinformerSettings& settings, LinformerForm form,
                            const AttentionInput& in) {
  const std::int64_t batch = in.q.size(0), heads = in.q.size(1), queries = in.q.size(2),
                     kv_heads = in.k.size(1), keys = in.k.size(2), d = in.q.size(3),
                     dv = in.v.size(3);
  const std::vector<double> q = in.q.value().values(), k = in.k.value().values(),
                            v = in.v.value().values(), e = values_of(method, "E");
  std::vector<double> f = values_of(method, "F");
  if (f.empty()) f = e;
  const auto masked = [](const Tensor& mask) {
    return mask.defined() ? mask.values() : std::vector<double>();
  };
  const std::vector<double> valid = masked(in.key_valid);
  const std::vector<double> asked =
      in.query_valid.defined() || config.cross ? masked(in.query_valid) : valid;
  const double scale = settings.scale > 0 ? settings.scale : 1 / std::sqrt(static_cast<double>(d));
  const std::int64_t slots = form == LinformerForm::block ? settings.block_rank : settings.rank,
                     columns = form == LinformerForm::block ? settings.block : settings.max_len;
  const bool own_maps = settings.share == LinformerShare::none;
  Tensor out =
      Tensor::from(std::vector<double>(static_cast<std::size_t>(batch * heads * queries * dv), 0.0),
                   {batch, heads, queries, dv}, DType::f64);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t own = h / (heads / kv_heads), first = (b * kv_heads + own) * keys;
      const std::int64_t map = own_maps ? own * slots * columns : 0;
      const Head head{k.data() + first * d,
                      v.data() + first * dv,
                      valid.empty() ? nullptr : valid.data() + b * keys,
                      d,
                      dv,
                      e.data() + map,
                      f.data() + map,
                      slots,
                      columns,
                      settings.renormalise};
      Seen all;  // of the bidirectional form: the same for every query
      if (form == LinformerForm::bidirectional) all.add_slots(head, 0, keys);
      for (std::int64_t i = 0; i < queries; ++i) {
        if (!asked.empty() && asked[static_cast<std::size_t>(b * queries + i)] == 0) continue;
        Seen own_seen;
        if (form == LinformerForm::block) own_seen = seen_by_blocks(head, settings, i);
        if (form == LinformerForm::prefix) own_seen.add_slots(head, 0, i + 1);
        const std::int64_t row = (b * heads + h) * queries + i;
        (form == LinformerForm::bidirectional ? all : own_seen)
            .attend(q.data() + row * d, scale, out.data<double>() + row * dv);
      }
    }
  }
  return out;
}

}  // namespace fovea::attention
