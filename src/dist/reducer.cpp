#include "dist/reducer.h"

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "core/error.h"
#include "dist/halving.h"
#include "kernels/basic.h"
#include "kernels/optim.h"

namespace fovea::dist {

namespace {

// At most of a piece that the tree exchanges at once: 32 MiB of f32.
constexpr std::int64_t kPiece = 8'388'608;

}  // namespace

GradReducer::GradReducer(Communicator& all, Communicator& beside, Stream& compute,
                         std::vector<Stretch> stretches, std::int64_t elements, DType dtype,
                         const ReducerOptions& options)
    : all_(all),
      beside_(beside),
      compute_(compute),
      stretches_(std::move(stretches)),
      options_(options) {
  FOVEA_ASSERT(!stretches_.empty() && stretches_.front().begin == 0);
  FOVEA_ASSERT(options_.travel == DType::f32 || !options_.tree);
  if (compute.device().is_cuda()) own_.emplace(compute.device());
  std::vector<std::size_t> bucket_of(stretches_.size());
  for (std::size_t i = stretches_.size(); i-- > 0;) {
    const std::int64_t end = i + 1 < stretches_.size() ? stretches_[i + 1].begin : elements;
    const bool all_in_one = options_.bucket_elements == 0;
    if (buckets_.empty() ||
        (!all_in_one && buckets_.back().end - buckets_.back().begin >= options_.bucket_elements)) {
      buckets_.push_back({.begin = end, .end = end});
    }
    buckets_.back().begin = stretches_[i].begin;
    ++buckets_.back().parameters;
    bucket_of[i] = buckets_.size() - 1;
  }
  std::int64_t largest = 0;
  for (const Bucket& bucket : buckets_)
    largest = std::max(largest, bucket.end - bucket.begin);
  allocate(options_.sharded ? std::min(kPiece, elements) : largest, dtype);
  if (options_.sharded) return;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    FOVEA_ASSERT(!stretches_[i].grad->on_ready);
    stretches_[i].grad->on_ready = [this, bucket = bucket_of[i]] {
      if (armed_ && --buckets_[bucket].left == 0) ready(bucket);
    };
  }
}

// The tree halves a bucket before it receives anything.
void GradReducer::allocate(std::int64_t largest, DType dtype) {
  const Device device = compute_.device();
  if (options_.travel != DType::f32)
    scratch_ = Tensor::empty({largest}, options_.travel, device, "reduction");
  else if (options_.sharded)
    scratch_ = Tensor::empty({std::max(largest, kWholeExchange)}, dtype, device, "reduction");
  else if (options_.tree && all_.size() > 2)
    scratch_ = Tensor::empty({std::clamp((largest + 1) / 2, kWholeExchange, kPiece)}, dtype, device,
                             "reduction");
}

GradReducer::~GradReducer() {
  if (options_.sharded) return;
  for (const Stretch& stretch : stretches_)
    stretch.grad->on_ready = nullptr;
}

void GradReducer::arm(const Tensor& leaf, std::vector<Tensor> partners) {
  leaf_ = leaf;
  partners_ = std::move(partners);
  for (Bucket& bucket : buckets_)
    bucket.left = bucket.parameters;
  left_ = buckets_.size();
  armed_ = true;
  std::vector<GradRef> all;
  all.reserve(stretches_.size());
  for (const Stretch& stretch : stretches_)
    all.push_back(stretch.grad);
  Tape::close_unused(all);
}

void GradReducer::ready(std::size_t bucket) {
  const auto [begin, end, parameters, left] = buckets_[bucket];
  const Tensor values = leaf_.slice(0, begin, end);
  for (const Tensor& partner : partners_) {
    FOVEA_ON(compute_.device(),
             accumulate(compute_.ref(), values.view(), partner.slice(0, begin, end).view()));
  }
  // Nothing is computed beside the last bucket, so it may have the whole device.
  Communicator& ranks = --left_ == 0 ? all_ : beside_;
  if (own_) own_->wait(compute_.record());
  reduce_on(ranks, values, own_ ? *own_ : compute_);
}

void GradReducer::finish() {
  FOVEA_ASSERT(armed_ && left_ == 0);
  armed_ = false;
  leaf_ = Tensor();
  partners_.clear();
  if (own_) compute_.wait(own_->record());
}

void GradReducer::scatter(const Tensor& gradient) {
  FOVEA_ASSERT(options_.sharded);
  tree_reduce_scatter(all_, gradient, kNormChunk, scratch_, compute_);
}

void GradReducer::reduce(const Tensor& values) {
  FOVEA_ASSERT(values.numel() <= kWholeExchange);
  sum(all_, values, compute_);
}

void GradReducer::reduce_on(Communicator& ranks, const Tensor& values, Stream& stream) {
  if (options_.travel == DType::f32) return sum(ranks, values, stream);
  const Tensor narrow = scratch_.slice(0, 0, values.numel());
  FOVEA_ON(stream.device(), copy(stream.ref(), narrow.view(), values.view()));
  ranks.all_reduce(narrow.view(), Reduce::sum, stream);
  FOVEA_ON(stream.device(), copy(stream.ref(), values.view(), narrow.view()));
}

// With two ranks no order shows, so the library's own reduction serves the tree as well.
void GradReducer::sum(Communicator& ranks, const Tensor& values, Stream& stream) {
  if (options_.tree && ranks.size() > 2)
    tree_all_reduce(ranks, values, scratch_, stream);
  else
    ranks.all_reduce(values.view(), Reduce::sum, stream);
}

}  // namespace fovea::dist
