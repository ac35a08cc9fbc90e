#include "dist/tree.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"

using namespace fovea;
using dist::GradTree;

namespace {

constexpr std::int64_t kElements = 37;

struct Bench {
  Stream stream{kCpu, 1};
  CachingAllocator activations{memory_source(kCpu)};
  Ctx ctx{kCpu, stream, activations};
};

// Values of very different sizes, so that another order of additions gives other bits.
float leaf_value(std::int64_t leaf, std::int64_t i) {
  const NamedStream draw(5, "tree");
  const auto at = static_cast<std::uint64_t>(leaf * kElements + i);
  return static_cast<float>(draw.normal(2 * at) * std::exp2(20 * draw.uniform(2 * at + 1)));
}

std::vector<float> sum_in_order(GradTree& tree, const std::vector<std::int64_t>& order) {
  Bench bench;
  for (const std::int64_t leaf : order) {
    const Tensor buffer = tree.leaf(bench.ctx, leaf);
    for (std::int64_t i = 0; i < kElements; ++i)
      buffer.data<float>()[i] += leaf_value(leaf, i);
    tree.close(bench.ctx, leaf);
  }
  const float* root = tree.root().data<float>();
  return {root, root + kElements};
}

// The definition, in f32.
float by_definition(std::int64_t lo, std::int64_t hi, std::int64_t i) {
  if (hi - lo == 1) return leaf_value(lo, i);
  const std::int64_t mid = (lo + hi) / 2;
  return by_definition(lo, mid, i) + by_definition(mid, hi, i);
}

std::vector<std::int64_t> forward(std::int64_t leaves) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < leaves; ++i)
    order.push_back(i);
  return order;
}

std::int64_t ceil_log2(std::int64_t n) {
  std::int64_t levels = 0;
  while ((std::int64_t{1} << levels) < n)
    ++levels;
  return levels;
}

}  // namespace

TEST_CASE("the sum follows the definition, for any number of leaves") {
  for (std::int64_t leaves = 1; leaves <= 19; ++leaves) {
    GradTree tree(kCpu, DType::f32, kElements, 0, leaves);
    const std::vector<float> sum = sum_in_order(tree, forward(leaves));
    for (std::int64_t i = 0; i < kElements; ++i) {
      CHECK(sum[static_cast<std::size_t>(i)] == by_definition(0, leaves, i));
    }
  }
}

TEST_CASE("any order of the leaves gives the same bits") {
  constexpr std::int64_t kLeaves = 8;
  GradTree tree(kCpu, DType::f32, kElements, 0, kLeaves);
  const std::vector<float> expected = sum_in_order(tree, forward(kLeaves));
  std::vector<std::int64_t> order = forward(kLeaves);
  std::reverse(order.begin(), order.end());
  CHECK(sum_in_order(tree, order) == expected);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Permutation shuffled(kLeaves, seed, "leaves");
    for (std::int64_t i = 0; i < kLeaves; ++i) {
      order[static_cast<std::size_t>(i)] =
          static_cast<std::int64_t>(shuffled.at(static_cast<std::uint64_t>(i)));
    }
    CHECK(sum_in_order(tree, order) == expected);
  }
}

TEST_CASE("the sums of the ranks' own trees are nodes of the whole one") {
  constexpr std::int64_t kLeaves = 24;
  for (const std::int64_t ranks : {2, 4, 8}) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t first = kLeaves * rank / ranks, last = kLeaves * (rank + 1) / ranks;
      GradTree tree(kCpu, DType::f32, kElements, first, last);
      std::vector<std::int64_t> order;
      for (std::int64_t i = first; i < last; ++i)
        order.push_back(i);
      const std::vector<float> sum = sum_in_order(tree, order);
      for (std::int64_t i = 0; i < kElements; ++i)
        CHECK(sum[static_cast<std::size_t>(i)] == by_definition(first, last, i));
    }
  }
}

