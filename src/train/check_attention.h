#pragma once
// One attention operator fed from a file: what `fovea check attention KIND --input ...` does, so
// that any outside program can compare. The contract is that of the golden cases
// (docs/adding-attention.md names it): the input file holds q, k, v, do, parameters and draws, the
// output file o, lse, gradients.

#include <string>
#include <vector>

#include "core/device.h"

namespace fovea::train {

struct CheckFileArgs {
  std::string kind = {};                    // must be the file's
  std::string input = {}, output = {};      // safetensors; output "": nothing is written
  std::string expect = {};                  // "": nothing is compared
  std::string device = "cpu";               // cpu | cuda
  std::string precision = "fp32";           // fp32 | fp64 | tf32 | fp16-mixed | bf16-mixed
  std::string kernel = {};                  // "": as the options say
  std::vector<std::string> overrides = {};  // key=value, over the options of the file
};

struct CheckFileRow {
  std::string name;      // of the tensor
  double error = 0;      // max |a - b| / max(max |b|, 0.01)
  double tolerance = 0;  // for it; 0 for integers
  bool passed = false;
  std::string reason = {};  // "" if it passed
};

struct CheckFileResult {
  std::vector<CheckFileRow> rows;  // a row a tensor of `expect`, in its order
  std::string kernel;              // that ran
  bool passed() const;
};

// The device that --device names, cpu or cuda. Throws ConfigError for another name, DeviceError
// with the reason where no GPU can be used.
Device check_device(const std::string& name);

// Runs forward, then backward from do (and dlse, dden), without dropout or anything drawn at
// random; writes F64 for fp64 (which the CPU alone has), else F32 (16-bit precisions round q, k, v
// and do first). The tolerance is tolerance.f32 or .f64 of the sidecar NAME.json beside
// NAME.out.safetensors (2e-5 and 1e-9 without one); 2e-2 for tf32 and 16 bit. Without `expect` the
// rows are those of what came out as NaN. Throws ConfigError for a kind, option, tensor or shape
// that is wrong, named; IoError for a file that cannot be read, or numbers in it that are not
// finite; DeviceError as check_device().
CheckFileResult check_attention_file(const CheckFileArgs& args);

}  // namespace fovea::train
