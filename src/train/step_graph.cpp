#include "train/step_graph.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace fovea::train {

namespace {

// Eager runs before a capture: the first ones make plans, scratch memory and blocks to recycle.
constexpr int kEagerRuns = 3;

}  // namespace

StepGraph::StepGraph(Stream& stream, const CachingAllocator& memory, bool allowed)
    : stream_(stream), memory_(memory), allowed_(allowed && stream.device().is_cuda()) {}

void StepGraph::run(const Key& key, const std::function<void()>& work) {
  if (!allowed_) return work();
  Entry& entry = entries_[key];
  if (entry.graph.defined() && is_stale(entry)) entry = {};
  if (!entry.graph.defined()) {
    if (entry.runs++ < kEagerRuns || !capture(entry, work)) return work();
  }
  stream_.launch(entry.graph);
  ++replays_;
}

bool StepGraph::is_stale(const Entry& entry) const {
  return entry.memory != memory_.generation() || entry.scratch != stream_.generation();
}

// Nothing has run when a capture fails, so the work can still be done eagerly.
bool StepGraph::capture(Entry& entry, const std::function<void()>& work) {
  stream_.begin_capture();
  try {
    work();
    entry.graph = stream_.end_capture();
    entry.memory = memory_.generation();
    entry.scratch = stream_.generation();
    return true;
  } catch (const Error& e) {
    stream_.abandon_capture();
    refused_ = e.what();
  } catch (...) {
    stream_.abandon_capture();
    throw;
  }
  allowed_ = false;
  log::warn(
      cat("the step is not captured as a graph, which costs speed and nothing else: ", refused_));
  return false;
}

}  // namespace fovea::train
