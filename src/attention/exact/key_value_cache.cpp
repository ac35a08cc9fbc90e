#include "attention/exact/key_value_cache.h"

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
      lengths_(batch) {}

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
  lengths_.require_room(counts, keys_.size(2), "the cache holds");
  for (std::size_t b = 0; b < lengths().size(); ++b) {
    const auto sample = static_cast<std::int64_t>(b);
    const auto put = [&](const Tensor& cache, const Tensor& tokens) {
      const Tensor to =
          cache.slice(0, sample, sample + 1).slice(2, lengths()[b], lengths()[b] + counts[b]);
      const Tensor from = tokens.slice(0, sample, sample + 1).slice(2, 0, counts[b]);
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), from.view()));
    };
    if (counts[b] == 0) continue;
    put(keys_, k);
    put(values_, v);
  }
  lengths_.add(counts);
}

void KeyValueCache::reorder(Ctx& ctx, std::span<const std::int64_t> samples) {
  keys_ = reordered(ctx, keys_, samples, "decode_cache");
  values_ = reordered(ctx, values_, samples, "decode_cache");
  lengths_.reorder(samples);
}

}  // namespace fovea::attention
