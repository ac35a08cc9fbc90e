#pragma once
// What `check attention` reads from its input file; private to it.

#include <functional>
#include <set>
#include <string>

#include "attention/standalone.h"
#include "data/safetensors.h"
#include "train/check_attention.h"

namespace fovea::train {

// What a tensor must hold.
enum class CheckKind {
  real,   // a float dtype
  mask,   // U8 or BOOL, 0 or 1
  index,  // I32 or I64
};

// An input file, read with the names it must and may hold in view. What does not fit is a
// ConfigError that names the tensor, numbers that are not finite are an IoError.
class CheckInput {
 public:
  explicit CheckInput(const std::string& path) : file_(path) {}

  const std::string& path() const { return file_.path(); }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::string metadata(const std::string& key) const;
  // Throws if there is no such tensor.
  Shape shape(const std::string& name) const;
  // Undefined if it is not there; throws unless its shape `fits`, which `expected` describes.
  Tensor take(const std::string& name, CheckKind kind,
              const std::function<bool(const Shape&)>& fits, const std::string& expected);
  Tensor take(const std::string& name, CheckKind kind, const Shape& expected);
  // Throws if it is not there.
  Tensor need(const std::string& name, CheckKind kind, const Shape& expected);
  // The same, of the whole shape or of one entry of its first axis.
  Tensor need_any(const std::string& name, CheckKind kind, const Shape& whole);
  // Throws if a number of `x`, which was read as `name`, is NaN or infinite, except in rows of
  // tokens (axis `axis`) that `valid`, u8 [B,N] or undefined, calls invalid.
  void require_finite(const std::string& name, const Tensor& x, int axis,
                      const Tensor& valid) const;
  // Throws if the file holds a tensor that nobody took.
  void refuse_rest(const std::string& kind) const;

 private:
  data::SafetensorsFile file_;
  std::set<std::string> used_;
};

// The operator's surroundings and options, as the file and the command line give them.
struct CheckSetup {
  attention::AttentionConfig config;
  config::Node options;
};
CheckSetup read_setup(const CheckFileArgs& args, const attention::AttentionSpec& spec,
                      const CheckInput& input);

// The tokens, as leaves of `dtype` on the CPU, and the gradients of the outputs as they stand in
// the file.
struct CheckTokens {
  attention::AttentionInput in;
  Tensor dout, dlse, dden;
};
CheckTokens read_tokens(CheckInput& input, const attention::AttentionSpec& spec,
                        const CheckSetup& setup, DType dtype);

// The same on the stream's device; leaves of their own.
attention::AttentionInput placed(const attention::AttentionInput& in, Stream& stream);

// Parameters from param.NAME, buffers from draw.NAME or mask.NAME: all of them, nothing is drawn.
// Masks (u8) may be absent. A draw without a buffer's first axis (a pool, heads) fills all of it.
// Buffers arrive on the stream.
void read_module(CheckInput& input, attention::Standalone& alone, Stream& stream);

}  // namespace fovea::train
