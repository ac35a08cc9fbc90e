// The tree over ranks, against its definition, to the bit.

#include "dist/halving.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"
#include "dist/fake_session.h"

using namespace fovea;
using namespace fovea::test;
using dist::Shard;

namespace {

// Values of very different sizes, so that another order of additions gives other bits.
template <class T>
T value_of(int rank, std::int64_t i) {
  const NamedStream draw(7, "halving");
  const auto at = static_cast<std::uint64_t>(rank * 1'000'000 + i);
  return static_cast<T>(draw.normal(2 * at) * std::exp2(20 * draw.uniform(2 * at + 1)));
}

template <class T>
T by_definition(int lo, int hi, std::int64_t i) {
  if (hi - lo == 1) return value_of<T>(lo, i);
  const int mid = (lo + hi) / 2;
  return by_definition<T>(lo, mid, i) + by_definition<T>(mid, hi, i);
}

template <class T>
constexpr DType kDType = sizeof(T) == 8 ? DType::f64 : DType::f32;

template <class T>
Tensor values_of(int rank, std::int64_t elements) {
  Tensor out = Tensor::empty({elements}, kDType<T>, kCpu);
  for (std::int64_t i = 0; i < elements; ++i)
    out.data<T>()[i] = value_of<T>(rank, i);
  return out;
}

// Scratch of exactly the elements that the contract asks for, and the elements that differ from the
// definition on all ranks together.
template <class T>
std::int64_t wrong_after_all_reduce(int ranks, const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<T>> truth;
  for (const std::int64_t elements : sizes) {
    auto& sum = truth.emplace_back();
    for (std::int64_t i = 0; i < elements; ++i)
      sum.push_back(by_definition<T>(0, ranks, i));
  }
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](FakeSession& session) {
    const auto comm = dist::gloo(session);
    Stream stream(kCpu, 2);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const std::int64_t n = sizes[k];
      const Tensor values = values_of<T>(session.rank(), n);
      const Tensor scratch =
          Tensor::empty({n < dist::kWholeExchange ? n : (n + 1) / 2}, kDType<T>, kCpu);
      dist::tree_all_reduce(*comm, values, scratch, stream);
      for (std::int64_t i = 0; i < n; ++i) {
        wrong[static_cast<std::size_t>(session.rank())] +=
            std::memcmp(values.data<T>() + i, truth[k].data() + i, sizeof(T)) != 0;
      }
    }
    comm->barrier();
  });
  std::int64_t out = 0;
  for (const std::int64_t count : wrong)
    out += count;
  return out;
}

int bit_reversed(int rank, int size) {
  int out = 0;
  for (int bit = 1; bit < size; bit *= 2)
    out = 2 * out + ((rank & bit) != 0 ? 1 : 0);
  return out;
}

}  // namespace

TEST_SUITE("halving") {
  TEST_CASE("the sum over 2, 4 and 8 ranks is the tree's, to the bit, whatever the size") {
    std::vector<std::int64_t> sizes;
    for (std::int64_t n = 0; n <= 20; ++n)
      sizes.push_back(n);
    for (const std::int64_t n : {255, 4095, 4096, 4097, 100'003})
      sizes.push_back(n);
    for (const int ranks : {1, 2, 4, 8}) {
      INFO(ranks, " ranks");
      CHECK(wrong_after_all_reduce<float>(ranks, sizes) == 0);
    }
    CHECK(wrong_after_all_reduce<double>(4, {3, 5000}) == 0);
  }

  TEST_CASE("the values of these tests tell the tree from a running sum") {
    int other = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      float running = value_of<float>(0, i);
      for (int rank = 1; rank < 4; ++rank)
        running += value_of<float>(rank, i);
      other += running != by_definition<float>(0, 4, i);
    }
    CHECK(other > 100);
  }

  TEST_CASE("shards are whole units, partition the buffer, and may be empty") {
    for (const std::int64_t unit : {1, 64}) {
      for (const std::int64_t elements : {0, 1, 63, 64, 65, 448, 5000, 100'003}) {
        for (const int size : {1, 2, 4, 8}) {
          INFO(elements, " elements in units of ", unit, " on ", size, " ranks");
          std::vector<Shard> in_place(static_cast<std::size_t>(size));
          for (int rank = 0; rank < size; ++rank)
            in_place[static_cast<std::size_t>(bit_reversed(rank, size))] =
                dist::shard_of(elements, unit, rank, size);
          std::int64_t at = 0;
          for (const Shard& shard : in_place) {
            CHECK(shard.begin == at);
            CHECK(shard.size() >= 0);
            const bool whole = shard.begin % unit == 0 || shard.size() == 0;
            const bool ends = shard.end % unit == 0 || shard.end == elements;
            CHECK(whole);
            CHECK(ends);
            at = shard.end;
          }
          CHECK(at == elements);
        }
      }
    }
  }

  TEST_CASE("reduce-scatter leaves each rank its shard of the sum, and all-gather the whole") {
    constexpr int kRanks = 4;
    // Scratch for the whole half, or for pieces of it.
    for (const auto& [n, room] : {std::pair(50, 64), std::pair(64, 64), std::pair(5001, 2560),
                                  std::pair(5001, 700), std::pair(5001, 37)}) {
      constexpr std::int64_t kUnit = 64;
      std::vector<int> wrong(2 * kRanks);
      on_ranks(kRanks, [&wrong, n = std::int64_t{n}, room = room](FakeSession& session) {
        const auto comm = dist::gloo(session);
        Stream stream(kCpu);
        const Tensor values = values_of<float>(session.rank(), n);
        const Tensor scratch = Tensor::empty({room}, DType::f32, kCpu);
        const auto differ = [&](const Shard& shard) {
          int out = 0;
          for (std::int64_t i = shard.begin; i < shard.end; ++i)
            out += values.data<float>()[i] != by_definition<float>(0, kRanks, i);
          return out;
        };
        dist::tree_reduce_scatter(*comm, values, kUnit, scratch, stream);
        const Shard mine = dist::shard_of(n, kUnit, session.rank(), kRanks);
        const auto at = static_cast<std::size_t>(session.rank());
        wrong[2 * at] = differ(mine);
        for (std::int64_t i = 0; i < n; ++i)  // what is not ours must come from the others
          if (i < mine.begin || i >= mine.end) values.data<float>()[i] = -1;
        dist::tree_all_gather(*comm, values, kUnit, stream);
        wrong[2 * at + 1] = differ({0, n});
        comm->barrier();
      });
      INFO(n, " ", room);
      CHECK(wrong == std::vector<int>(2 * kRanks, 0));
    }
  }

  TEST_CASE("on meta the tree counts, and nobody answers") {
    Stream stream(kMeta);
    const auto comm = dist::imagined(8);
    const Tensor values = Tensor::empty({10'000}, DType::f32, kMeta);
    const Tensor scratch = Tensor::empty({5'000}, DType::f32, kMeta);
    dist::tree_all_reduce(*comm, values, scratch, stream);
    CHECK(stream.cost().launches == 3);
  }
}
