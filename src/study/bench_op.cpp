#include "study/bench_op.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "kernels/activation.h"
#include "kernels/basic.h"
#include "kernels/bias.h"
#include "kernels/embedding.h"
#include "kernels/flash.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optim.h"
#include "study/timing.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

// The sizes, and tensors of them.
struct Bench {
  Stream& stream;
  bool gpu = stream.device().is_cuda();
  DType dtype = gpu ? DType::bf16 : DType::f32;
  std::int64_t batch = gpu ? 64 : 1, length = 1024, rows = batch * length;
  std::int64_t width = 768, mlp = 4 * width, heads = 12, head = 64;
  std::int64_t vocab = gpu ? 50257 : 8191, stride = gpu ? 50304 : 8192;
  std::int64_t chunk = gpu ? 16384 : 1024;
  std::int64_t parameters = gpu ? std::int64_t{124475904} : std::int64_t{1} << 20;

  Tensor random(Shape shape, double bound = 1) const {
    return random_tensor(stream, shape, dtype, bound);
  }
  Tensor random(Shape shape, DType as, double bound = 1) const {
    return random_tensor(stream, shape, as, bound);
  }
  Tensor empty(Shape shape, DType as) const {
    return Tensor::empty(shape, as, stream.device(), "bench");
  }
  Tensor empty(Shape shape) const { return empty(shape, dtype); }
  double element() const { return static_cast<double>(size_of(dtype)); }
};

// One timed piece: what it needs lives in the closure.
struct Piece {
  std::string sizes;
  std::function<void()> work;
  double bytes = 0, flops = 0;
};

std::string sizes_of(std::int64_t rows, std::int64_t cols) {
  return cat(rows, " x ", cols);
}

double count(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

Piece layer_norm_forward_piece(const Bench& b) {
  const Shape shape{b.rows, b.width};
  const Tensor x = b.random(shape), branch = b.random(shape), y = b.empty(shape),
               sum = b.empty(shape), mean = b.empty({b.rows}, DType::f32),
               rstd = b.empty({b.rows}, DType::f32), gamma = b.random({b.width}),
               beta = b.random({b.width});
  return {sizes_of(b.rows, b.width),
          [=, &stream = b.stream] {
            FOVEA_ON(
                stream.device(),
                layer_norm_forward(stream.ref(), y.view(), mean.view(), rstd.view(), sum.view(),
                                   x.view(), branch.view(), gamma.view(), beta.view(), 1e-5));
          },
          4 * count(b.rows, b.width) * b.element()};
}

Piece layer_norm_backward_piece(const Bench& b) {
  const Shape shape{b.rows, b.width};
  const Tensor x = b.random(shape), dy = b.random(shape), dsum = b.random(shape),
               dx = b.empty(shape), y = b.empty(shape), mean = b.empty({b.rows}, DType::f32),
               rstd = b.empty({b.rows}, DType::f32), gamma = b.random({b.width}),
               dgamma = b.random({b.width}, DType::f32), dbeta = b.random({b.width}, DType::f32),
               dbias = b.random({b.width}, DType::f32);
  FOVEA_ON(b.stream.device(),
           layer_norm_forward(b.stream.ref(), y.view(), mean.view(), rstd.view(), View{}, x.view(),
                              View{}, gamma.view(), View{}, 1e-5));
  return {sizes_of(b.rows, b.width),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(),
                     layer_norm_backward(stream.ref(), dx.view(), dgamma.view(), dbeta.view(),
                                         dy.view(), dsum.view(), x.view(), gamma.view(),
                                         mean.view(), rstd.view(), dbias.view()));
          },
          4 * count(b.rows, b.width) * b.element()};
}

Piece bias_gelu_forward_piece(const Bench& b) {
  const Shape shape{b.rows, b.mlp};
  const Tensor product = b.random(shape), out = b.empty(shape), bias = b.random({b.mlp});
  return {sizes_of(b.rows, b.mlp),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(),
                     bias_gelu_forward(stream.ref(), out.view(), product.view(), bias.view()));
          },
          2 * count(b.rows, b.mlp) * b.element()};
}

Piece bias_gelu_backward_piece(const Bench& b) {
  const Shape shape{b.rows, b.mlp};
  const Tensor dout = b.random(shape), product = b.random(shape), dpre = b.empty(shape),
               bias = b.random({b.mlp}), dbias = b.random({b.mlp}, DType::f32);
  return {sizes_of(b.rows, b.mlp),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(), bias_gelu_backward(stream.ref(), dpre.view(), dbias.view(),
                                                         dout.view(), product.view(), bias.view()));
          },
          3 * count(b.rows, b.mlp) * b.element()};
}

Piece column_sum_piece(const Bench& b) {
  const std::int64_t cols = 3 * b.width;
  const Tensor x = b.random({b.rows, cols}), total = b.random({cols}, DType::f32);
  return {sizes_of(b.rows, cols),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(), column_sum(stream.ref(), total.view(), x.view()));
          },
          count(b.rows, cols) * b.element()};
}

