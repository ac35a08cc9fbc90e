// What must not change a bit of tiled attention.

#include <doctest/doctest.h>

#include "kernels/attention_problem.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("results do not depend on the number of threads") {
  Problem one(Sizes{2, 4, 2, 130, 130, 16, 16});
  one.how.causal = true;
  one.bias = random_tensor({1, 4, 130, 130}, "bias");
  Problem three = one;
  three.threads = 3;
  one.run_flash();
  three.run_flash();
  for (std::size_t i = 0; i < one.results().size(); ++i)
    CHECK(same_bits(one.results()[i], three.results()[i]));
}

TEST_CASE(
    "later tokens change no bit of an earlier causal row, and a decoded row equals its row of a "
    "full pass") {
  const Sizes s{1, 2, 1, 150, 150, 16, 16};
  Problem full(s);
  full.how.causal = true;
  full.run_flash();
  for (const std::int64_t row : {0, 1, 63, 64, 99, 149}) {
    CAPTURE(row);
    Problem one = decoding_step(full, row);
    one.run_flash();
    CHECK(same_bits(one.o, full.o.slice(2, row, row + 1)));
    CHECK(same_bits(one.lse, full.lse.slice(2, row, row + 1)));
  }
}

TEST_CASE("what hidden tokens hold has no effect, NaN included, and padding changes no bit") {
  const Sizes s{1, 2, 1, 70, 70, 16, 16};
  Problem alone(s);
  alone.how.causal = false;
  alone.run_flash();
  // The same tokens followed by 70 hidden ones that hold NaN.
  Problem padded(Sizes{1, 2, 1, 140, 140, 16, 16});
  for (const auto& [to, from] :
       {std::pair(&padded.q, &alone.q), std::pair(&padded.k, &alone.k),
        std::pair(&padded.v, &alone.v), std::pair(&padded.dout, &alone.dout),
        std::pair(&padded.dlse, &alone.dlse)}) {
    float* data = to->data<float>();
    for (std::int64_t i = 0; i < to->numel(); ++i)
      data[i] = std::numeric_limits<float>::quiet_NaN();
    copy_host(to->slice(2, 0, 70).view(), from->view());
  }
  std::vector<double> valid(140, 0.0);
  for (std::size_t j = 0; j < 70; ++j)
    valid[j] = 1;
  const Tensor mask = mask_tensor({1, 140}, DType::u8, valid);
  padded.how.key_valid = padded.how.query_valid = mask.view();
  padded.run_flash();
  for (std::size_t i = 0; i < alone.results().size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(padded.results()[i].slice(2, 0, 70), alone.results()[i]));
    for (const double value : padded.results()[i].slice(2, 70, 140).values()) {
      CHECK(value == (i == 1 ? -std::numeric_limits<double>::infinity() : 0.0));
    }
  }
}

TEST_CASE("strided views give the bits of contiguous ones") {
  const Sizes s{2, 2, 2, 70, 70, 16, 16};
  Problem flat(s);
  Problem strided = flat;
  // One packed [B,N,3,H,D] product, cut into views.
  const Tensor packed = Tensor::empty({2, 70, 3, 2, 16}, DType::f32, kCpu);
  Tensor* views[] = {&strided.q, &strided.k, &strided.v};
  for (int part = 0; part < 3; ++part) {
    Tensor cut = packed.slice(2, part, part + 1).permute({0, 3, 1, 2, 4});  // [B,H,N,1,D]
    View view = cut.view();
    view.dim[3] = view.dim[4];
    view.stride[3] = view.stride[4];
    view.rank = 4;
    copy_host(view, views[part]->view());
  }
  flat.run_flash();
  strided.allocate();
  Stream stream(kCpu);
  const auto head_view = [&](int part) {
    View view = packed.slice(2, part, part + 1).permute({0, 3, 1, 2, 4}).view();
    view.dim[3] = view.dim[4];
    view.stride[3] = view.stride[4];
    view.rank = 4;
    return view;
  };
  cpu::flash_forward(stream.ref(), strided.o.view(), strided.lse.view(), head_view(0), head_view(1),
                     head_view(2), strided.how);
  cpu::flash_backward(stream.ref(), strided.gradients(), strided.dout.view(), strided.dlse.view(),
                      head_view(0), head_view(1), head_view(2), strided.o.view(),
                      strided.lse.view(), strided.how);
  for (std::size_t i = 0; i < flat.results().size(); ++i)
    CHECK(same_bits(flat.results()[i], strided.results()[i]));
}

TEST_CASE("dropout follows the global sample, not the place in the micro-batch") {
  const Sizes s{2, 2, 2, 70, 70, 8, 8};
  Problem both(s);
  both.how.dropout = 0.25;
  const StepState start{3, 0}, second{3, 1};
  both.how.dropout_key = {1, 2, &start};
  both.run_flash();
  Problem one(Sizes{1, 2, 2, 70, 70, 8, 8});
  one.how = both.how;
  one.how.dropout_key.at = &second;
  one.q = both.q.slice(0, 1, 2);
  one.k = both.k.slice(0, 1, 2);
  one.v = both.v.slice(0, 1, 2);
  one.dout = both.dout.slice(0, 1, 2);
  one.dlse = both.dlse.slice(0, 1, 2);
  one.run_flash();
  CHECK(same_bits(one.o, both.o.slice(0, 1, 2)));
  CHECK(same_bits(one.dk, both.dk.slice(0, 1, 2)));
}

TEST_CASE("meta counts the useful FLOPs of visible pairs") {
  Stream stream(kMeta);
  const Tensor q = Tensor::empty({2, 4, 8, 16}, DType::f32, kMeta),
               k = Tensor::empty({2, 2, 8, 16}, DType::f32, kMeta);
  const Tensor v = Tensor::empty({2, 2, 8, 24}, DType::f32, kMeta),
               o = Tensor::empty({2, 4, 8, 24}, DType::f32, kMeta);
  AttentionScores how;
  meta::flash_forward(stream.ref(), o.view(), View{}, q.view(), k.view(), v.view(), how);
  CHECK(stream.cost().flops == 2.0 * 2 * 4 * 64 * (16 + 24));
  stream.cost().flops = 0;
  how.causal = true;
  meta::flash_backward(stream.ref(), {}, o.view(), View{}, q.view(), k.view(), v.view(), o.view(),
                       View{}, how);
  CHECK(stream.cost().flops == 2.0 * 2 * 4 * 36 * (3 * 16 + 2 * 24));
}
