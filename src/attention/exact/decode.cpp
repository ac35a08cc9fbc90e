#include "attention/exact/decode.h"

#include <algorithm>

#include "attention/real_tokens.h"
#include "kernels/basic.h"

namespace fovea::attention {

namespace {

bool uniform(const std::vector<std::int64_t>& values, std::int64_t n) {
  return std::all_of(values.begin(), values.end(), [n](std::int64_t x) { return x == n; });
}

}  // namespace

AttentionOutput decode_step(Ctx& ctx, const Tensor& key_valid, std::span<const DecodeSet> sets,
                            const DecodeAttend& attend) {
  const DecodeSet& first = sets.front();
  const std::int64_t batch = first.q.size(0), tokens = first.q.size(2);
  const std::vector<std::int64_t> counts = real_tokens(ctx, key_valid, batch, tokens);
  for (const DecodeSet& set : sets)
    set.past->append(ctx, set.k.value(), set.v.value(), counts);
  const std::vector<std::int64_t>& lengths = first.past->lengths();
  // Samples [from, to), of which `count` tokens are new and `length` are known in all.
  const auto parts = [&](std::int64_t from, std::int64_t to, std::int64_t count,
                         std::int64_t length) {
    const auto cut = [&](const Tensor& x, std::int64_t n) {
      return Var(x.slice(0, from, to).slice(2, 0, n));
    };
    std::vector<DecodePart> out;
    out.reserve(sets.size());
    for (const DecodeSet& set : sets) {
      out.push_back({cut(set.q.value(), count), cut(set.past->keys(), length),
                     cut(set.past->values(), length)});
    }
    return out;
  };
  if (uniform(counts, tokens) && uniform(lengths, first.past->length()))
    return attend(parts(0, batch, tokens, first.past->length()));

  const Tensor o =
      ctx.zeros({batch, tokens, first.q.size(1), first.past->values().size(3)}, first.q.dtype())
          .permute({0, 2, 1, 3});
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t count = counts[static_cast<std::size_t>(b)];
    if (count == 0) continue;
    const AttentionOutput one =
        attend(parts(b, b + 1, count, lengths[static_cast<std::size_t>(b)]));
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), o.slice(0, b, b + 1).slice(2, 0, count).view(),
                              one.o.value().view()));
  }
  return {.o = Var(o)};
}

AttentionOutput decode_step(Ctx& ctx, DecodeState& state, const AttentionInput& in,
                            const std::function<AttentionOutput(const AttentionInput&)>& attend) {
  const DecodeSet set{in.q, in.k, in.v, &dynamic_cast<KeyValueCache&>(state)};
  return decode_step(ctx, in.key_valid, {&set, 1}, [&](std::span<const DecodePart> parts) {
    AttentionInput all;
    all.q = parts[0].q;
    all.k = parts[0].k;
    all.v = parts[0].v;
    return attend(all);
  });
}

}  // namespace fovea::attention
