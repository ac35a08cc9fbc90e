#pragma once
// A method alone with its inputs, that runs again and again.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/registry.h"
#include "attention/standalone.h"
#include "autograd/tape.h"
#include "core/memory.h"
#include "study/peers.h"

namespace fovea::study {

// Of a call of this size, without options of its own: cross-attention where queries and keys differ
// in number.
attention::AttentionConfig config_of(const AttentionSize& size);

class AttentionRunner {
 public:
  // Gives the memory of an input, contiguous and filled, on the stream's device: a name and its
  // shape, [B,N,heads width].
  using Make = std::function<Tensor(const std::string& name, Shape shape)>;

  // Inputs are what the method's projections name, as views of one packed tensor where queries and
  // keys are as many: as a model hands them over. Throws ConfigError for what the method refuses.
  AttentionRunner(const attention::AttentionSpec& spec, const config::Node& options,
                  const AttentionSize& size, Precision precision, Stream& stream, const Make& make);

  void forward(bool record);  // record: for backward()
  // From o, with a gradient of the inputs' kind; after forward(true), once.
  void backward();
  // The most that a forward and a backward have allocated at once, o and gradients included.
  std::size_t peak_bytes();

  attention::Standalone& alone() { return alone_; }
  const Tensor& o() const { return out_.o.value(); }
  // Of "q", "k" or "v"; undefined if the method gave none.
  Tensor gradient(std::string_view name) const;

 private:
  struct Slot {
    std::string_view name;
    Var attention::AttentionInput::*into;
    Tensor value;  // [B,heads,N,width]
  };
  void make_inputs(const std::vector<attention::ProjectionSpec>& projections,
                   const AttentionSize& size, const Make& make);

  attention::Standalone alone_;
  CachingAllocator memory_;
  Tape tape_;
  Ctx ctx_;
  std::vector<Slot> slots_;
  Tensor x_, dout_;
  attention::AttentionInput in_;
  attention::AttentionOutput out_;
};

}  // namespace fovea::study
