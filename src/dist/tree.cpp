#include "dist/tree.h"

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::dist {

GradTree::GradTree(Device device, DType dtype, std::int64_t elements, std::int64_t leaves,
                   GradOrder order)
    : device_(device), dtype_(dtype), elements_(elements), leaves_(leaves), order_(order) {
  FOVEA_ASSERT(leaves >= 1);
}

Tensor GradTree::buffer() {
  if (pool_.empty()) {
    ++made_;
    return Tensor::empty({elements_}, dtype_, device_, "gradients");
  }
  Tensor out = std::move(pool_.back());
  pool_.pop_back();
  return out;
}

Tensor GradTree::open(std::int64_t index) {
  FOVEA_ASSERT(index >= 0 && index < leaves_ && !open_.contains(index));
  if (const auto done = closed_.find({0, leaves_}); done != closed_.end()) {
    pool_.push_back(std::move(done->second));
    closed_.erase(done);
    closed_count_ = 0;
  }
  Tensor out = buffer();
  open_.emplace(index, out);
  return out;
}

Tensor GradTree::leaf(Ctx& ctx, std::int64_t index) {
  Tensor out = open(index);
  if (is_fresh()) FOVEA_ON(device_, fill(ctx.stream.ref(), out.view(), 0.0));
  return out;
}

// Walks down from the root to the node: the cuts are those of the definition, not of powers of two.
GradTree::Range GradTree::parent_of(Range node) const {
  Range at{0, leaves_};
  while (true) {
    const std::int64_t mid = (at.first + at.second) / 2;
    const Range lower{at.first, mid}, upper{mid, at.second};
    if (node == lower || node == upper) return at;
    at = node.second <= mid ? lower : upper;
  }
}

void GradTree::close(Ctx& ctx, std::int64_t index) {
  const auto found = open_.find(index);
  FOVEA_ASSERT(found != open_.end());
  Tensor sum = std::move(found->second);
  open_.erase(found);
  ++closed_count_;
  if (order_ == GradOrder::as_computed) {
    if (closed_count_ == leaves_)
      closed_.emplace(Range{0, leaves_}, std::move(sum));
    else
      pool_.push_back(std::move(sum));
    return;
  }
  Range node{index, index + 1};
  while (node != Range{0, leaves_}) {
    const Range parent = parent_of(node);
    const std::int64_t mid = (parent.first + parent.second) / 2;
    const Range sibling =
        node.first == parent.first ? Range{mid, parent.second} : Range{parent.first, mid};
    const auto waiting = closed_.find(sibling);
    if (waiting == closed_.end()) break;
    // Addition commutes, so either side may hold the result.
    FOVEA_ON(device_, accumulate(ctx.stream.ref(), sum.view(), waiting->second.view()));
    pool_.push_back(std::move(waiting->second));
    closed_.erase(waiting);
    node = parent;
  }
  closed_.emplace(node, std::move(sum));
}

const Tensor& GradTree::root() const {
  const auto done = closed_.find({0, leaves_});
  FOVEA_ASSERT(done != closed_.end() && open_.empty());
  return done->second;
}

}  // namespace fovea::dist
