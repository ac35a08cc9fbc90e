#include "train/check_attention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "attention/contract/named_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"
#include "train/check_attention_compare.h"
#include "train/check_attention_input.h"

namespace fovea::train {

namespace {

using attention::AttentionOutput;
using attention::AttentionSpec;

Precision precision_of(const CheckFileArgs& args, Device device) {
  for (const Precision p : {Precision::fp64, Precision::fp32, Precision::tf32,
                            Precision::fp16_mixed, Precision::bf16_mixed}) {
    if (args.precision != name_of(p)) continue;
    if (p == Precision::tf32 && device.is_cpu())
      throw ConfigError(
          "precision tf32: the CPU has no tf32 arithmetic; use fp32, or --device cuda");
    if (p == Precision::fp64 && device.is_cuda())
      throw ConfigError("precision fp64: the CPU alone has it; use --device cpu, or fp32");
    return p;
  }
  throw ConfigError(cat("precision is '", args.precision,
                        "', but must be fp64, fp32, tf32, fp16-mixed or bf16-mixed"));
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

Tensor seed_of(const Var& output, const Tensor& gradient, const CheckInput& input, const char* name,
               Stream& stream) {
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
  return stream.device().is_cpu() ? out : out.to(stream.device(), stream);
}

// A contiguous copy as it is written, or zeros where nobody gave a gradient.
Tensor written(Ctx& ctx, const Tensor& x, const Shape& shape, DType dtype) {
  if (!x.defined())
    return Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel()), 0.0), shape,
                        dtype);
  Tensor out = Tensor::empty(shape, dtype, kCpu);
  transfer(out, contiguous(ctx, x, "written"), ctx.stream);
  return out;
}

std::vector<data::NamedTensor> run_operator(CheckInput& input, attention::Standalone& alone,
                                            const CheckTokens& run, Precision precision,
                                            Stream& stream) {
  const attention::AttentionInput in = placed(run.in, stream);
  Tape tape;
  // Gradients outlive this call in the leaves.
  Ctx ctx{.device = stream.device(),
          .stream = stream,
          .activations = persistent_allocator(stream.device())};
  ctx.tape = &tape;
  ctx.precision = precision;
  ctx.training = true;  // masks as they are drawn; the attention's own dropout is 0
  alone.want_gradients();
  AttentionOutput out = alone.method().forward(ctx, in);
  std::vector<Var> penalties;
  alone.method().aux_loss(ctx, penalties);
  for (const Var& penalty : penalties)
    out.aux = out.aux.defined() ? add(ctx, out.aux, penalty) : penalty;
  const DType dtype = state_dtype(precision);
  std::vector<data::NamedTensor> result;
  const std::pair<const char*, const Var*> outputs[] = {
      {"o", &out.o}, {"lse", &out.lse}, {"den", &out.den}, {"m", &out.m}, {"aux", &out.aux}};
  for (const auto& [name, var] : outputs) {
    if (var->defined()) result.push_back({name, written(ctx, var->value(), var->shape(), dtype)});
  }
  const Tensor one = Tensor::from(std::vector<double>{1.0}, {}, DType::f64);
  const Var ends[] = {out.o, out.lse, out.den, out.aux};
  const Tensor seeds[] = {
      seed_of(out.o, run.dout, input, "do", stream),
      seed_of(out.lse, run.dlse, input, "dlse", stream),
      seed_of(out.den, run.dden, input, "dden", stream),
      seed_of(out.aux, out.aux.defined() ? one : Tensor{}, input, "aux", stream)};
  tape.backward(ctx, ends, seeds);
  for (const auto& [gradient, part] : attention::contract::kNamedInputs) {
    const Var& leaf = in.*part;
    if (leaf.defined())
      result.push_back(
          {std::string(gradient), written(ctx, leaf.grad()->value, leaf.shape(), dtype)});
  }
  for (const auto& [name, parameter] : alone.parameters()) {
    if (parameter->tally) continue;
    result.push_back(
        {cat("grad.param.", name), written(ctx, parameter->grad->value, parameter->shape, dtype)});
  }
  return result;
}

