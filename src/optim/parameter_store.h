#pragma once
// The flat store: masters, compute copies, moments and gradients each in one buffer, in
// registration order, every parameter padded to 256 bytes (of f32).

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "optim/config.h"

namespace fovea::optim {

// One parameter's stretch of the flat buffers, in elements.
struct Segment {
  nn::Parameter* parameter = nullptr;
  std::int64_t begin = 0, size = 0;  // `begin` is a multiple of 64 elements
  bool decay = false, keep_f32 = false;
  double lr_factor = 1;
};

enum class StoreMode { train, evaluate };  // evaluate: no gradients, no moments

// Elements [begin, end) of the flat buffers whose moments this process holds: multiples of
// kNormChunk, except at the end of the buffers. May be empty.
struct MomentRange {
  std::int64_t begin = 0, end = 0;
};
// From the number of elements of a flat buffer, which only the layout tells.
using MomentCut = std::function<MomentRange(std::int64_t elements)>;

class ParameterStore {
 public:
  // Lays the model's parameters out on ctx.device in ctx.precision, and initialises them from
  // ctx.seed (on meta nothing is written). `frozen`: globs of paths that get no gradient and lie
  // outside the flat buffers. `no_decay`: globs on top of each parameter's own rule (core/glob.h).
  // `moments`: which moments are held (ZeRO stage 1); by default all. `lr_scale`: factors on
  // the learning rate. Padding is zero everywhere. The model must outlive the store and have its
  // path set.
  // Throws ConfigError for a glob that matches no parameter, naming the nearest path, and for two
  // that give one parameter different factors.
  ParameterStore(Ctx& ctx, nn::Module& model, StoreMode mode,
                 std::span<const std::string> no_decay = {},
                 std::span<const std::string> frozen = {}, const MomentCut& moments = {},
                 std::span<const LrScale> lr_scale = {});

  std::span<const Segment> segments() const { return segments_; }
  std::int64_t elements() const { return elements_; }      // of a flat buffer, padding included
  std::int64_t parameters() const { return parameters_; }  // without padding and frozen ones
  // In registration order; each has a master and a compute copy of its own.
  std::span<nn::Parameter* const> frozen() const { return frozen_; }
  const Tensor& masters() const { return masters_; }  // [elements] state dtype
  const Tensor& computes() const {
    return computes_;
  }  // [elements] compute dtype; masters where equal
  // The moments held are those of elements [moments_begin, moments_end); evaluate: none.
  std::int64_t moments_begin() const { return moments_.begin; }
  std::int64_t moments_end() const { return moments_.end; }
  // [moments_end - moments_begin] state dtype; evaluate: undefined.
  const Tensor& first_moment() const { return first_; }
  const Tensor& second_moment() const { return second_; }
  const Tensor& decay_mask() const {
    return decay_;
  }  // u8 [elements / 64]: 1 where the block decays
  // f32 [elements / 64]: factors on the blocks' learning rate; undefined where all are 1.
  const Tensor& lr_factors() const { return lr_factors_; }
  // Points every parameter's gradient at this flat buffer [elements] of the state dtype. Must be
  // called before the first backward of a training store. Throws ShapeError.
  void bind_gradients(const Tensor& flat);
  std::span<const GradRef> gradients() const { return gradients_; }
  // Moves the tallies' stretches of a flat gradient, as far as their moments are held, to their
  // masters: the gradient is zero there. Before its norm is taken.
  void take_tallies(Ctx& ctx, const Tensor& gradient) const;
  // Rounds the masters into the compute copies (after loading), frozen ones included.
  void refresh(Ctx& ctx);

 private:
  void lay_out(const std::vector<nn::Parameter*>& all, std::span<const std::string> no_decay,
               std::span<const std::string> frozen, std::span<const LrScale> lr_scale);
  void allocate(Ctx& ctx);
  void attach(StoreMode mode);
  void allocate_moments(Ctx& ctx, const MomentCut& moments);
  void allocate_blocks(Ctx& ctx);
  void attach_forgetting(const Segment& segment) const;

  std::vector<Segment> segments_;
  std::vector<nn::Parameter*> frozen_;
  std::vector<GradRef> gradients_;
  std::int64_t elements_ = 0, parameters_ = 0;
  MomentRange moments_;
  Tensor masters_, computes_, first_, second_, decay_, lr_factors_;
};

}  // namespace fovea::optim
