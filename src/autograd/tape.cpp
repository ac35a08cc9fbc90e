#include "autograd/tape.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea {

Tensor Ctx::zeros(Shape shape, DType dtype, const char* tag) const {
  Tensor out = empty(shape, dtype, tag);
  FOVEA_ON(device, fill(stream.ref(), out.view(), 0.0));
  return out;
}

namespace {

// Gives a context another tape and another owner of its memory for a while, exceptions included.
class Under {
 public:
  Under(Ctx& ctx, Tape* tape, const char* backward_of)
      : ctx_(ctx),
        tape_(std::exchange(ctx.tape, tape)),
        of_(std::exchange(ctx.backward_of, backward_of)) {}
  ~Under() {
    ctx_.tape = tape_;
    ctx_.backward_of = of_;
  }
  Under(const Under&) = delete;
  Under& operator=(const Under&) = delete;

 private:
  Ctx& ctx_;
  Tape* tape_;
  const char* of_;
};

void release(const GradRef& grad) {
  if (--grad->uses == 0 && grad->is_parameter && grad->on_ready) grad->on_ready();
}

}  // namespace

void Tape::append(const char* op, std::vector<GradRef> outputs, std::vector<GradRef> inputs,
                  Backward run, std::vector<GradRef> counted) {
  if (keeps()) {
    for (const GradRef& input : inputs) {
      if (input && (mode_ == Mode::record || !input->is_parameter)) ++input->uses;
    }
    nodes_.push_back(
        {op, std::move(outputs), std::move(inputs), std::move(counted), std::move(run)});
    return;
  }
  for (const GradRef& input : inputs) {
    if (!input || !input->is_parameter) continue;
    if (mode_ == Mode::count) ++input->uses;
    counted_.push_back(input);
  }
  counted_.insert(counted_.end(), counted.begin(), counted.end());
}

std::vector<GradRef> Tape::take_counted() {
  return std::exchange(counted_, {});
}

void Tape::backward(Ctx& ctx, const Var& loss, const Tensor& seed) {
  backward(ctx, std::span(&loss, 1), std::span(&seed, 1));
}

void Tape::backward(Ctx& ctx, std::span<const Var> outputs, std::span<const Tensor> seeds) {
  FOVEA_ASSERT(keeps() && outputs.size() == seeds.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!seeds[i].defined()) continue;
    const Shape& shape = outputs[i].shape();
    if (seeds[i].numel() != shape.numel()) {
      throw ShapeError(cat("backward: the seed ", seeds[i].shape().str(),
                           " does not fit the output ", shape.str()));
    }
    give(ctx, outputs[i].grad(), seeds[i].shape() == shape ? seeds[i] : seeds[i].reshape(shape));
  }
  run_back(ctx);
}

void Tape::run_back(Ctx& ctx) {
  const Under under(ctx, nullptr, ctx.backward_of);  // no second derivatives
  std::vector<Tensor> dout;
  try {
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      dout.clear();
      bool any = false;
      for (const GradRef& output : node.outputs) {
        dout.push_back(output ? std::exchange(output->value, Tensor{}) : Tensor{});
        any = any || dout.back().defined();
      }
      ctx.backward_of = node.op;
      const std::vector<GradRef> counted = std::exchange(node.counted, {});
      if (any) {
        node.run(ctx, dout);
      } else {
        for (const GradRef& parameter : counted)
          release(parameter);  // nothing else will
      }
      // The node goes, and with it what its closure saved, before others may need memory.
      const std::vector<GradRef> inputs = std::move(node.inputs);
      nodes_.pop_back();
      for (const GradRef& input : inputs) {
        if (input) release(input);
      }
    }
  } catch (...) {
    clear();
    throw;
  }
}

void Tape::close_unused(std::span<const GradRef> parameters) {
  for (const GradRef& grad : parameters) {
    if (grad && grad->uses == 0 && grad->on_ready) grad->on_ready();
  }
}

void Tape::clear() {
  for (const Node& node : nodes_) {
    for (const GradRef& input : node.inputs) {
      if (input) --input->uses;
    }
    for (const GradRef& parameter : node.counted)
      --parameter->uses;
  }
  nodes_.clear();
  for (const GradRef& parameter : counted_) {
    if (mode_ == Mode::count) --parameter->uses;
  }
  counted_.clear();
}

