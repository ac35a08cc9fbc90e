#include "nn/module.h"

#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace fovea::nn {

std::string Module::below(std::string_view name) const {
  return path_.empty() ? std::string(name) : cat(path_, ".", name);
}

void Module::set_path(const std::string& path) {
  for (Parameter* parameter : parameters())
    parameter->path.clear();
  assign_paths(path);
}

void Module::assign_paths(const std::string& path) {
  path_ = path;
  for (auto& [name, parameter] : parameters_) {
    if (parameter->path.empty()) parameter->path = below(name);  // shared: the first path stays
  }
  for (auto& [name, buffer] : buffers_)
    buffer->path = below(name);
  for (auto& [name, module] : children_)
    module->assign_paths(below(name));
}

void Module::collect(std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& into) const {
  for (const auto& [name, parameter] : parameters_)
    into.emplace_back(below(name), parameter);
  for (const auto& [name, module] : children_)
    module->collect(into);
}

void Module::collect_buffers(std::vector<Buffer*>& into) {
  for (auto& [name, buffer] : buffers_)
    into.push_back(buffer.get());
  for (auto& [name, module] : children_)
    module->collect_buffers(into);
}

std::vector<Parameter*> Module::parameters() {
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> all;
  collect(all);
  std::set<Parameter*> seen;
  std::vector<Parameter*> out;
  for (const auto& [path, parameter] : all) {
    if (seen.insert(parameter.get()).second) out.push_back(parameter.get());
  }
  return out;
}

std::vector<Buffer*> Module::buffers() {
  std::vector<Buffer*> out;
  collect_buffers(out);
  return out;
}

std::map<std::string, std::string> Module::aliases() {
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> all;
  collect(all);
  std::map<std::string, std::string> out;
  for (const auto& [path, parameter] : all) {
    if (path != parameter->path) out.emplace(path, parameter->path);
  }
  return out;
}

void Module::aux_loss(Ctx& ctx, std::vector<Var>& into) {
  for (auto& [name, module] : children_)
    module->aux_loss(ctx, into);
}

void Module::before_step(Ctx& ctx, const Clock& clock) {
  for (auto& [name, module] : children_)
    module->before_step(ctx, clock);
}

void Module::after_step(Ctx& ctx, const Clock& clock) {
  for (auto& [name, module] : children_)
    module->after_step(ctx, clock);
}

void Module::measure(const Clock& clock, std::vector<Measure>& into) {
  for (auto& [name, module] : children_)
    module->measure(clock, into);
}

Parameter& Module::own(std::string_view name, Shape shape, Init init, Decay decay) {
  auto parameter = std::make_shared<Parameter>();
  parameter->path = name;
  parameter->shape = shape;
  parameter->init = init;
  parameter->decay = decay;
  return share(name, std::move(parameter));
}

Parameter& Module::share(std::string_view name, std::shared_ptr<Parameter> parameter) {
  for (const auto& [other, taken] : parameters_)
    FOVEA_ASSERT(other != name);
  parameters_.emplace_back(name, std::move(parameter));
  return *parameters_.back().second;
}

std::shared_ptr<Parameter> Module::handle(std::string_view name) const {
  for (const auto& [own_name, parameter] : parameters_) {
    if (own_name == name) return parameter;
  }
  FOVEA_ASSERT(!"no parameter of that name");
}

Tensor& Module::buffer(std::string_view name, Tensor value, bool on_host) {
  for (const auto& [other, taken] : buffers_)
    FOVEA_ASSERT(other != name);
  buffers_.emplace_back(
      name, std::make_unique<Buffer>(Buffer{std::string(name), std::move(value), on_host}));
  return buffers_.back().second->value;
}

void Module::adopt(std::string_view name, std::unique_ptr<Module> module) {
  for (const auto& [other, taken] : children_)
    FOVEA_ASSERT(other != name);
  children_.emplace_back(name, std::move(module));
}

std::shared_ptr<Parameter> SharedParameters::get(std::string_view name, Shape shape, Init init,
                                                 int layer) {
  const Entry* const found = find(name);
  if (found == nullptr) {
    auto parameter = std::make_shared<Parameter>();
    parameter->shape = shape;
    parameter->init = init;
    by_name_.emplace(name, Entry{parameter, layer});
    return parameter;
  }
  if (!(found->parameter->shape == shape)) {
    throw ShapeError(cat("shared parameter ", name, ": ", found->parameter->shape.str(),
                         " in the first layer, but ", shape.str(), " in a later one"));
  }
  return found->parameter;
}

const SharedParameters::Entry* SharedParameters::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

}  // namespace fovea::nn
