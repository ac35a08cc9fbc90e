#include "attention/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/alibi.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

// Whether a call's masks show key j to query i of sample b.
class Sight {
 public:
  Sight(const AttentionConfig& config, const AttentionInput& in)
      : causal_(is_causal(config)), queries_(in.q.size(2)), keys_(in.k.size(2)) {
    const auto read = [](const Tensor& x) {
      return x.defined() ? x.values() : std::vector<double>();
    };
    key_valid_ = read(in.key_valid);
    const bool shared = !in.query_valid.defined() && queries_ == keys_;
    query_valid_ = shared ? key_valid_ : read(in.query_valid);
    query_segments_ = read(in.segments);
    key_segments_ = in.key_segments.defined() ? read(in.key_segments) : query_segments_;
  }
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (causal_ && j > i + keys_ - queries_) return false;
    const auto query = static_cast<std::size_t>(b * queries_ + i),
               key = static_cast<std::size_t>(b * keys_ + j);
    return (key_valid_.empty() || key_valid_[key] != 0) &&
           (query_valid_.empty() || query_valid_[query] != 0) &&
           (query_segments_.empty() || query_segments_[query] == key_segments_[key]);
  }

 private:
  bool causal_;
  std::int64_t queries_, keys_;
  std::vector<double> key_valid_, query_valid_, query_segments_, key_segments_;
};

// Calls row(pairs seen, v, o) for every query.
template <class F>
Tensor by_rows(const AttentionConfig& config, const AttentionInput& in, F&& row) {
  const std::int64_t batch = in.q.size(0), heads = in.q.size(1), queries = in.q.size(2),
                     kv_heads = in.k.size(1), keys = in.k.size(2), width = in.v.size(3);
  const std::vector<double> q = in.q.value().values(), k = in.k.value().values(),
                            v = in.v.value().values();
  const Sight sight(config, in);
  Tensor out =
      Tensor::from(std::vector<double>(static_cast<std::size_t>(batch * heads * queries * width)),
                   {batch, heads, queries, width}, DType::f64);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t kv_head = h / (heads / kv_heads);
      const std::int64_t first_key = (b * kv_heads + kv_head) * keys;
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t query = (b * heads + h) * queries + i;
        std::vector<Pair> pairs;
        for (std::int64_t j = 0; j < keys; ++j) {
          if (!sight.sees(b, i, j)) continue;
          pairs.push_back({b, h, kv_head, i, j, q.data() + query * in.q.size(3),
                           k.data() + (first_key + j) * in.k.size(3)});
        }
        if (!pairs.empty())
          row(pairs, v.data() + first_key * width, out.data<double>() + query * width);
      }
    }
  }
  return out;
}

}  // namespace

Tensor weighted_by_pairs(const AttentionConfig& config, const AttentionInput& in,
                         const std::function<double(const Pair&)>& weight,
                         const std::function<double(double, double)>& divisor) {
  const std::int64_t width = in.v.size(3);
  return by_rows(config, in, [&](const std::vector<Pair>& pairs, const double* v, double* o) {
    double mass = 0;
    for (const Pair& pair : pairs) {
      const double w = weight(pair);
      mass += w;
      for (std::int64_t c = 0; c < width; ++c)
        o[c] += w * v[pair.key * width + c];
    }
    for (std::int64_t c = 0; c < width; ++c)
      o[c] /= divisor(mass, static_cast<double>(pairs.size()));
  });
}

Tensor softmax_by_pairs(const AttentionConfig& config, const AttentionInput& in,
                        const std::function<double(const Pair&)>& score) {
  const std::int64_t width = in.v.size(3);
  return by_rows(config, in, [&](const std::vector<Pair>& pairs, const double* v, double* o) {
    std::vector<double> scores;
    scores.reserve(pairs.size());
    for (const Pair& pair : pairs)
      scores.push_back(score(pair));
    const double most = *std::max_element(scores.begin(), scores.end());
    if (most == -std::numeric_limits<double>::infinity()) return;
    double mass = 0;
    for (std::size_t at = 0; at < pairs.size(); ++at) {
      const double w = std::exp(scores[at] - most);
      mass += w;
      for (std::int64_t c = 0; c < width; ++c)
        o[c] += w * v[pairs[at].key * width + c];
    }
    for (std::int64_t c = 0; c < width; ++c)
      o[c] /= mass;
  });
}

double alibi_decay(const AttentionConfig& config, const Pair& pair) {
  if (config.position != Position::alibi || !is_causal(config)) return 1;
  const double slope = alibi_slopes(config.n_head)[static_cast<std::size_t>(pair.head)];
  return std::exp(-slope * static_cast<double>(pair.query - pair.key));
}

std::vector<double> values_of(Attention& method, std::string_view name) {
  const std::string path = cat(method.path(), ".", name);
  for (const nn::Parameter* parameter : method.parameters()) {
    if (parameter->path == path) return parameter->master.values();
  }
  for (const nn::Buffer* buffer : method.buffers()) {
    if (buffer->path == path) return buffer->value.values();
  }
  return {};
}

}  // namespace fovea::attention
