#pragma once
// What a run tells: metrics.jsonl (only what it computes, so that two runs of one config agree byte
// for byte), perf.jsonl (clocks, speed, memory), and the step line on the console.
//
// metrics.jsonl, an object a line:
//   {"step":10,"tokens":20480,"loss":3.41,"grad_norm":0.7,"lr":0.0003,"data_hash":"..."}
//       fp16-mixed adds "scale" and "skipped" (steps skipped so far); auxiliary terms add "aux"
//   {"step":10,"eval":"validation","loss":3.5,...}
//   {"step":100,"blocks.0.attn.method.density":0.2,...}   where modules have measured something
// perf.jsonl:
//   {"step":10,"seconds":12.1,"step_seconds":1.2,"tokens_per_second":17000,"data_fraction":0.003,
//    "peak_bytes":...,"persistent_bytes":...,"activation_bytes":...,"flops":...,"executed_flops":...}
//   {"step":10,"event":"checkpoint","event_seconds":0.2,"peak_bytes":...}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"
#include "train/line_file.h"
#include "train/task.h"

namespace fovea::train {

struct StepRecord {
  std::int64_t step = 0;       // finished steps, this one included
  std::int64_t max_steps = 0;  // 0: unknown
  std::int64_t tokens = 0;     // consumed so far
  double loss = 0;             // mean over the global batch, nats, before the update
  std::optional<double> aux;   // mean of the auxiliary terms
  double grad_norm = 0;        // before clipping
  double lr = 0;
  std::optional<double> scale;  // of the loss, in fp16-mixed
  std::int64_t skipped = 0;     // steps so far whose update was skipped
  std::uint64_t data_hash = 0;
  std::vector<nn::Measure> measures;  // after the update
  // For the loop, not for the log: whether some rank asked to stop before this step.
  bool stop_signal = false, stop_time = false;
};

struct PerfRecord {
  double seconds = 0;       // of training so far, over all starts
  double step_seconds = 0;  // mean since the last line
  double tokens_per_second = 0;
  double data_fraction = 0;                           // of the time, spent waiting for data
  double peak_bytes = 0;                              // persistent peak + activations reserved
  double persistent_bytes = 0, activation_bytes = 0;  // peaks of live bytes
  double flops = 0, executed_flops = 0;               // of one step
  std::optional<double> mfu;                          // where the device's peak is known
  double eta_seconds = -1;                            // negative: unknown
};

class RunLog {
 public:
  // Opens both files in the folder, cut to their committed lengths.
  RunLog(const std::string& folder, const FileMark& metrics, const FileMark& perf);

  void step(const StepRecord& record, const PerfRecord& perf);
  // What modules have measured; no line if they have not.
  void measures(const StepRecord& record);
  void evaluation(std::int64_t step, std::string_view split, const Report& report);
  void event(std::int64_t step, std::string_view name, double seconds, std::size_t peak_bytes);
  // Brings both files to the disk.
  void sync();
  FileMark metrics() const { return metrics_.mark(); }
  FileMark perf() const { return perf_.mark(); }

 private:
  LineFile metrics_, perf_;
};

// "step 1200/19073 6.3% | loss 3.4121 | gnorm 0.71 | lr 5.9e-04 | 612k tok/s | ..."
std::string step_line(const StepRecord& record, const PerfRecord& perf);
// "2h13m", "4m05s", "12s".
std::string human_duration(double seconds);

}  // namespace fovea::train
