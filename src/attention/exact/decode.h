#pragma once
// One step of decoding for methods that keep every key and value.

#include <functional>
#include <span>

#include "attention/exact/key_value_cache.h"

namespace fovea::attention {

// Projections of the new tokens, [B,H,N,Dk] [B,Hk,N,Dk] [B,Hk,N,Dv], and the cache of their past.
struct DecodeSet {
  Var q, k, v;
  KeyValueCache* past;
};

// The queries of some samples with all keys and values that they may see, the new ones included.
struct DecodePart {
  Var q, k, v;
};

// What attends: one part a set, of the same samples. Queries are the last ones of the keys.
using DecodeAttend = std::function<AttentionOutput(std::span<const DecodePart>)>;

// Appends the new tokens to every cache, then attends over all. key_valid u8 [B,N] as in
// Attention::step; the caches are equally long. o [B,H,N,Dv] is zero where a token is not real.
// Samples of one length decode together, others one by one, each against its own past, so that a
// sample's bits do not depend on its company. Throws ShapeError as KeyValueCache::append.
AttentionOutput decode_step(Ctx& ctx, const Tensor& key_valid, std::span<const DecodeSet> sets,
                            const DecodeAttend& attend);
// With one set, q, k and v of `in`, and a KeyValueCache as the state: `attend` gets q, k and v
// alone.
AttentionOutput decode_step(Ctx& ctx, DecodeState& state, const AttentionInput& in,
                            const std::function<AttentionOutput(const AttentionInput&)>& attend);

}  // namespace fovea::attention
