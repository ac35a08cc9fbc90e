#pragma once
// Modules own parameters and buffers by name; paths, not positions, identify them.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea::nn {

// Where a run stands: everything a hook may depend on besides seed and path.
struct Clock {
  std::int64_t step = 0;          // optimizer steps finished
  std::int64_t max_steps = 0;     // 0: unknown
  std::int64_t warmup_steps = 0;  // of the learning rate
};

// A number that a module tells of itself: "blocks.0.attn.method.density".
struct Measure {
  std::string name;
  double value = 0;
};

// How a parameter starts: a pure function of (seed, path, index), never of construction order.
struct Init {
  enum class Kind { zeros, ones, constant, normal, uniform };
  Kind kind = Kind::zeros;
  double value = 0;  // constant: the value; normal: standard deviation; uniform: half-width
  double mean = 0;   // normal only
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init constant(double v) { return {Kind::constant, v}; }
  static Init normal(double std, double mean = 0) { return {Kind::normal, std, mean}; }
  static Init uniform(double half_width) { return {Kind::uniform, half_width}; }
};

enum class Decay { yes, no, by_shape };  // by_shape: tensors with two or more dimensions decay

// Tensors are undefined until optim::ParameterStore adopts the model.
struct Parameter {
  std::string path;  // "blocks.3.attn.proj.weight"; set when the root is named
  Shape shape;
  Init init;
  Decay decay = Decay::by_shape;
  bool keep_f32 = false;  // replicated, never cast
  // Nothing to train: its gradient is summed over the batch and all ranks as any other, is no part
  // of the norm, and becomes the value. For what after_step must know of the whole batch.
  bool tally = false;
  // Its rows are two sets of one shape: weights that have only the first are read into both.
  bool two_sets = false;
  // Rows that the tensors below may be widened to, those behind the last one zero; set by the flat
  // store where products want it.
  std::int64_t padded_rows = 0;
  Tensor master;   // state dtype (f32, or f64)
  Tensor compute;  // what products read: the compute dtype; master itself where they agree
  GradRef grad;    // null while frozen or evaluating
  // Makes the optimizer forget its moments of the elements where keep is 0 (a CPU tensor of this
  // shape: 0 or 1). Null: there is no optimizer.
  std::function<void(Ctx& ctx, const Tensor& keep)> forget;
  // The value ops read, with its gradient slot.
  Var var() const { return Var(compute, grad); }
};

// Saved with the model, never optimised.
struct Buffer {
  std::string path;
  Tensor value;
  bool on_host = false;  // stays there on a GPU too, since the module reads it itself
};

class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Names this module and everything below it; call once on the root, with "". Paths key the random
  // numbers of dropout and initialisation.
  void set_path(const std::string& path);
  const std::string& path() const { return path_; }

  // Visits in registration order, children after own; a shared parameter once, under its first
  // path.
  template <class F>
  void each_parameter(F&& visit) {
    for (Parameter* parameter : parameters())
      visit(parameter->path, *parameter);
  }
  template <class F>
  void each_buffer(F&& visit) {
    for (Buffer* buffer : buffers())
      visit(buffer->path, *buffer);
  }
  std::vector<Parameter*> parameters();
  std::vector<Buffer*> buffers();
  // Second paths of shared parameters: alias -> first path.
  std::map<std::string, std::string> aliases();

  // By default each visits the children. aux_loss: terms of parameters only; activation terms come
  // out of forward. before_step fills named buffers as a pure function of (seed, path, step).
  // after_step: the method's own turn after the optimizer.
  virtual void aux_loss(Ctx& ctx, std::vector<Var>& into);
  virtual void before_step(Ctx& ctx, const Clock& clock);
  virtual void after_step(Ctx& ctx, const Clock& clock);
  // What it found in the after_step of this clock, for the run's metrics; by default its
  // children's.
  virtual void measure(const Clock& clock, std::vector<Measure>& into);

 protected:
  Parameter& own(std::string_view name, Shape shape, Init init, Decay decay = Decay::by_shape);
  // Joins a parameter another module owns too (tied head, shared projections).
  Parameter& share(std::string_view name, std::shared_ptr<Parameter> parameter);
  // The owner's handle, for sharing.
  std::shared_ptr<Parameter> handle(std::string_view name) const;
  Tensor& buffer(std::string_view name, Tensor value, bool on_host = false);
  template <class M>
  M& child(std::string_view name, std::unique_ptr<M> module) {
    M& reference = *module;
    adopt(name, std::move(module));
    return reference;
  }

 private:
  void adopt(std::string_view name, std::unique_ptr<Module> module);
  void collect(std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& into) const;
  void collect_buffers(std::vector<Buffer*>& into);
  void assign_paths(const std::string& path);
  std::string below(std::string_view name) const;

  std::string path_;
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
  std::vector<std::pair<std::string, std::unique_ptr<Buffer>>> buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
};

// Parameters that several modules of one model share by name (Linformer's `share: layer`).
class SharedParameters {
 public:
  struct Entry {
    std::shared_ptr<Parameter> parameter;
    int layer = 0;  // that asked first
  };
  // The parameter of that name; made by the first call. Throws ShapeError if a later call
  // disagrees.
  std::shared_ptr<Parameter> get(std::string_view name, Shape shape, Init init, int layer = 0);
  // Null if nobody asked for it yet.
  const Entry* find(std::string_view name) const;

 private:
  std::map<std::string, Entry, std::less<>> by_name_;
};

// The initial value of element `index` of the parameter under `path`, rounded to f32: an fp64 run
// starts from the weights of an fp32 run.
double initial_value(const Init& init, std::uint64_t seed, std::string_view path,
                     std::uint64_t index);
// Writes all of them to a contiguous f32 or f64 CPU tensor; `threads` is a CPU stream's handle.
void fill_initial(const Tensor& to, const Init& init, std::uint64_t seed, std::string_view path,
                  StreamRef threads);

}  // namespace fovea::nn
