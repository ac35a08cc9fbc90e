#include "attention/linformer/decode.h"

#include <algorithm>

#include "attention/real_tokens.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

LinformerState::LinformerState(std::vector<Tensor> parts, std::int64_t max_length)
    : parts_(std::move(parts)), max_length_(max_length), lengths_(parts_[0].size(0)) {}

std::int64_t LinformerState::bytes_per_token() const {
  std::int64_t bytes = 0;
  for (const Tensor& part : parts_)
    bytes += part.bytes();
  const std::int64_t tokens =
      std::max<std::int64_t>(1, max_length_ * static_cast<std::int64_t>(lengths_.each().size()));
  return (bytes + tokens - 1) / tokens;
}

void LinformerState::reorder(Ctx& ctx, std::span<const std::int64_t> samples) {
  for (Tensor& part : parts_)
    part = reordered(ctx, part, samples, "decode_cache");
  lengths_.reorder(samples);
}

Tensor LinformerState::part(std::size_t index, std::int64_t begin, std::int64_t end) const {
  return parts_[index].slice(0, begin, end);
}

AttentionOutput LinformerState::step(Ctx& ctx, const AttentionInput& in,
                                     const AttentionConfig& config,
                                     const std::function<void(const Group&)>& attend) {
  const std::vector<std::int64_t>& lengths = lengths_.each();
  const auto batch = static_cast<std::int64_t>(lengths.size());
  const std::int64_t tokens = in.q.size(2);
  const Shape q{batch, config.n_head, tokens, config.qk_dim},
      k{batch, config.n_kv_head, tokens, config.qk_dim},
      v{batch, config.n_kv_head, tokens, config.v_dim};
  if (!(in.q.shape() == q) || !(in.k.shape() == k) || !(in.v.shape() == v)) {
    throw ShapeError(cat("decode: q ", in.q.shape().str(), ", k ", in.k.shape().str(), " and v ",
                         in.v.shape().str(), " do not fit a state for q ", q.str(), ", k ", k.str(),
                         " and v ", v.str()));
  }
  const std::vector<std::int64_t> counts =
      real_tokens(ctx, in.key_valid, in.k.size(0), in.k.size(2));
  lengths_.require_room(counts, max_length_, "the state is for");
  const auto alike = [](const std::vector<std::int64_t>& x) {
    return std::all_of(x.begin(), x.end(), [&](std::int64_t y) { return y == x.front(); });
  };
  const bool together = alike(counts) && alike(lengths) && counts.front() == tokens;
  const Shape shape{batch, tokens, config.n_head, config.v_dim};
  const Tensor o = (together ? ctx.empty(shape, in.q.dtype(), "decode")
                             : ctx.zeros(shape, in.q.dtype(), "decode"))
                       .permute({0, 2, 1, 3});
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin);
    if (counts[first] == 0) return;
    const auto cut = [&](const Tensor& x) {
      return x.slice(0, begin, end).slice(2, 0, counts[first]);
    };
    attend({begin, end, lengths[first], cut(in.q.value()), cut(in.k.value()), cut(in.v.value()),
            cut(o)});
  };
  if (together) {
    run(0, batch);
  } else {
    for (std::int64_t b = 0; b < batch; ++b)
      run(b, b + 1);
  }
  lengths_.add(counts);
  return {.o = Var(o)};
}

}  // namespace fovea::attention