// The gradient takes the logits' place, so from the second piece on gradients are the logits.
Piece cross_entropy_piece(const Bench& b) {
  const Tensor wide = b.random({b.chunk, b.stride}, 5), logits = wide.slice(1, 0, b.vocab),
               targets = random_ids(b.stream, {b.chunk}, b.vocab),
               loss = b.empty({b.chunk}, DType::f32), lse = b.empty({b.chunk}, DType::f32);
  return {sizes_of(b.chunk, b.vocab),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(),
                     cross_entropy_both(stream.ref(), loss.view(), lse.view(), logits.view(),
                                        targets.view(), View{}, View{}));
          },
          2 * count(b.chunk, b.vocab) * b.element()};
}

Piece squared_norm_piece(const Bench& b) {
  const Tensor x = b.random({b.parameters}, DType::f32),
               partials = b.empty({(b.parameters + kNormChunk - 1) / kNormChunk}, DType::f64);
  return {cat(b.parameters),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(), squared_norm(stream.ref(), partials.view(), x.view()));
          },
          4 * static_cast<double>(b.parameters)};
}

Piece adamw_piece(const Bench& b) {
  const Tensor master = b.random({b.parameters}, DType::f32, 0.1),
               first = b.random({b.parameters}, DType::f32, 1e-3),
               second = b.empty({b.parameters}, DType::f32),
               gradient = b.random({b.parameters}, DType::f32, 1e-3),
               compute = b.gpu ? b.empty({b.parameters}) : Tensor(),
               decay = b.empty({(b.parameters + kDecayBlock - 1) / kDecayBlock}, DType::u8);
  const StepScalars start{.lr = 1e-4, .adam_count = 10, .correction1 = 0.5, .correction2 = 0.5};
  const Tensor scalars = b.empty({kStepScalars}, DType::f64);
  b.stream.copy(scalars.view().data, &start, sizeof start);
  b.stream.synchronize();
  FOVEA_ON(b.stream.device(), fill(b.stream.ref(), second.view(), 1e-4));
  FOVEA_ON(b.stream.device(), fill(b.stream.ref(), decay.view(), 1));
  const double each = 7 * 4 + (b.gpu ? b.element() : 0);
  return {cat(b.parameters),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(),
                     adamw_step(stream.ref(), master.view(), compute.view(), first.view(),
                                second.view(), gradient.view(), decay.view(), View{},
                                scalars.view(), AdamWArgs{.weight_decay = 0.1}));
          },
          each * static_cast<double>(b.parameters)};
}

Piece embedding_forward_piece(const Bench& b) {
  const Tensor ids = random_ids(b.stream, {b.rows}, b.vocab), table = b.random({b.stride, b.width}),
               places = b.random({b.length, b.width}), out = b.empty({b.rows, b.width});
  return {sizes_of(b.rows, b.width),
          [=, &stream = b.stream, period = b.length] {
            FOVEA_ON(stream.device(),
                     embedding_forward(stream.ref(), out.view(), ids.view(), table.view(),
                                       places.view(), View{}, period));
          },
          2 * count(b.rows, b.width) * b.element()};
}

// Every row of the table that some id names is read and written once, in f32.
Piece embedding_backward_piece(const Bench& b) {
  const Tensor ids = random_ids(b.stream, {b.rows}, b.vocab), dy = b.random({b.rows, b.width}),
               dtable = b.random({b.stride, b.width}, DType::f32);
  const std::int64_t touched = std::min(b.rows, b.vocab);
  return {sizes_of(b.rows, b.width),
          [=, &stream = b.stream, period = b.length] {
            FOVEA_ON(stream.device(), embedding_backward(stream.ref(), dtable.view(), ids.view(),
                                                         dy.view(), period));
          },
          count(b.rows, b.width) * b.element() + 8 * count(touched, b.width)};
}

// Heads of a packed projection, as the model hands them over: [B,N,H D] seen as [B,H,N,D].
Tensor heads_of(const Bench& b, const Tensor& packed, std::int64_t part) {
  const std::int64_t wide = b.heads * b.head;
  return packed.slice(2, part * wide, (part + 1) * wide)
      .split_axis(2, b.head)
      .permute({0, 2, 1, 3});
}

struct AttentionTensors {
  Tensor q, k, v, o, lse, dq, dk, dv, dout;
  AttentionScores scores;
};

AttentionTensors attention_tensors(const Bench& b) {
  const Shape packed{b.batch, b.length, 3 * b.heads * b.head},
      merged{b.batch, b.length, b.heads * b.head};
  const Tensor qkv = b.random(packed), dqkv = b.empty(packed), o = b.empty(merged),
               dout = b.random(merged);
  AttentionTensors out{heads_of(b, qkv, 0),
                       heads_of(b, qkv, 1),
                       heads_of(b, qkv, 2),
                       heads_of(b, o, 0),
                       b.empty({b.batch, b.heads, b.length}, DType::f32),
                       heads_of(b, dqkv, 0),
                       heads_of(b, dqkv, 1),
                       heads_of(b, dqkv, 2),
                       heads_of(b, dout, 0),
                       {}};
  out.scores.scale = 0.125;
  out.scores.causal = true;
  return out;
}

