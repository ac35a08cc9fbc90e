#pragma once
// A piece of the step that launches the same work every time: run eagerly at first, then captured,
// then replayed as one launch (design D3.10). On the CPU and on meta it is always run eagerly.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/stream.h"

namespace fovea::train {

class StepGraph {
 public:
  // Borrows both. `allowed` false: never captured. `memory` is where the work takes its
  // temporaries: their addresses are part of a graph, so a graph is made anew when it gave memory
  // back to the device, and when the stream's scratch memory moved. A second stream that joins the
  // work is not watched: its kernels must use no scratch memory, as those of dist/reducer.h do.
  // Whatever else the work reads stays where it is, or is part of the key.
  StepGraph(Stream& stream, const CachingAllocator& memory, bool allowed);

  // All that a graph bakes in beside the work itself: addresses and shapes.
  using Key = std::vector<std::int64_t>;
  // Does the work: three times eagerly for a key, captured the fourth time, replayed from then on.
  // An error of a capture is remembered, and the work is run eagerly for good.
  void run(const Key& key, const std::function<void()>& work);

  // Why nothing is captured any more; empty as long as it may be.
  const std::string& refused() const { return refused_; }
  std::int64_t replays() const { return replays_; }

 private:
  struct Entry {
    int runs = 0;
    std::uint64_t memory = 0, scratch = 0;  // the generations that it was captured in
    Graph graph;
  };
  bool is_stale(const Entry& entry) const;
  bool capture(Entry& entry, const std::function<void()>& work);

  Stream& stream_;
  const CachingAllocator& memory_;
  bool allowed_;
  std::string refused_;
  std::map<Key, Entry> entries_;
  std::int64_t replays_ = 0;
};

}  // namespace fovea::train
