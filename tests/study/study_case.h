#pragma once
// A small study in a folder of its own.

#include <algorithm>
#include <string>
#include <vector>

#include "data/temp_folder.h"
#include "study/study_file.h"
#include "study/study_plan.h"

namespace fovea::test {

struct StudyCase {
  TempFolder folder;

  StudyCase() {
    folder.put("base.yaml", R"(
task: lm
data: {kind: markov, markov: {vocab: 32, train_examples: 64, test_examples: 8}}
model: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}
train: {global_batch_size: 4, max_steps: 4}
sched: {kind: constant}
)");
  }

  // The study file: `text`, a base, and a folder below this one unless it names them.
  std::string file(const std::string& text) const {
    std::string whole = text;
    if (!contains(text, "base:")) whole += "\nbase: base.yaml";
    if (!contains(text, "out_dir:")) whole += "\nout_dir: " + (folder / "out");
    return folder.put("study.yaml", whole + "\n");
  }
  study::StudyFile read(const std::string& text) const { return study::read_study(file(text)); }
  std::vector<study::PlannedRun> plan(const std::string& text,
                                      std::vector<std::string> assignments = {}) const {
    return study::plan_runs(read(text), assignments);
  }
  // What reading or planning it complains about, without the folder's name.
  std::string complaint(const std::string& text) const {
    std::string out = message_of([&] { plan(text); });
    for (std::size_t at; (at = out.find(folder.path() + "/")) != std::string::npos;)
      out.erase(at, folder.path().size() + 1);
    return out;
  }
};

inline std::vector<std::string> names_of(const std::vector<study::Cell>& cells) {
  std::vector<std::string> out;
  for (const study::Cell& cell : cells)
    out.push_back(cell.name);
  return out;
}

inline auto lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace fovea::test