std::string Tape::dump() const {
  std::string out;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::size_t inputs = 0;
    for (const GradRef& input : nodes_[i].inputs)
      inputs += input ? 1 : 0;
    const std::size_t outputs = nodes_[i].outputs.size();
    out += cat(i, " ", nodes_[i].op, " ", inputs, " of ", nodes_[i].inputs.size(),
               " inputs wanted, ", outputs, outputs == 1 ? " output\n" : " outputs\n");
  }
  return out;
}

std::vector<Var> finish(Ctx& ctx, const char* op, std::span<const Tensor> outs,
                        std::vector<GradRef> inputs, Backward backward) {
  bool any = false;
  for (const GradRef& input : inputs)
    any = any || input != nullptr;
  std::vector<Var> result;
  std::vector<GradRef> outputs;
  const bool recorded = ctx.tape != nullptr && any;
  for (const Tensor& out : outs) {
    GradRef grad = recorded ? std::make_shared<Grad>() : nullptr;
    if (recorded) outputs.push_back(grad);
    result.emplace_back(out, std::move(grad));
  }
  if (recorded) ctx.tape->append(op, std::move(outputs), std::move(inputs), std::move(backward));
  return result;
}

std::vector<Var> finish(Ctx& ctx, const char* op, std::span<const Tensor> outs,
                        std::initializer_list<GradRef> inputs, Backward backward) {
  return finish(ctx, op, outs, std::vector<GradRef>(inputs), std::move(backward));
}

Var finish(Ctx& ctx, const char* op, Tensor out, std::initializer_list<GradRef> inputs,
           Backward backward) {
  return std::move(finish(ctx, op, std::span<const Tensor>(&out, 1), std::vector<GradRef>(inputs),
                          std::move(backward))
                       .front());
}

void give(Ctx& ctx, const GradRef& to, Tensor g) {
  if (!to || !g.defined()) return;
  if (to->value.defined()) FOVEA_ASSERT(to->value.shape() == g.shape());
  if (to->is_parameter) {
    // A frozen or absent buffer has no gradient slot at all, so a parameter here has its buffer.
    FOVEA_ON(ctx.device, accumulate(ctx.stream.ref(), to->value.view(), g.view()));
    return;
  }
  if (!to->value.defined()) {
    to->value = std::move(g);
    return;
  }
  if (to->value.owns_alone() && to->value.is_contiguous()) {
    FOVEA_ON(ctx.device, accumulate(ctx.stream.ref(), to->value.view(), g.view()));
    return;
  }
  const Tensor sum = ctx.empty(to->value.shape(), to->value.dtype(), "give");
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), sum.view(), to->value.view()));
  FOVEA_ON(ctx.device, accumulate(ctx.stream.ref(), sum.view(), g.view()));
  to->value = sum;
}

std::vector<Var> checkpoint(Ctx& ctx,
                            std::function<std::vector<Var>(Ctx&, std::span<const Var>)> fn,
                            std::vector<Var> inputs) {
  if (ctx.tape == nullptr) return fn(ctx, inputs);
  const Tape::Mode outer = ctx.tape->mode();
  // A second run of an outer block comes here again: the uses below were counted in its first run.
  const bool counted = outer == Tape::Mode::recount || outer == Tape::Mode::idle;
  Tape counting(counted ? Tape::Mode::idle : Tape::Mode::count);
  std::vector<Var> first;
  {
    const Under under(ctx, &counting, ctx.backward_of);
    first = fn(ctx, inputs);
  }
  bool any = false;
  std::vector<GradRef> result_grads;
  std::vector<Var> result;
  for (const Var& out : first) {
    // A slot of its own even where fn returned one of its inputs: what lies behind the block reads
    // this node's outputs.
    result_grads.push_back(out.requires_grad() ? std::make_shared<Grad>() : nullptr);
    result.emplace_back(out.value(), result_grads.back());
    any = any || out.requires_grad();
  }
  if (!any) return result;
  std::vector<GradRef> grads;
  grads.reserve(inputs.size());
  for (const Var& input : inputs)
    grads.push_back(input.grad());
  // The second run gives to the inputs' own slots, so sums have the order of a run without
  // checkpoint.
  auto backward = [fn = std::move(fn), inputs = std::move(inputs)](Ctx& c,
                                                                   std::span<const Tensor> dout) {
    Tape tape(Tape::Mode::recount);
    std::vector<Var> again;
    {
      const Under under(c, &tape, nullptr);
      again = fn(c, inputs);
    }
    tape.backward(c, again, dout);
  };
  ctx.tape->append("checkpoint", std::move(result_grads), std::move(grads), std::move(backward),
                   counting.take_counted());
  return result;
}

}  // namespace fovea
