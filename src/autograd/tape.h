#pragma once
// The explicit tape. Nodes are appended in execution order and run from the back: no sort, no
// recursion, memory freed as the tape unwinds.

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// Runs an op's derivative. dout[i] is the gradient of output i, undefined if nobody gave one. The
// capture list is the list of saved tensors; the context arrives as an argument and is never
// captured.
using Backward = std::function<void(Ctx&, std::span<const Tensor> dout)>;

class Tape {
 public:
  enum class Mode {
    record,   // keep the closures
    count,    // count the uses of parameters only: the forward of a recomputed block
    recount,  // record, but parameters were counted before: the second run of a recomputed block
    idle,     // neither: the forward of a block recomputed inside a recomputed one
  };
  explicit Tape(Mode mode = Mode::record) : mode_(mode) {}
  ~Tape() { clear(); }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Runs backward from `loss` with the gradient `seed` (the loss's shape; a one-element tensor
  // where the loss is a scalar) and empties the tape.
  void backward(Ctx& ctx, const Var& loss, const Tensor& seed);
  // The same from several outputs; undefined seeds are skipped.
  void backward(Ctx& ctx, std::span<const Var> outputs, std::span<const Tensor> seeds);
  // Parameters that were never used still report ready: the buckets wait for them. Call it between
  // forward and backward, when exactly the unused ones have no uses.
  static void close_unused(std::span<const GradRef> parameters);

  std::size_t size() const { return nodes_.size(); }
  Mode mode() const { return mode_; }
  // Whether closures are kept: an op that computes gradients ahead of time asks.
  bool keeps() const { return mode_ == Mode::record || mode_ == Mode::recount; }
  // One line a node, in execution order: index, op, wanted inputs, outputs.
  std::string dump() const;
  // Forgets what was recorded, without running it; so does the destructor.
  void clear();

  // Used by finish(): see there. `counted` are parameters whose uses were counted ahead and are
  // released by `run` itself.
  void append(const char* op, std::vector<GradRef> outputs, std::vector<GradRef> inputs,
              Backward run, std::vector<GradRef> counted = {});
  // The parameters seen in mode count or idle, once a use; the caller answers for them from now on.
  std::vector<GradRef> take_counted();

 private:
  struct Node {
    const char* op;
    std::vector<GradRef> outputs, inputs, counted;
    Backward run;
  };
  void run_back(Ctx& ctx);

  Mode mode_;
  std::vector<Node> nodes_;
  std::vector<GradRef> counted_;  // modes count and idle
};

// Ends an op: records `backward` if the tape records and any input wants a gradient, and returns
// the output with its gradient slot. `inputs` lists all inputs of the op. `op` is a static string.
Var finish(Ctx& ctx, const char* op, Tensor out, std::initializer_list<GradRef> inputs,
           Backward backward);
// The same for ops with several outputs.
std::vector<Var> finish(Ctx& ctx, const char* op, std::span<const Tensor> outs,
                        std::initializer_list<GradRef> inputs, Backward backward);
std::vector<Var> finish(Ctx& ctx, const char* op, std::span<const Tensor> outs,
                        std::vector<GradRef> inputs, Backward backward);

// Gives a gradient. The first gift is kept as it is; later ones are added, in place only where the
// kept one owns its storage alone. A gift to a parameter is added to its buffer (converted to its
// dtype). `to` null: nothing happens.
void give(Ctx& ctx, const GradRef& to, Tensor g);

// Runs fn(ctx, inputs) without saving, and again under a tape of its own in backward: memory for
// time. Random numbers are keyed, so the second run repeats the first. Parameters are reached by
// fn's captures; their uses are counted in forward, so that on_ready fires once, late enough.
// Blocks may nest. Gradients have the same bits as without checkpoint.
std::vector<Var> checkpoint(Ctx& ctx,
                            std::function<std::vector<Var>(Ctx&, std::span<const Var>)> fn,
                            std::vector<Var> inputs);

}  // namespace fovea
