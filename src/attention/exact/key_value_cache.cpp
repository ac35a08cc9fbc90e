#include "attention/exact/key_value_cache.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::attention {

KeyValueCache::KeyValueCache(const AttentionConfig& config, std::int64_t batch,
                             std::int64_t max_length, DType dtype, Device device)
    : keys_(Tensor::empty({batch, config.n_kv_head, max_length, config.qk_dim}, dtype, device,
                          "decode_cache")),
      values_(Tensor::empty({batch, config.n_kv_head, max_length, config.v_dim}, dtype, device,
                            "decode_cache")),
      lengths_(static_cast<std::size_t>(batch), 0) {}

std::int64_t KeyValueCache::length() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

std::int64_t KeyValueCache::bytes_per_token() const {
  return keys_.size(1) * (keys_.size(3) + values_.size(3)) * size_of(keys_.dtype());
}

void KeyValueCache::append(Ctx& ctx, const Tensor& k, const Tensor& v,
                           std::span<const std::int64_t> counts) {
  const Shape expected_k{keys_.size(0), keys_.size(1), k.size(2), keys_.size(3)};
  const Shape expected_v{values_.size(0), values_.size(1), k.size(2), values_.size(3)};
  if (!(k.shape() == expected_k) || !(v.shape() == expected_v)) {
    throw ShapeError(cat("decode: k ", k.shape().str(), " and v ", v.shape().str(),
                         " do not fit a cache of keys ", keys_.shape().str(), " and values ",
                         values_.shape().str()));
  }
  for (std::size_t b = 0; b < lengths_.size(); ++b) {
    if (lengths_[b] + counts[b] > keys_.size(2)) {
      throw ShapeError(cat("decode: sample ", b, " has ", lengths_[b], " tokens and gets ",
                           counts[b], " more, but the cache holds ", keys_.size(2)));
    }
  }
  for (std::size_t b = 0; b < lengths_.size(); ++b) {
    const auto sample = static_cast<std::int64_t>(b);
    const auto put = [&](const Tensor& cache, const Tensor& tokens) {
      const Tensor to =
          cache.slice(0, sample, sample + 1).slice(2, lengths_[b], lengths_[b] + counts[b]);
      const Tensor from = tokens.slice(0, sample, sample + 1).slice(2, 0, counts[b]);
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), from.view()));
    };
    if (counts[b] == 0) continue;
    put(keys_, k);
    put(values_, v);
    lengths_[b] += counts[b];
  }
}

void KeyValueCache::reorder(Ctx& ctx, std::span<const std::int64_t> samples) {
  const auto gathered = [&](const Tensor& cache) {
    Shape shape = cache.shape();
    shape[0] = static_cast<std::int64_t>(samples.size());
    Tensor out = Tensor::empty(shape, cache.dtype(), cache.device(), "decode_cache");
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto to = static_cast<std::int64_t>(i);
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.slice(0, to, to + 1).view(),
                                cache.slice(0, samples[i], samples[i] + 1).view()));
    }
    return out;
  };
  keys_ = gathered(keys_);
  values_ = gathered(values_);
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : samples)
    lengths.push_back(lengths_[static_cast<std::size_t>(sample)]);
  lengths_ = std::move(lengths);
}

}  // namespace fovea::attention