TEST_CASE("partners are what close() would add, in its order") {
  constexpr std::int64_t kLeaves = 11;
  for (std::int64_t left_out = 0; left_out < kLeaves; ++left_out) {
    Bench bench;
    GradTree tree(kCpu, DType::f32, kElements, 0, kLeaves);
    std::vector<std::int64_t> order = forward(kLeaves);
    order.erase(order.begin() + left_out);
    order.push_back(left_out);
    for (const std::int64_t leaf : order) {
      const Tensor buffer = tree.leaf(bench.ctx, leaf);
      for (std::int64_t i = 0; i < kElements; ++i)
        buffer.data<float>()[i] += leaf_value(leaf, i);
      if (leaf != left_out) {
        tree.close(bench.ctx, leaf);
        continue;
      }
      const std::vector<Tensor> partners = tree.partners(leaf);
      CHECK(partners.size() >= 3);
      for (const Tensor& partner : partners) {
        for (std::int64_t i = 0; i < kElements; ++i)
          buffer.data<float>()[i] += partner.data<float>()[i];
      }
      tree.close_added(leaf);
    }
    for (std::int64_t i = 0; i < kElements; ++i)
      CHECK(tree.root().data<float>()[i] == by_definition(0, kLeaves, i));
  }
}

TEST_CASE("in forward order ceil(log2 V) + 1 buffers are enough, step after step") {
  for (const std::int64_t leaves : {1, 2, 3, 5, 8, 12, 16, 31, 64}) {
    GradTree tree(kCpu, DType::f32, kElements, 0, leaves);
    for (int step = 0; step < 3; ++step)
      sum_in_order(tree, forward(leaves));
    CHECK(tree.buffers() <= ceil_log2(leaves) + 1);
  }
}

TEST_CASE("every step has its leaves and its root at the same addresses") {
  Bench bench;
  for (const std::int64_t leaves : {1, 2, 4, 7, 16}) {
    GradTree tree(kCpu, DType::f32, kElements, 0, leaves);
    std::vector<const void*> first;
    for (int step = 0; step < 4; ++step) {
      std::vector<const void*> addresses;
      for (const std::int64_t leaf : forward(leaves)) {
        addresses.push_back(tree.leaf(bench.ctx, leaf).view().data);
        const bool last = leaf == leaves - 1;
        for (const Tensor& partner : tree.partners(leaf))
          addresses.push_back(last ? partner.view().data : nullptr);
        if (last)
          tree.close_added(leaf);
        else
          tree.close(bench.ctx, leaf);
      }
      addresses.push_back(tree.root().view().data);
      if (step == 0) first = addresses;
      CHECK(addresses == first);
    }
  }
}

TEST_CASE("a leaf starts at zero although its buffer was used before") {
  Bench bench;
  GradTree tree(kCpu, DType::f32, kElements, 0, 1);
  sum_in_order(tree, {0});
  const Tensor leaf = tree.leaf(bench.ctx, 0);
  for (std::int64_t i = 0; i < kElements; ++i)
    CHECK(leaf.data<float>()[i] == 0.0f);
}

TEST_CASE("as computed, one buffer takes all micro-batches, step after step") {
  Bench bench;
  GradTree sum(kCpu, DType::f32, kElements, 0, 5, dist::GradOrder::as_computed);
  for (int step = 0; step < 2; ++step) {
    std::vector<float> expected(kElements, 0.0F);
    for (const std::int64_t leaf : {3, 0, 4, 1, 2}) {
      const Tensor buffer = sum.leaf(bench.ctx, leaf);
      for (std::int64_t i = 0; i < kElements; ++i) {
        buffer.data<float>()[i] += leaf_value(leaf, i);
        expected[static_cast<std::size_t>(i)] += leaf_value(leaf, i);
      }
      sum.close(bench.ctx, leaf);
    }
    const float* root = sum.root().data<float>();
    CHECK(std::vector<float>(root, root + kElements) == expected);
  }
  CHECK(sum.buffers() == 1);
}
