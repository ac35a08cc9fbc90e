#pragma once
// The one order in which gradients are added: sum(lo, hi) = sum(lo, mid) + sum(mid, hi) with
// mid = (lo + hi) / 2, over the V micro-batches of a global batch. A sum has the same bits whatever
// the order in which the micro-batches are computed.

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
  // Buffers are flat: [elements] of `dtype` on `device`, in persistent memory. leaves = V >= 1.
  GradTree(Device device, DType dtype, std::int64_t elements, std::int64_t leaves,
           GradOrder order = GradOrder::tree);

  std::int64_t leaves() const { return leaves_; }
  // The buffer of micro-batch `index` in [0, V), each asked for once a step, to be filled with
  // zeros first where is_fresh() says so. The first leaf of a step takes back the previous root.
  // From step to step a leaf asked for in the same order has the same address.
  Tensor open(std::int64_t index);
  // Whether the buffer opened last holds nothing of this step yet.
  bool is_fresh() const { return order_ == GradOrder::tree || closed_count_ == 0; }
  // The same, zeroed where it must be.
  Tensor leaf(Ctx& ctx, std::int64_t index);
  // The leaf is complete: adds what the tree allows, and recycles what was added.
  void close(Ctx& ctx, std::int64_t index);
  // The sum over all leaves, once every one is closed; valid until the next leaf().
  const Tensor& root() const;
  // Buffers made so far: at most ceil(log2 V) + 1 if leaves come in order.
  std::int64_t buffers() const { return made_; }

 private:
  using Range = std::pair<std::int64_t, std::int64_t>;  // [lo, hi)
  Tensor buffer();
  Range parent_of(Range node) const;

  Device device_;
  DType dtype_;
  std::int64_t elements_, leaves_, made_ = 0;
  GradOrder order_;
  std::int64_t closed_count_ = 0;  // of this step
  std::vector<Tensor> pool_;
  std::map<std::int64_t, Tensor> open_;  // leaves being computed
  std::map<Range, Tensor> closed_;       // complete sums that wait for their sibling
};

}  // namespace fovea::dist
