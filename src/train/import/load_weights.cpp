#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/import/imported_model.h"

namespace fovea::train {

namespace {

// An attention method's own state, which a model with another method has not.
bool is_methods_own(const std::string& path) {
  return path.find(".attn.method.") != std::string::npos;
}

struct Destination {
  Tensor value;
  bool two_sets = false;  // nn::Parameter::two_sets
};
using Destinations = std::map<std::string, Destination>;

Destinations destinations(nn::Module& model) {
  Destinations out;
  model.each_parameter([&](const std::string& path, nn::Parameter& parameter) {
    out.emplace(path, Destination{parameter.master, parameter.two_sets});
  });
  model.each_buffer([&](const std::string& path, nn::Buffer& buffer) {
    out.emplace(path, Destination{buffer.value});
  });
  return out;
}

std::int64_t rows_of(const WeightPart& part) {
  if (part.shape.empty()) return 1;
  return part.transposed ? part.shape.back() : part.shape.front();
}

// The shape that the parts have under one another.
std::vector<std::int64_t> stacked_shape(const std::vector<WeightPart>& parts) {
  std::vector<std::int64_t> out = parts.front().shape;
  if (parts.front().transposed) std::swap(out[0], out[1]);
  for (std::size_t i = 1; i < parts.size(); ++i)
    out[0] += rows_of(parts[i]);
  return out;
}

bool same(const Shape& a, const std::vector<std::int64_t>& b) {
  bool out = static_cast<std::size_t>(a.rank()) == b.size();
  for (int i = 0; out && i < a.rank(); ++i)
    out = a[i] == b[static_cast<std::size_t>(i)];
  return out;
}

// Whether the source has the first of two sets only.
bool has_half(const Destination& to, const std::vector<WeightPart>& parts) {
  std::vector<std::int64_t> both = stacked_shape(parts);
  both[0] *= 2;
  return to.two_sets && same(to.value.shape(), both);
}

bool has_numbers(const ForeignTensors& tensors, const WeightPart& part, DType dtype) {
  const auto found = tensors.find(part.name);
  return found == tensors.end() || is_float(found->second.dtype) == is_float(dtype);
}

void require_fit(const ImportedModel& from, const Destinations& into) {
  std::string wrong;
  std::int64_t fresh = 0, doubled = 0;
  for (const auto& [path, to] : into) {
    const Tensor& tensor = to.value;
    const auto plan = from.plan.parts.find(path);
    if (plan == from.plan.parts.end()) {
      fresh += is_methods_own(path) ? 1 : 0;
      if (!is_methods_own(path)) wrong += cat("\n  missing     ", path, " ", tensor.shape().str());
      continue;
    }
    const std::vector<std::int64_t> shape = stacked_shape(plan->second);
    const bool half = has_half(to, plan->second);
    doubled += half ? 1 : 0;
    if (!half && !same(tensor.shape(), shape)) {
      wrong += cat("\n  mis-shaped  ", path, " ", shape_text(shape), ", but the model has ",
                   tensor.shape().str());
    } else if (!has_numbers(from.tensors, plan->second.front(), tensor.dtype())) {
      wrong += cat("\n  mis-typed   ", path, ", but the model has ", name_of(tensor.dtype()));
    }
  }
  for (const auto& [path, parts] : from.plan.parts) {
    if (!into.contains(path) && !is_methods_own(path)) wrong += cat("\n  extra       ", path);
  }
  if (!wrong.empty()) throw CheckpointError(cat(from.path, ": is of another model:", wrong));
  if (doubled > 0)
    log::info(cat("not in ", from.path, ", so copies of the first: the second projections in ",
                  doubled, " tensors"));
  if (fresh == 0) return;
  log::info(cat("not in ", from.path, ", so as initialised: ", fresh,
                " tensors of the attention methods"));
}

void fill(Stream& stream, const Tensor& to, const std::vector<WeightPart>& parts,
          const ForeignTensors& tensors) {
  std::int64_t begin = 0;
  for (const WeightPart& part : parts) {
    const std::int64_t end = begin + rows_of(part);
    const Tensor rows = to.rank() == 0 ? to : to.slice(0, begin, end);
    begin = end;
    const auto found = tensors.find(part.name);
    if (found == tensors.end()) {
      const Tensor zeros = Tensor::empty(rows.shape(), rows.dtype(), kCpu);
      std::memset(zeros.view().data, 0, static_cast<std::size_t>(zeros.bytes()));
      transfer(rows, zeros, stream);
      continue;
    }
    const Tensor value = found->second.read();
    transfer(rows, part.transposed ? value.permute({1, 0}) : value, stream);
  }
}

}  // namespace

void load_weights(const ImportedModel& from, Ctx& ctx, nn::Module& model,
                  optim::ParameterStore& store) {
  const Destinations into = destinations(model);
  require_fit(from, into);
  if (ctx.device.is_meta()) return;
  try {
    for (const auto& [path, to] : into) {
      const auto plan = from.plan.parts.find(path);
      if (plan == from.plan.parts.end()) continue;
      if (!has_half(to, plan->second)) {
        fill(ctx.stream, to.value, plan->second, from.tensors);
        continue;
      }
      const std::int64_t rows = to.value.size(0) / 2;
      for (const std::int64_t begin : {std::int64_t{0}, rows})
        fill(ctx.stream, to.value.slice(0, begin, begin + rows), plan->second, from.tensors);
    }
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
  store.refresh(ctx);
}

}  // namespace fovea::train