// The result must not take the place of what it comes from or is compared with.
void require_other_file(const CheckFileArgs& args) {
  if (args.output.empty()) return;
  for (const auto& [option, path] :
       {std::pair("--input", &args.input), std::pair("--expect", &args.expect)}) {
    std::error_code not_there;
    if (!path->empty() && std::filesystem::equivalent(*path, args.output, not_there))
      throw ConfigError(cat("--output is ", args.output, ", the file of ", option,
                            ", which would be lost; name another"));
  }
}

// Before anything is computed: that a file to compare with is of this kind, and a result.
void require_results(const std::string& path, const std::string& kind, const AttentionSpec& spec) {
  const data::SafetensorsFile file(path);
  const auto found = file.metadata().find("kind");
  if (found != file.metadata().end() && attention::find_attention(found->second) != &spec)
    throw ConfigError(cat(path, ": holds results of ", found->second, ", not of ", kind));
  if (file.find("o") == nullptr)
    throw ConfigError(cat(path, ": has no tensor o",
                          file.find("q") != nullptr ? ", but q: it is an input, no result"
                                                    : ", so it is no result of a check"));
}

// A failed row for every tensor that holds NaN.
std::vector<CheckFileRow> not_numbers(const std::vector<data::NamedTensor>& result) {
  std::vector<CheckFileRow> rows;
  for (const data::NamedTensor& each : result) {
    const std::vector<double> values = each.tensor.values();
    const auto nan =
        std::find_if(values.begin(), values.end(), [](double x) { return std::isnan(x); });
    if (nan == values.end()) continue;
    rows.push_back({.name = each.name, .reason = cat("NaN at element ", nan - values.begin())});
  }
  return rows;
}

}  // namespace

bool CheckFileResult::passed() const {
  return std::all_of(rows.begin(), rows.end(), [](const CheckFileRow& row) { return row.passed; });
}

Device check_device(const std::string& name) {
  if (name == "cpu") return kCpu;
  if (name != "cuda") throw ConfigError(cat("device is '", name, "', but must be cpu or cuda"));
  const std::string why = cuda::device_count() > 0 ? cuda::why_too_old(0) : cuda::why_none();
  if (why.empty()) return {Device::Kind::cuda, 0};
  throw DeviceError(cat("--device is cuda, but ", why, "; --device cpu needs none"));
}

CheckFileResult check_attention_file(const CheckFileArgs& args) {
  const Device device = check_device(args.device);
  const Precision precision = precision_of(args, device);
  const AttentionSpec& spec = spec_of(args.kind);
  require_other_file(args);
  CheckInput input(args.input);
  const CheckSetup setup = read_setup(args, spec, input);
  if (!args.expect.empty()) require_results(args.expect, args.kind, spec);
  Stream stream(device);
  if (device.is_cuda()) stream.set_tf32(precision == Precision::tf32);
  attention::Standalone alone(spec, setup.config, setup.options, precision, device);
  const CheckTokens run = read_tokens(input, spec, setup, compute_dtype(precision));
  read_module(input, alone, stream);
  input.refuse_rest(args.kind);
  std::vector<data::NamedTensor> result;
  try {
    result = run_operator(input, alone, run, precision, stream);
  } catch (const ShapeError& error) {
    throw ConfigError(cat(args.input, ": ", error.what()));
  }
  if (!args.output.empty())
    data::write_safetensors(args.output, result,
                            {{"kind", std::string(spec.name)}, {"precision", name_of(precision)}});
  CheckFileResult out;
  out.kernel = alone.method().kernel();
  if (args.expect.empty()) {
    out.rows = not_numbers(result);
    return out;
  }
  const bool shared_mask = !run.in.query_valid.defined() && run.in.q.size(2) == run.in.v.size(2);
  out.rows = compare_tensors(result, args.expect, check_tolerance(args.expect, precision),
                             run.in.key_valid, shared_mask ? run.in.key_valid : run.in.query_valid);
  return out;
}

}  // namespace fovea::train
