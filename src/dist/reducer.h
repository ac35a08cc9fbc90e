#pragma once
// Adds the gradients of all ranks, in pieces, while the backward pass still computes the rest. The
// flat buffer is cut from its end, which backward completes first (registration order reversed); a
// piece is reduced on a stream of its own as soon as its last parameter is ready. Source:
// design 3.9.

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"
#include "core/tensor.h"
#include "dist/communicator.h"

namespace fovea::dist {

// A parameter's stretch of the flat gradient, in elements; padding belongs to the one before it.
struct Stretch {
  std::int64_t begin = 0;
  GradRef grad;
};

struct ReducerOptions {
  std::int64_t bucket_elements =
      0;                      // 0: all in one; parameters are not cut, so a bucket may have more
  bool tree = true;           // the fixed order of dist/tree.h
  bool sharded = false;       // scatter() instead of arm() and finish()
  DType travel = DType::f32;  // bf16 or f16: what is sent; else gradients go as they are
};

class GradReducer {
 public:
  // Takes over on_ready of the gradients, whose owners must outlive it. `beside` serves what runs
  // beside the backward pass, `all` the rest: they may be one. elements: of the flat buffer, of
  // `dtype`, on the stream's device.
  GradReducer(Communicator& all, Communicator& beside, Stream& compute,
              std::vector<Stretch> stretches, std::int64_t elements, DType dtype,
              const ReducerOptions& options);
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  // Between the forward and the backward pass of a step's last micro-batch: from now on every
  // bucket of `leaf` [elements] that is complete gets `partners` added (GradTree::partners) and is
  // reduced. Parameters without a use are ready at once.
  void arm(const Tensor& leaf, std::vector<Tensor> partners);
  // After that backward pass: the compute stream waits for all of it.
  void finish();
  // Where sharded: afterwards this rank has the sum in shard_of(elements, kNormChunk, ...), on the
  // compute stream, and the rest of `gradient` [elements] is undefined.
  void scatter(const Tensor& gradient);
  // A small buffer at once, on the compute stream, in the same order but never in 16 bits.
  void reduce(const Tensor& values);

  std::int64_t buckets() const { return static_cast<std::int64_t>(buckets_.size()); }

 private:
  struct Bucket {
    std::int64_t begin = 0, end = 0;
    int parameters = 0, left = 0;
  };
  void allocate(std::int64_t largest, DType dtype);
  void ready(std::size_t bucket);
  void reduce_on(Communicator& ranks, const Tensor& values, Stream& stream);
  void sum(Communicator& ranks, const Tensor& values, Stream& stream);

  Communicator& all_;
  Communicator& beside_;
  Stream& compute_;
  std::optional<Stream> own_;  // a GPU's second stream
  std::vector<Stretch> stretches_;
  std::vector<Bucket> buckets_;
  ReducerOptions options_;
  Tensor scratch_;  // of the tree, or of what travels in 16 bits
  bool armed_ = false;
  std::size_t left_ = 0;  // buckets
  Tensor leaf_;
  std::vector<Tensor> partners_;
};

}  // namespace fovea::dist
