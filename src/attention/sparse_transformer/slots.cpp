#include "attention/sparse_transformer/slots.h"

#include <algorithm>
#include <numeric>

namespace fovea::attention {

namespace {

std::vector<std::int32_t> counting(std::int64_t tokens) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace

SlotRule in_token_order(const TileRule& rule, std::int64_t tokens) {
  SlotRule out{.rule = {.rule = rule}, .queries = counting(tokens), .keys = counting(tokens)};
  out.rule.rule.in_slots = true;
  return out;
}

SlotRule columns_first(const TileRule& rule, std::int64_t tokens) {
  SlotRule out{.queries = counting(tokens), .keys = counting(tokens)};
  const auto others = std::stable_partition(out.keys.begin(), out.keys.end(), [&](std::int32_t j) {
    const std::int32_t column = j % rule.period;
    return column >= rule.column_from && column < rule.column_to;
  });
  // A rule of no first keys is one without terms, which shows all; by its columns it shows nothing.
  if (others == out.keys.begin()) return in_token_order(rule, tokens);
  out.rule.rule.in_slots = true;
  out.rule.rule.first_keys = static_cast<std::int32_t>(others - out.keys.begin());
  return out;
}

SlotRule by_residue(const TileRule& rule, std::int64_t tokens) {
  SlotRule out;
  // Where the class of every slot begins and ends.
  std::vector<std::int64_t> begin, end;
  for (std::int64_t residue = 0; residue < std::min<std::int64_t>(rule.stride, tokens); ++residue) {
    const auto first = static_cast<std::int64_t>(out.queries.size());
    for (std::int64_t token = residue; token < tokens; token += rule.stride)
      out.queries.push_back(static_cast<std::int32_t>(token));
    const auto last = static_cast<std::int64_t>(out.queries.size());
    begin.insert(begin.end(), static_cast<std::size_t>(last - first), first);
    end.insert(end.end(), static_cast<std::size_t>(last - first), last);
  }
  out.keys = out.queries;
  const std::int64_t tiles = plan_tiles(tokens);
  const auto first_tile = [&](std::int64_t tile) {
    return begin[static_cast<std::size_t>(tile * kPlanTile)] / kPlanTile;
  };
  const auto last_tile = [&](std::int64_t tile) {
    const std::int64_t last = std::min((tile + 1) * kPlanTile, tokens) - 1;
    return (end[static_cast<std::size_t>(last)] - 1) / kPlanTile;
  };
  std::int64_t width = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile)
    width = std::max(width, last_tile(tile) - first_tile(tile) + 1);
  const Tensor list = Tensor::empty({1, tiles, width}, DType::i32, kCpu),
               words = Tensor::empty({1, tiles, width, kPlanTile}, DType::i64, kCpu);
  auto* to = list.data<std::int32_t>();
  auto* word = words.view().ptr<std::uint64_t>();
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    for (std::int64_t e = 0; e < width; ++e, ++to) {
      const std::int64_t key_tile = first_tile(tile) + e;
      *to = key_tile <= last_tile(tile) ? static_cast<std::int32_t>(key_tile) : -1;
      for (std::int64_t row = 0; row < kPlanTile; ++row, ++word) {
        const auto slot = static_cast<std::size_t>(tile * kPlanTile + row);
        *word =
            slot < begin.size() ? range_word(begin[slot], end[slot] - 1, key_tile * kPlanTile) : 0;
      }
    }
  }
  out.rule.rule.in_slots = true;
  out.rule.list = list;
  out.rule.list_words = words;
  return out;
}

}  // namespace fovea::attention
