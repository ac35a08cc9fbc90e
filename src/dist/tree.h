#pragma once
// The one order in which gradients are added: sum(lo, hi) = sum(lo, mid) + sum(mid, hi) with
// mid = (lo + hi) / 2, over the V micro-batches of a global batch. A sum has the same bits whatever
// the order in which the micro-batches are computed. With R ranks, a power of two that divides V,
// rank r has the micro-batches [r V/R, (r+1) V/R): a node of the same tree. The levels above it are
// dist/halving.h's.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "autograd/ctx.h"
#include "core/tensor.h"

namespace fovea::dist {

// Or, where the order may show: all micro-batches in one buffer, as they come.
enum class GradOrder { tree, as_computed };

class GradTree {
 public:
  // Buffers are flat: [elements] of `dtype` on `device`, in persistent memory. [first, last) are
  // the micro-batches of this rank, at least one; in GradOrder::tree a node of the whole tree.
  GradTree(Device device, DType dtype, std::int64_t elements, std::int64_t first, std::int64_t last,
           GradOrder order = GradOrder::tree);

  std::int64_t leaves() const { return root_.second - root_.first; }
  // The buffer of micro-batch `index` in [first, last), each asked for once a step, to be filled
  // with zeros first where is_fresh() says so. The first leaf of a step takes back the previous
  // root. From step to step a leaf asked for in the same order has the same address.
  Tensor open(std::int64_t index);
  // Whether the buffer opened last holds nothing of this step yet.
  bool is_fresh() const { return order_ == GradOrder::tree || closed_count_ == 0; }
  // The same, zeroed where it must be.
  Tensor leaf(Ctx& ctx, std::int64_t index);
  // The leaf is complete: adds what the tree allows, and recycles what was added.
  void close(Ctx& ctx, std::int64_t index);
  // What close(index) would add to this open leaf, in this order: complete sums of its neighbours.
  // Whoever adds them himself, stretch by stretch, tells close_added().
  std::vector<Tensor> partners(std::int64_t index) const;
  void close_added(std::int64_t index);
  // The sum over all leaves, once every one is closed; valid until the next leaf().
  const Tensor& root() const;
  // Buffers made so far: at most ceil(log2 V) + 1 if leaves come in order.
  std::int64_t buffers() const { return static_cast<std::int64_t>(buffers_.size()); }

 private:
  using Node = std::pair<std::int64_t, std::int64_t>;  // [lo, hi)
  using Buffer = std::size_t;                          // a place in buffers_
  Buffer take();
  Node parent_of(Node node) const;
  Node sibling_of(Node node) const;
  void close(Ctx* ctx, std::int64_t index);

  Device device_;
  DType dtype_;
  std::int64_t elements_;
  Node root_;
  GradOrder order_;
  std::int64_t closed_count_ = 0;  // of this step
  // The free one that was made first is taken, so that every step takes the same.
  std::vector<Tensor> buffers_;
  std::vector<bool> free_;
  std::map<std::int64_t, Buffer> open_;  // leaves being computed
  std::map<Node, Buffer> closed_;        // complete sums that wait for their sibling
};

}  // namespace fovea::dist
