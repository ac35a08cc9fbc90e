#include <string>

#include "core/error.h"
#include "core/text.h"
#include "train/run_config.h"
#include "train/task.h"

namespace fovea::train {

// Each task's file defines its entry.
TaskSpec classification_task();
TaskSpec lm_task();
TaskSpec mqar_task();
TaskSpec niah_task();

const std::vector<TaskSpec>& task_specs() {
  static const std::vector<TaskSpec> specs{classification_task(), lm_task(), mqar_task(),
                                           niah_task()};
  return specs;
}

const TaskSpec* find_task(std::string_view name) {
  for (const TaskSpec& spec : task_specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::unique_ptr<Task> make_task(const RunConfig& config) {
  if (const TaskSpec* spec = find_task(config.task)) return spec->make(config);
  std::vector<std::string> names;
  for (const TaskSpec& spec : task_specs())
    names.emplace_back(spec.name);
  const std::string near = nearest(config.task, names);
  throw ConfigError(cat("task is '", config.task, "', but must be one of ", join(names, ", "),
                        near.empty() ? std::string() : cat("; the nearest is '", near, "'")));
}

}  // namespace fovea::train
