#include "attention/spa/definition.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/definition.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

// One matrix S of the method, [in, out], as a key/value head has it.
class Matrices {
 public:
  Matrices(Attention& method, const AttentionConfig& config, const config::Node& options)
      : by_head_(options.get_string("proj_scope") == "head"),
        mode_(options.get_string("learn_mode")),
        s_(values_of(method, "S")),
        w_(values_of(method, "W")),
        g_(values_of(method, "G")),
        m_(values_of(method, "M")),
        shift_(values_of(method, "b")) {
    const std::string scope = options.get_string("proj_scope");
    whole_ = scope == "model" || scope == "single";
    in_ = whole_ ? config.n_head * config.qk_dim : config.qk_dim;
    const std::size_t all = std::max(s_.size(), w_.size());
    out_ = static_cast<int>(all) / in_ / (by_head_ ? config.n_kv_head : 1);
  }
  int in() const { return in_; }
  int out() const { return out_; }
  bool whole() const { return whole_; }

  double at(std::int64_t kv_head, int row, int column) const {
    const std::int64_t first = by_head_ ? kv_head * in_ * out_ : 0;
    const auto i = static_cast<std::size_t>(first + std::int64_t{row} * out_ + column);
    if (w_.empty()) return s_[i];
    if (mode_ == "magnitude") return m_[i] * w_[i];
    const double logit = g_[i] + (shift_.empty() ? 0 : shift_[static_cast<std::size_t>(kv_head)]);
    const double mask = mode_ == "hard_concrete" ? std::clamp(1.2 * logistic(logit) - 0.1, 0.0, 1.0)
                        : logit > 0              ? 1.0
                                                 : 0.0;
    return m_[i] * mask * w_[i];
  }

 private:
  bool by_head_, whole_ = false;
  std::string mode_;
  std::vector<double> s_, w_, g_, m_, shift_;
  int in_ = 0, out_ = 0;
};

// alpha of every key/value head: d' is what one of its query heads compares.
std::vector<double> alphas(const AttentionConfig& config, const config::Node& options,
                           const Matrices& s) {
  const std::string rule = options.get_string("score_scale"),
                    scope = options.get_string("proj_scope");
  const auto heads = static_cast<std::size_t>(config.n_kv_head);
  if (rule == "value") return std::vector<double>(heads, options.get_number("scale_value"));
  double width = scope == "model" ? s.out() / config.n_head : s.out();
  if (rule == "inv_sqrt_dk") width = scope == "single" ? s.in() : config.qk_dim;
  std::vector<double> out(heads, width);
  if (rule == "inv_sqrt_dprime" && options.find("proj_dims") != nullptr)
    out = options.get_numbers("proj_dims");
  for (double& x : out)
    x = 1 / std::sqrt(x);
  return out;
}

double dot(const double* a, const double* b, int count) {
  double out = 0;
  for (int c = 0; c < count; ++c)
    out += a[c] * b[c];
  return out;
}

// x S of every token, [B,heads,N,d']; S of key/value head h / group.
std::vector<double> projected(const Tensor& x, const Matrices& s, std::int64_t group) {
  const std::vector<double> values = x.values();
  const std::int64_t heads = x.size(1), tokens = x.size(2), width = x.size(3);
  std::vector<double> out;
  for (std::int64_t i = 0; i < x.size(0) * heads * tokens; ++i) {
    const std::int64_t token = i % tokens, head = i / tokens % heads, batch = i / tokens / heads;
    for (int column = 0; column < s.out(); ++column) {
      double sum = 0;
      for (int row = 0; row < s.in(); ++row) {
        const std::int64_t of = s.whole() ? row / width : head;
        const std::int64_t at = ((batch * heads + of) * tokens + token) * width + row % width;
        sum += values[static_cast<std::size_t>(at)] * s.at(head / group, row, column);
      }
      out.push_back(sum);
    }
  }
  return out;
}

}  // namespace

Tensor by_definition(Attention& method, const AttentionConfig& config, const config::Node& options,
                     const AttentionInput& in) {
  const Matrices s(method, config, options);
  const std::int64_t heads = in.q.size(1), kv_heads = in.k.size(1);
  const std::vector<double> q = projected(in.q.value(), s, heads / kv_heads),
                            k = projected(in.k.value(), s, 1);
  const std::string gate = options.get_string("gate");
  const std::vector<double> alpha = alphas(config, options, s);
  const bool model = options.get_string("proj_scope") == "model";
  std::vector<double> gates = values_of(method, "theta");
  for (double& g : gates)
    g = 2 * logistic(g);
  Tensor out = softmax_by_pairs(config, in, [&](const Pair& pair) {
    const int width = model ? s.out() / config.n_head : s.out();
    const std::int64_t from = model ? pair.head * width : 0,
                       query = (pair.batch * heads + pair.head) * in.q.size(2) + pair.query,
                       key = (pair.batch * kv_heads + pair.kv_head) * in.k.size(2) + pair.key;
    const double score =
        alpha[static_cast<std::size_t>(pair.kv_head)] *
        dot(q.data() + query * s.out() + from, k.data() + key * s.out() + from, width);
    const double g = gates.empty() ? 1 : gates[static_cast<std::size_t>(pair.head)];
    if (gate == "score") return g * score;
    if (gate == "proj") return g * g * score;
    if (gate != "blend") return score;
    return g * score + (1 - g) * dot(pair.q, pair.k, config.qk_dim) /
                           std::sqrt(static_cast<double>(config.qk_dim));
  });
  if (gate != "output") return out;
  const std::int64_t rows = out.size(2) * out.size(3);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data<double>()[i] *= gates[static_cast<std::size_t>(i / rows % out.size(1))];
  return out;
}

}  // namespace fovea::attention::spa