// Causal: half of the pairs.
double attention_flops(const Bench& b) {
  return 2 * count(b.batch * b.heads, b.head) * count(b.length, b.length);
}

std::string attention_sizes(const Bench& b) {
  return cat("B", b.batch, " H", b.heads, " N", b.length, " D", b.head, " causal");
}

Piece flash_forward_piece(const Bench& b) {
  const AttentionTensors t = attention_tensors(b);
  return {attention_sizes(b),
          [=, &stream = b.stream] {
            FOVEA_ON(stream.device(), flash_forward(stream.ref(), t.o.view(), t.lse.view(),
                                                    t.q.view(), t.k.view(), t.v.view(), t.scores));
          },
          0, attention_flops(b)};
}

Piece flash_backward_piece(const Bench& b) {
  const AttentionTensors t = attention_tensors(b);
  FOVEA_ON(b.stream.device(), flash_forward(b.stream.ref(), t.o.view(), t.lse.view(), t.q.view(),
                                            t.k.view(), t.v.view(), t.scores));
  return {attention_sizes(b),
          [=, &stream = b.stream] {
            const AttentionGradients gradients{t.dq.view(), t.dk.view(), t.dv.view(), View{}};
            FOVEA_ON(stream.device(),
                     flash_backward(stream.ref(), gradients, t.dout.view(), View{}, t.q.view(),
                                    t.k.view(), t.v.view(), t.o.view(), t.lse.view(), t.scores));
          },
          0, 2.5 * attention_flops(b)};
}

struct NamedPiece {
  const char* name;
  Piece (*make)(const Bench& bench);
};

constexpr NamedPiece kPieces[] = {
    {"layer_norm_forward", layer_norm_forward_piece},
    {"layer_norm_backward", layer_norm_backward_piece},
    {"bias_gelu_forward", bias_gelu_forward_piece},
    {"bias_gelu_backward", bias_gelu_backward_piece},
    {"column_sum", column_sum_piece},
    {"cross_entropy_both", cross_entropy_piece},
    {"squared_norm", squared_norm_piece},
    {"adamw_step", adamw_piece},
    {"embedding_forward", embedding_forward_piece},
    {"embedding_backward", embedding_backward_piece},
    {"flash_forward", flash_forward_piece},
    {"flash_backward", flash_backward_piece},
};

}  // namespace

std::vector<std::string> bench_op_names() {
  std::vector<std::string> out;
  for (const NamedPiece& piece : kPieces)
    out.emplace_back(piece.name);
  return out;
}

std::vector<OpTime> bench_ops(Stream& stream, const std::string& name, const Rates& rates) {
  const Bench bench{stream};
  const GpuWatch watch(stream.device());
  std::vector<OpTime> out;
  for (const NamedPiece& named : kPieces) {
    if (!name.empty() && name != named.name) continue;
    const Piece piece = named.make(bench);
    GpuState gpu;
    const double ms = time_on(stream, piece.work, {.before_end = [&] { gpu = watch.now(); }}).ms;
    const double floor = piece.flops > 0 ? piece.flops / rates.product : piece.bytes / rates.copy;
    out.push_back(
        {named.name, piece.sizes, ms, piece.bytes, piece.flops, 1e3 * floor, std::move(gpu)});
  }
  if (out.empty()) {
    const std::string near = nearest(name, bench_op_names());
    throw ConfigError(cat("fovea bench op: there is no '", name, "'; must be one of ",
                          join(bench_op_names(), ", "),
                          near.empty() ? "" : cat("; did you mean ", near, "?")));
  }
  return out;
}

std::string json_of(const std::vector<OpTime>& times) {
  std::vector<std::string> out;
  for (const OpTime& time : times) {
    train::JsonObject record;
    record.add("op", time.name).add("sizes", time.sizes).add("ms", time.ms);
    record.add("bytes", time.bytes).add("flops", time.flops);
    record.add("rate", (time.bytes + time.flops) / time.ms * 1e3).add("floor_ms", time.floor_ms);
    add_to(record, time.gpu);
    out.push_back(record.str());
  }
  return cat("[", join(out, ","), "]");
}

std::string text_of(const std::vector<OpTime>& times) {
  std::string out =
      "op                   sizes                       ms      reached       floor ms";
  for (const OpTime& time : times) {
    const double rate = (time.bytes + time.flops) / time.ms * 1e3;
    char line[160];
    std::snprintf(line, sizeof line, "\n%-20s %-22s %9.4f %8.3f %-7s %8.4f", time.name.c_str(),
                  time.sizes.c_str(), time.ms, rate / 1e12, time.flops > 0 ? "TFLOP/s" : "TB/s",
                  time.floor_ms);
    out += line + text_of(time.gpu);
  }
  return out;
}

}  // namespace fovea::study
