#include "attention/standalone.h"

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::attention {

namespace {

constexpr std::uint64_t kSeed = 1;

}  // namespace

Standalone::Standalone(const AttentionSpec& spec, AttentionConfig config,
                       const config::Node& options, Precision precision, Device device)
    : precision_(precision), device_(device), stream_(device) {
  config.shared = &shared_;
  method_ = make_attention(spec, config, options);
  method_->set_path("method");
  for (nn::Buffer* buffer : method_->buffers()) {
    if (device.is_cuda() && !buffer->on_host) buffer->value = buffer->value.to(device, stream_);
  }
  Stream host(kCpu);
  for (nn::Parameter* parameter : method_->parameters()) {
    const Tensor start = Tensor::empty(parameter->shape, state_dtype(precision), kCpu);
    nn::fill_initial(start, parameter->init, kSeed, parameter->path, host.ref());
    set(*parameter, start);
  }
  stream_.synchronize();
}

std::vector<std::pair<std::string, nn::Parameter*>> Standalone::parameters() {
  std::vector<std::pair<std::string, nn::Parameter*>> out;
  for (nn::Parameter* parameter : method_->parameters()) {
    out.emplace_back(parameter->path.substr(std::string_view("method.").size()), parameter);
  }
  return out;
}

void Standalone::set(nn::Parameter& parameter, const Tensor& value) {
  if (!(value.shape() == parameter.shape)) {
    throw ShapeError(
        cat(parameter.path, " is ", value.shape().str(), ", but must be ", parameter.shape.str()));
  }
  const DType state = state_dtype(precision_);
  const DType compute = parameter.keep_f32 ? state : compute_dtype(precision_);
  const auto as = [](DType dtype, const Tensor& from) {
    Tensor out = Tensor::empty(from.shape(), dtype, kCpu);
    copy_host(out.view(), from.view());
    return out;
  };
  const auto placed = [this](const Tensor& on_host) {
    return device_.is_cpu() ? on_host : on_host.to(device_, stream_);
  };
  const Tensor master = as(state, value);
  parameter.master = placed(master);
  parameter.compute = compute == state ? parameter.master : placed(as(compute, master));
  stream_.synchronize();
}

void Standalone::want_gradients() {
  for (nn::Parameter* parameter : method_->parameters()) {
    auto grad = std::make_shared<Grad>();
    grad->is_parameter = true;
    grad->value = Tensor::empty(parameter->shape, state_dtype(precision_), device_);
    FOVEA_ON(device_, fill(stream_.ref(), grad->value.view(), 0.0));
    parameter->grad = std::move(grad);
  }
  stream_.synchronize();
}

}  // namespace fovea::attention
