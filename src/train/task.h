#pragma once
// What to learn. A task owns the model and the data, turns a batch into a loss, and scores.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"
#include "data/eval_source.h"
#include "data/loader.h"
#include "nn/module.h"

namespace fovea::train {

struct RunConfig;
using data::Split;

// A sum over targets, never a mean: counts are added over micro-batches and ranks before scaling.
struct Loss {
  Var sum;                   // [] of acc
  std::int64_t targets = 0;  // how many terms the sum has
  std::vector<Var> aux;      // auxiliary terms of activations, [] each; a term weighs aux x targets
};

// Named sums of an evaluation, added in batch order in f64.
struct Metrics {
  double loss_sum = 0;  // nats
  std::int64_t targets = 0;
  std::map<std::string, double> sums;  // "correct", "bytes", ...
  // Where score() appends each scored target's own loss, in the order of the batch; null: nowhere.
  std::vector<double>* losses = nullptr;
};

// Metrics in their public form and order: {"loss", 3.41}, {"accuracy", 0.97}, ...
using Report = std::vector<std::pair<std::string, double>>;

class Task {
 public:
  virtual ~Task() = default;
  virtual const data::Loader& loader() = 0;  // training
  virtual const data::EvalLoader& held_out(
      Split) = 0;  // validation or test; throws IoError if there is none
  // data::Source::fingerprint() of the training data.
  virtual std::string data_fingerprint() { return {}; }
  virtual nn::Module& model() = 0;
  // Token ids are below it; 0: inputs are no ids.
  virtual std::int64_t vocabulary() const { return 0; }
  virtual Loss forward(Ctx& ctx, const data::Batch& batch) = 0;
  // Adds the batch's sums. On meta there is nothing to add.
  virtual void score(Ctx& ctx, const data::Batch& batch, Metrics& into) = 0;
  // Adds what the first `examples` of a held-out split hold besides targets: bytes of text.
  virtual void count(Split, std::int64_t /*examples*/, Metrics&) {}
  // What held_out() is cut from; null where examples are no windows of a text.
  virtual const data::EvalSource* text_of(Split) { return nullptr; }
  virtual Report report(const Metrics& metrics) const = 0;
  // Whether what was scored decides which names a report has.
  virtual bool reports_by_results() const { return false; }
  // The reported metric that early stopping and keep_best watch, and whether larger is better.
  virtual std::string_view watched() const { return "loss"; }
  virtual bool larger_is_better() const { return false; }
  // Useful or executed FLOPs of one training step of the whole global batch.
  virtual double step_flops(bool executed) const = 0;
  // One line about the data and one about each layer's kernel, for the run's header.
  virtual std::vector<std::string> summary() { return {}; }
};

struct TaskSpec {
  std::string_view name, summary;
  // A model with its path set, not yet adopted by a store. Throws ConfigError or IoError.
  std::unique_ptr<Task> (*make)(const RunConfig& config);
};

// In alphabetical order.
const std::vector<TaskSpec>& task_specs();
const TaskSpec* find_task(std::string_view name);  // null if there is none
// Throws ConfigError for a name that no task has, with the nearest.
std::unique_ptr<Task> make_task(const RunConfig& config);

}  // namespace fovea::train
