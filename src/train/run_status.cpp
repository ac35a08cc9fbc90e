#include "train/run_status.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "train/json_text.h"
#include "train/train.h"

namespace fovea::train {

std::string status_json(const RunStatus& s) {
  JsonObject out, metrics;
  for (const auto& [name, value] : s.metrics)
    metrics.add(name, value);
  out.add("status", s.status).add("step", s.step).add("max_steps", s.max_steps);
  out.add("checkpoint_step", s.checkpoint_step).add("tokens", s.tokens).add("seconds", s.seconds);
  if (s.parameters > 0) out.add("parameters", s.parameters);
  if (!s.message.empty()) out.add("message", s.message);
  if (s.best.any)
    out.raw("best", JsonObject().add("value", s.best.value).add("step", s.best.step).str());
  return out.raw("metrics", metrics.str()).lines();
}

std::optional<RunStatus> read_status(const std::string& run_folder) {
  try {
    const auto root = nlohmann::ordered_json::parse(read_file(cat(run_folder, "/", kStatusName)));
    RunStatus out;
    out.status = root.at("status").get<std::string>();
    for (const Ending ending : {Ending::finished, Ending::early_stop, Ending::max_time}) {
      out.ended = out.ended || out.status == name_of(ending);
    }
    out.step = root.at("step").get<std::int64_t>();
    out.max_steps = root.at("max_steps").get<std::int64_t>();
    out.tokens = root.at("tokens").get<std::int64_t>();
    out.checkpoint_step = root.at("checkpoint_step").get<std::int64_t>();
    out.seconds = root.at("seconds").get<double>();
    out.message = root.value("message", std::string());
    out.parameters = root.value("parameters", std::int64_t{0});
    if (const auto best = root.find("best"); best != root.end()) {
      out.best = {true, best->at("value").get<double>(), best->at("step").get<std::int64_t>(), 0};
    }
    for (const auto& [name, value] : root.at("metrics").items()) {
      out.metrics.emplace_back(
          name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
    return out;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace fovea::train
