#include "attention/performer/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "attention/definition.h"

namespace fovea::attention {

namespace {

struct Map {
  bool relu = false, pair = false;
  double scale = 1, eps = 0, offset = 1e-3;
  bool clamped = false;   // exponents at 60
  std::vector<double> w;  // [groups, directions, width]; empty: none
  std::int64_t groups = 1, directions = 0, width = 0;
};

// <w_r, x^> of a row of group `group`, x^ = scale x; -w_r behind them where the map takes both. The
// row itself without projections.
std::vector<double> projected(const Map& map, const double* x, std::int64_t group) {
  std::vector<double> out;
  if (map.w.empty()) {
    for (std::int64_t c = 0; c < map.width; ++c)
      out.push_back(map.scale * x[c]);
    return out;
  }
  const double* w = map.w.data() + (map.groups == 1 ? 0 : group) * map.directions * map.width;
  for (std::int64_t r = 0; r < map.directions; ++r, w += map.width) {
    double sum = 0;
    for (std::int64_t c = 0; c < map.width; ++c)
      sum += w[c] * map.scale * x[c];
    out.push_back(sum);
  }
  for (std::int64_t r = 0; map.pair && r < map.directions; ++r)
    out.push_back(-out[static_cast<std::size_t>(r)]);
  return out;
}

double largest(const std::vector<double>& x) {
  return *std::max_element(x.begin(), x.end());
}

std::vector<double> features(const Map& map, const double* x, std::int64_t group,
                             double stabiliser) {
  std::vector<double> out = projected(map, x, group);
  double norm = 0;
  for (std::int64_t c = 0; c < map.width; ++c)
    norm += map.scale * map.scale * x[c] * x[c];
  for (double& value : out) {
    if (map.relu) {
      value = std::max(value, 0.0) + map.offset;
      continue;
    }
    const double exponent = value - norm / 2 - stabiliser;
    value = std::exp(map.clamped ? std::min(exponent, 60.0) : exponent) + map.eps;
  }
  return out;
}

Map map_of(Attention& method, const AttentionConfig& config, const config::Node& options) {
  Map map;
  map.relu = options.get_string("feature_kernel") == "relu";
  map.pair = options.get_bool("hyperbolic");
  map.scale = std::sqrt(options.find("scale") != nullptr
                            ? options.get_number("scale")
                            : 1 / std::sqrt(static_cast<double>(config.qk_dim)));
  const bool causal = is_causal(config);
  map.eps = options.find("eps") != nullptr ? options.get_number("eps") : causal ? 0 : 1e-4;
  map.clamped = options.find("key_stabiliser") != nullptr &&
                options.get_string("key_stabiliser") == "constant";
  map.w = values_of(method, "W");
  map.width = config.qk_dim;
  map.groups = options.get_bool("per_head") ? config.n_kv_head : 1;
  map.directions = static_cast<std::int64_t>(map.w.size()) / (map.groups * map.width);
  return map;
}

// What the kernels take out of a row before its denominator meets the floor: the power of two of
// its query's largest feature, and the largest one of the keys that it sees.
class RowScale {
 public:
  // The keys of a row come one after another.
  void meet(const Pair& pair, double query, double key, double decay) {
    if (pair.q != row_) keys_ = 0;
    row_ = pair.q;
    query_ = above(query);
    keys_ = std::max(keys_, above(key) * decay);
  }
  double value() const { return query_ * keys_; }

 private:
  static double above(double x) { return std::exp2(std::ceil(std::log2(x))); }
  const double* row_ = nullptr;
  double query_ = 0, keys_ = 0;
};

// Features of rows, each made once.
class FeatureRows {
 public:
  FeatureRows(const Map& map, const AttentionInput& in) : map_(map), in_(in) {}
  const std::vector<double>& of_query(const Pair& pair) {
    return made(pair.q, [&] {
      const double own = stabilised() ? largest(projected(map_, pair.q, pair.kv_head)) : 0;
      Map map = map_;
      map.clamped = false;
      return features(map, pair.q, pair.kv_head, own);
    });
  }
  const std::vector<double>& of_key(const Pair& pair) {
    return made(pair.k, [&] {
      const double shared = stabilised() && !map_.clamped ? shared_stabiliser(pair) : 0;
      return features(map_, pair.k, pair.kv_head, shared);
    });
  }

 private:
  bool stabilised() const { return !map_.relu && map_.eps > 0; }
  template <class F>
  const std::vector<double>& made(const double* row, F&& make) {
    const auto found = rows_.find(row);
    return found != rows_.end() ? found->second : rows_.emplace(row, make()).first->second;
  }
  // The largest exponent of the valid keys of a sample and head.
  double shared_stabiliser(const Pair& pair) {
    const std::int64_t keys = in_.k.size(2);
    const double* first = pair.k - pair.key * map_.width;
    if (const auto found = shared_.find(first); found != shared_.end()) return found->second;
    const std::vector<double> valid =
        in_.key_valid.defined() ? in_.key_valid.values() : std::vector<double>();
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!valid.empty() && valid[static_cast<std::size_t>(pair.batch * keys + j)] == 0) continue;
      most = std::max(most, largest(projected(map_, first + j * map_.width, pair.kv_head)));
    }
    shared_.emplace(first, most);
    return most;
  }

  const Map& map_;
  const AttentionInput& in_;
  std::map<const double*, std::vector<double>> rows_;
  std::map<const double*, double> shared_;
};

}  // namespace

Tensor performer_definition(Attention& method, const AttentionConfig& config,
                            const config::Node& options, const AttentionInput& in) {
  const Map map = map_of(method, config, options);
  FeatureRows rows(map, in);
  RowScale scale;
  const auto weight = [&](const Pair& pair) {
    const std::vector<double>&q = rows.of_query(pair), &k = rows.of_key(pair);
    double sum = 0;
    for (std::size_t r = 0; r < q.size(); ++r)
      sum += q[r] * k[r];
    const double decay = alibi_decay(config, pair);
    if (!map.relu) scale.meet(pair, largest(q), largest(k), decay);
    return sum * decay;
  };
  const double floor = options.get_number("eps_den") *
                       (map.relu ? 1 : static_cast<double>(options.get_int("features")));
  return weighted_by_pairs(config, in, weight, [&](double mass, double) {
    return std::max(mass, floor * (map.relu ? 1 : scale.value()));
  });
}

}  // namespace fovea::attention
