// causal_mode: prefix. The compressed keys and values of position i sum over the tokens up to i:
// S = scale tril(Q K^T) E^T, O = tril(P F) V, in chunks. baselines.md 8.4.

#include <cmath>

#include "attention/linformer/decode.h"
#include "attention/linformer/linformer.h"
#include "autograd/ops/activation.h"
#include "autograd/ops/causal_product.h"
#include "autograd/ops/elementwise.h"
#include "kernels/basic.h"

namespace fovea::attention {

namespace {

class Prefix final : public Linformer {
 public:
  Prefix(const AttentionConfig& config, const LinformerSettings& settings)
      : Linformer(config, settings, "prefix", settings.rank, settings.max_len) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    require_length(in.q.size(2));
    const AttentionMask mask = slot_mask(ctx, in, "");
    return attend(ctx, zero_invalid(ctx, in.q, mask.query_valid),
                  zero_invalid(ctx, in.k, in.key_valid), zero_invalid(ctx, in.v, in.key_valid),
                  mask, {}, {});
  }

  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    const DType acc = acc_of(ctx.compute());
    const auto sums = [&](std::int64_t rows, std::int64_t columns) {
      Tensor out = Tensor::empty({batch, config().n_kv_head, rows, columns}, acc, ctx.device,
                                 "decode_cache");
      FOVEA_ON(ctx.device, fill(ctx.stream.ref(), out.view(), 0.0));
      return out;
    };
    return std::make_unique<LinformerState>(
        std::vector{sums(config().qk_dim, settings().rank), sums(settings().rank, config().v_dim)},
        max_length);
  }

  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    auto& own = dynamic_cast<LinformerState&>(state);
    return own.step(ctx, in, config(), [&](const LinformerState::Group& group) {
      require_length(group.length + group.q.size(2));
      const auto sum = [&](std::size_t part) {
        return CausalState{own.part(part, group.begin, group.end), group.length};
      };
      const AttentionOutput out =
          attend(ctx, Var(group.q), Var(group.k), Var(group.v), {}, sum(0), sum(1));
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), group.o.view(), out.o.view()));
    });
  }

 private:
  // The scale is applied to the queries, before 16-bit products could grow too large.
  AttentionOutput attend(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                         const AttentionMask& mask, const CausalState& keys,
                         const CausalState& values) const {
    const double factor = settings().scale > 0
                              ? settings().scale
                              : 1 / std::sqrt(static_cast<double>(config().qk_dim));
    const DType dtype = q.dtype();
    const Var s = causal_product(ctx, scale(ctx, q, factor), {k}, {e(), true}, acc_of(dtype),
                                 kLinformerChunk, keys);
    const SlotSoftmax weights = slot_softmax(ctx, s, mask.query_valid, dtype);
    const Var p = dropout(ctx, weights.p, mask.dropout, mask.dropout_key);
    return {.o = causal_product(ctx, p, {f(), true}, {v}, dtype, kLinformerChunk, values),
            .lse = weights.lse};
  }
};

}  // namespace

std::unique_ptr<Attention> linformer_prefix(const AttentionConfig& config,
                                            const LinformerSettings& settings) {
  return std::make_unique<Prefix>(config, settings);
}

}  // namespace fovea::attention
