#include "train/check_attention.h"

#include <algorithm>

#include "autograd/ops/elementwise.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "train/check_attention_compare.h"
#include "train/check_attention_input.h"

namespace fovea::train {

namespace {

using attention::AttentionOutput;
using attention::AttentionSpec;

Precision precision_of(const CheckFileArgs& args) {
  for (const Precision p : {Precision::fp64, Precision::fp32, Precision::tf32,
                            Precision::fp16_mixed, Precision::bf16_mixed}) {
    if (args.precision != name_of(p)) continue;
    if (p == Precision::tf32)
      throw ConfigError(
          "precision tf32: the CPU has no tf32 arithmetic; use fp32, or --device cuda");
    return p;
  }
  throw ConfigError(cat("precision is '", args.precision,
                        "', but must be fp64, fp32, tf32, fp16-mixed or bf16-mixed"));
}

void require_device(const std::string& device) {
  if (device == "cpu") return;
  if (device != "cuda") throw ConfigError(cat("device is '", device, "', but must be cpu or cuda"));
  throw DeviceError(
      "check attention runs on the cpu so far; the GPU's kernels are checked by the op cases of "
      "test_autograd; use --device cpu");
}

const AttentionSpec& spec_of(const std::string& kind) {
  const AttentionSpec* spec = attention::find_attention(kind);
  if (spec != nullptr) return *spec;
  std::vector<std::string> known;
  for (const AttentionSpec& s : attention::attention_specs())
    known.emplace_back(s.name);
  const std::string near = nearest(kind, known);
  throw ConfigError(
      cat("there is no attention method '", kind, "'; ",
          near.empty() ? cat("known: ", join(known, ", ")) : cat("did you mean ", near, "?")));
}

Tensor seed_of(const Var& output, const Tensor& gradient, const CheckInput& input,
               const char* name) {
  if (!output.defined()) {
    if (gradient.defined())
      throw ConfigError(
          cat(input.path(), ": tensor ", name, " is unexpected: the method has no such output"));
    return {};
  }
  if (!output.requires_grad() || !gradient.defined()) return {};
  if (!(gradient.shape() == output.shape()))
    throw ConfigError(cat(input.path(), ": tensor ", name, " is ", gradient.shape().str(),
                          ", but must be ", output.shape().str()));
  Tensor out = Tensor::empty(output.shape(), output.dtype(), kCpu);
  copy_host(out.view(), gradient.view());
  return out;
}

// A contiguous copy as it is written, or zeros where nobody gave a gradient.
Tensor written(const Tensor& x, const Shape& shape, DType dtype) {
  if (!x.defined())
    return Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel()), 0.0), shape,
                        dtype);
  Tensor out = Tensor::empty(shape, dtype, kCpu);
  copy_host(out.view(), x.view());
  return out;
}

std::vector<data::NamedTensor> run_operator(CheckInput& input, attention::Standalone& alone,
                                            const CheckTokens& run, Precision precision) {
  Stream stream(kCpu);
  Tape tape;
  // Gradients outlive this call in the leaves.
  Ctx ctx{.device = kCpu, .stream = stream, .activations = persistent_allocator(kCpu)};
  ctx.tape = &tape;
  ctx.precision = precision;
  ctx.training = true;  // masks as they are drawn; the attention's own dropout is 0
  alone.want_gradients();
  AttentionOutput out = alone.method().forward(ctx, run.in);
  std::vector<Var> penalties;
  alone.method().aux_loss(ctx, penalties);
  for (const Var& penalty : penalties)
    out.aux = out.aux.defined() ? add(ctx, out.aux, penalty) : penalty;
  const DType dtype = state_dtype(precision);
  std::vector<data::NamedTensor> result;
  const std::pair<const char*, const Var*> outputs[] = {
      {"o", &out.o}, {"lse", &out.lse}, {"den", &out.den}, {"m", &out.m}, {"aux", &out.aux}};
  for (const auto& [name, var] : outputs) {
    if (var->defined()) result.push_back({name, written(var->value(), var->shape(), dtype)});
  }
  const Tensor one = Tensor::from(std::vector<double>{1.0}, {}, DType::f64);
  const Var ends[] = {out.o, out.lse, out.den, out.aux};
  const Tensor seeds[] = {seed_of(out.o, run.dout, input, "do"),
                          seed_of(out.lse, run.dlse, input, "dlse"),
                          seed_of(out.den, run.dden, input, "dden"),
                          seed_of(out.aux, out.aux.defined() ? one : Tensor{}, input, "aux")};
  tape.backward(ctx, ends, seeds);
  const std::pair<const char*, const Var*> leaves[] = {{"grad.q", &run.in.q},
                                                       {"grad.k", &run.in.k},
                                                       {"grad.v", &run.in.v},
                                                       {"grad.x", &run.in.x},
                                                       {"grad.bias", &run.in.bias},
                                                       {"grad.q_global", &run.in.q_global},
                                                       {"grad.k_global", &run.in.k_global},
                                                       {"grad.v_global", &run.in.v_global}};
  for (const auto& [name, var] : leaves) {
    if (var->defined()) result.push_back({name, written(var->grad()->value, var->shape(), dtype)});
  }
  for (const auto& [name, parameter] : alone.parameters()) {
    if (parameter->tally) continue;
    result.push_back(
        {cat("grad.param.", name), written(parameter->grad->value, parameter->shape, dtype)});
  }
  return result;
}

}  // namespace

bool CheckFileResult::passed() const {
  return std::all_of(rows.begin(), rows.end(), [](const CheckFileRow& row) { return row.passed; });
}

CheckFileResult check_attention_file(const CheckFileArgs& args) {
  require_device(args.device);
  const Precision precision = precision_of(args);
  const AttentionSpec& spec = spec_of(args.kind);
  CheckInput input(args.input);
  const CheckSetup setup = read_setup(args, spec, input);
  attention::Standalone alone(spec, setup.config, setup.options, precision, kCpu);
  const CheckTokens run = read_tokens(input, spec, setup, compute_dtype(precision));
  read_module(input, alone);
  input.refuse_rest(args.kind);
  std::vector<data::NamedTensor> result;
  try {
    result = run_operator(input, alone, run, precision);
  } catch (const ShapeError& error) {
    throw ConfigError(cat(args.input, ": ", error.what()));
  }
  if (!args.output.empty())
    data::write_safetensors(args.output, result,
                            {{"kind", std::string(spec.name)}, {"precision", name_of(precision)}});
  CheckFileResult out;
  out.kernel = alone.method().kernel();
  if (args.expect.empty()) return out;
  const bool shared_mask = !run.in.query_valid.defined() && run.in.q.size(2) == run.in.v.size(2);
  out.rows = compare_tensors(result, args.expect, check_tolerance(args.expect, precision),
                             run.in.key_valid, shared_mask ? run.in.key_valid : run.in.query_valid);
  return out;
}

}  // namespace fovea::train
