// NCCL between two GPUs, one thread each: the same contract as Gloo's. Skipped, visibly, without.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/random.h"
#include "dist/communicator.h"
#include "dist/fake_session.h"
#include "dist/halving.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;
using dist::Reduce;

namespace {

constexpr int kRanks = 2;

Device gpu(int rank) {
  return {Device::Kind::cuda, static_cast<std::int16_t>(rank)};
}

float value_of(int rank, std::int64_t i) {
  const NamedStream draw(11, "nccl");
  return static_cast<float>(draw.normal(static_cast<std::uint64_t>(rank * 10'000'000 + i)));
}

Tensor values_of(int rank, std::int64_t elements, Stream& stream) {
  const Tensor out = Tensor::empty({elements}, DType::f32, kCpu);
  for (std::int64_t i = 0; i < elements; ++i)
    out.data<float>()[i] = value_of(rank, i);
  return out.to(gpu(rank), stream);
}

std::int64_t wrong_sums(const Tensor& values, Stream& stream) {
  const Tensor here = values.to(kCpu, stream);
  std::int64_t out = 0;
  for (std::int64_t i = 0; i < here.numel(); ++i)
    out += here.data<float>()[i] != value_of(0, i) + value_of(1, i);
  return out;
}

// Why there is nothing to test, or "".
std::string missing() {
  const int count = cuda::device_count();
  if (count >= kRanks) return {};
  return count == 0 ? "no CUDA device: " + cuda::why_none() : "needs two GPUs, but there is one";
}

using Work = void(FakeSession& session, Stream& stream, std::vector<std::int64_t>& wrong);

// What each rank counts as wrong, in the order of its checks.
std::vector<std::int64_t> on_gpus(const std::function<Work>& work) {
  std::vector<std::int64_t> wrong[kRanks];
  on_ranks(kRanks, [&](FakeSession& session) {
    Stream stream(gpu(session.rank()));
    work(session, stream, wrong[session.rank()]);
  });
  std::vector<std::int64_t> out;
  for (const auto& each : wrong)
    out.insert(out.end(), each.begin(), each.end());
  return out;
}

bool all_zero(const std::vector<std::int64_t>& wrong, std::size_t checks) {
  return wrong == std::vector<std::int64_t>(checks * kRanks, 0);
}

}  // namespace

TEST_SUITE("nccl (two GPUs)") {
  TEST_CASE("all_reduce and the tree give the same exact sums, with all blocks and with four") {
    if (const std::string why = missing(); !why.empty()) FOVEA_SKIP(why.c_str());
    const auto wrong = on_gpus([](FakeSession& session, Stream& stream, auto& out) {
      const auto all = dist::nccl(session, gpu(session.rank()));
      const auto beside = dist::nccl(session, gpu(session.rank()), 4);
      for (dist::Communicator* const comm : {all.get(), beside.get()}) {
        for (const std::int64_t n : {1, 7, 4095, 4097, 100'003, 3'000'000}) {
          const Tensor fast = values_of(session.rank(), n, stream);
          comm->all_reduce(fast.view(), Reduce::sum, stream);
          out.push_back(wrong_sums(fast, stream));
          const Tensor tree = values_of(session.rank(), n, stream);
          const Tensor scratch = Tensor::empty({n < dist::kWholeExchange ? n : (n + 1) / 2},
                                               DType::f32, gpu(session.rank()));
          dist::tree_all_reduce(*comm, tree, scratch, stream);
          out.push_back(wrong_sums(tree, stream));
        }
      }
      all->barrier();
    });
    CHECK(all_zero(wrong, 24));
  }

  TEST_CASE("exchange takes other sizes in the two directions, and nothing in one or both") {
    if (const std::string why = missing(); !why.empty()) FOVEA_SKIP(why.c_str());
    const auto wrong = on_gpus([](FakeSession& session, Stream& stream, auto& out) {
      const auto comm = dist::nccl(session, gpu(session.rank()));
      const int rank = session.rank();
      const std::int64_t sizes[kRanks][4] = {{100'003, 0, 5, 0}, {17, 4, 0, 0}};
      for (int round = 0; round < 4; ++round) {
        const Tensor send = values_of(rank, sizes[rank][round], stream);
        const Tensor receive =
            Tensor::empty({sizes[1 - rank][round]}, DType::f32, gpu(session.rank()));
        comm->exchange(send.view(), receive.view(), 1 - rank, stream);
        const Tensor here = receive.to(kCpu, stream);
        std::int64_t differ = 0;
        for (std::int64_t i = 0; i < here.numel(); ++i)
          differ += here.data<float>()[i] != value_of(1 - rank, i);
        out.push_back(differ);
      }
    });
    CHECK(all_zero(wrong, 4));
  }

  TEST_CASE("the largest wins in whole numbers") {
    if (const std::string why = missing(); !why.empty()) FOVEA_SKIP(why.c_str());
    const auto wrong = on_gpus([](FakeSession& session, Stream& stream, auto& out) {
      const auto comm = dist::nccl(session, gpu(session.rank()));
      const double mine = session.rank() + 1;
      const Tensor most = Tensor::from(std::vector<double>{mine, -mine}, {2}, DType::i32)
                              .to(gpu(session.rank()), stream);
      comm->all_reduce(most.view(), Reduce::max, stream);
      out.push_back(most.to(kCpu, stream).values() != std::vector<double>{2, -1});
    });
    CHECK(all_zero(wrong, 1));
  }

  TEST_CASE("what is captured in a graph is done at each launch") {
    if (const std::string why = missing(); !why.empty()) FOVEA_SKIP(why.c_str());
    const auto wrong = on_gpus([](FakeSession& session, Stream& stream, auto& out) {
      const auto comm = dist::nccl(session, gpu(session.rank()), 4);
      constexpr std::int64_t kElements = 50'000;
      const Tensor fast = values_of(session.rank(), kElements, stream);
      const Tensor tree = values_of(session.rank(), kElements, stream);
      const Tensor scratch = Tensor::empty({kElements}, DType::f32, gpu(session.rank()));
      const auto both = [&] {
        comm->all_reduce(fast.view(), Reduce::sum, stream);
        dist::tree_all_reduce(*comm, tree, scratch, stream);
      };
      both();  // connections are made by the first call, which may not be captured
      stream.synchronize();
      {
        stream.begin_capture();
        both();
        const Graph graph = stream.end_capture();
        for (int launch = 0; launch < 2; ++launch) {
          for (const Tensor& values : {fast, tree})
            transfer(values, values_of(session.rank(), kElements, stream), stream);
          stream.launch(graph);
          out.push_back(wrong_sums(fast, stream));
          out.push_back(wrong_sums(tree, stream));
        }
      }
      comm->barrier();
    });
    CHECK(all_zero(wrong, 4));
  }

  TEST_CASE("a GPU that is not there is refused before anybody waits") {
    Meeting meeting;
    FakeSession session(meeting, 0, kRanks);
    CHECK_THROWS_AS(dist::nccl(session, gpu(9999)), DeviceError);
  }
}
