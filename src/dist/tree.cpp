#include "dist/tree.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::dist {

GradTree::GradTree(Device device, DType dtype, std::int64_t elements, std::int64_t first,
                   std::int64_t last, GradOrder order)
    : device_(device), dtype_(dtype), elements_(elements), root_(first, last), order_(order) {
  FOVEA_ASSERT(first >= 0 && first < last);
}

GradTree::Buffer GradTree::take() {
  const auto found = std::find(free_.begin(), free_.end(), true);
  if (found == free_.end()) {
    buffers_.push_back(Tensor::empty({elements_}, dtype_, device_, "gradients"));
    free_.push_back(false);
    return buffers_.size() - 1;
  }
  *found = false;
  return static_cast<Buffer>(found - free_.begin());
}

Tensor GradTree::open(std::int64_t index) {
  FOVEA_ASSERT(index >= root_.first && index < root_.second && !open_.contains(index));
  if (const auto done = closed_.find(root_); done != closed_.end()) {
    free_[done->second] = true;
    closed_.erase(done);
    closed_count_ = 0;
  }
  const Buffer out = take();
  open_.emplace(index, out);
  return buffers_[out];
}

Tensor GradTree::leaf(Ctx& ctx, std::int64_t index) {
  Tensor out = open(index);
  if (is_fresh()) FOVEA_ON(device_, fill(ctx.stream.ref(), out.view(), 0.0));
  return out;
}

// Walks down from the root to the node: the cuts are those of the definition, not of powers of two.
GradTree::Node GradTree::parent_of(Node node) const {
  Node at = root_;
  while (true) {
    const std::int64_t mid = (at.first + at.second) / 2;
    const Node lower{at.first, mid}, upper{mid, at.second};
    if (node == lower || node == upper) return at;
    at = node.second <= mid ? lower : upper;
  }
}

GradTree::Node GradTree::sibling_of(Node node) const {
  const Node parent = parent_of(node);
  return node.first == parent.first ? Node{node.second, parent.second}
                                    : Node{parent.first, node.first};
}

std::vector<Tensor> GradTree::partners(std::int64_t index) const {
  FOVEA_ASSERT(open_.contains(index));
  std::vector<Tensor> out;
  if (order_ == GradOrder::as_computed) return out;
  for (Node node{index, index + 1}; node != root_; node = parent_of(node)) {
    const auto waiting = closed_.find(sibling_of(node));
    if (waiting == closed_.end()) break;
    out.push_back(buffers_[waiting->second]);
  }
  return out;
}

void GradTree::close(Ctx& ctx, std::int64_t index) {
  close(&ctx, index);
}

void GradTree::close_added(std::int64_t index) {
  close(nullptr, index);
}

// `ctx` null: the sums were added already.
void GradTree::close(Ctx* ctx, std::int64_t index) {
  const auto found = open_.find(index);
  FOVEA_ASSERT(found != open_.end());
  const Buffer sum = found->second;
  open_.erase(found);
  ++closed_count_;
  if (order_ == GradOrder::as_computed) {
    if (closed_count_ == leaves())
      closed_.emplace(root_, sum);
    else
      free_[sum] = true;
    return;
  }
  Node node{index, index + 1};
  for (; node != root_; node = parent_of(node)) {
    const auto waiting = closed_.find(sibling_of(node));
    if (waiting == closed_.end()) break;
    // Addition commutes, so either side may hold the result.
    if (ctx != nullptr)
      FOVEA_ON(device_, accumulate(ctx->stream.ref(), buffers_[sum].view(),
                                   buffers_[waiting->second].view()));
    free_[waiting->second] = true;
    closed_.erase(waiting);
  }
  closed_.emplace(node, sum);
}

const Tensor& GradTree::root() const {
  const auto done = closed_.find(root_);
  FOVEA_ASSERT(done != closed_.end() && open_.empty());
  return buffers_[done->second];
}

}  // namespace fovea::dist
