#include "train/run_state.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

constexpr int kSchema = 1;

std::string mark_json(const FileMark& mark) {
  return JsonObject().add("bytes", mark.bytes).add("xxh3", data::hash_hex(mark.xxh3)).str();
}

std::string scaler_json(const StepScalars& s) {
  return JsonObject()
      .add("scale", s.scale)
      .add("good_steps", s.good_steps)
      .add("adam_count", s.adam_count)
      .add("skipped_in_a_row", s.skipped_in_a_row)
      .add("skipped", s.skipped)
      .str();
}

std::uint64_t hash_of(const nlohmann::json& value) {
  const std::string text = value.get<std::string>();
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) {
    throw CheckpointError(cat("\"", text, "\" is no hash"));
  }
  return hash;
}

FileMark mark_of(const nlohmann::json& value) {
  return {value.at("bytes").get<std::uint64_t>(), hash_of(value.at("xxh3"))};
}

StepScalars scaler_of(const nlohmann::json& value) {
  StepScalars out;
  out.scale = value.at("scale").get<double>();
  out.good_steps = value.at("good_steps").get<double>();
  out.adam_count = value.at("adam_count").get<double>();
  out.skipped_in_a_row = value.at("skipped_in_a_row").get<double>();
  out.skipped = value.at("skipped").get<double>();
  return out;
}

BestSoFar best_of(const nlohmann::json& value) {
  BestSoFar out;
  out.any = !value.at("value").is_null();
  if (out.any) out.value = value.at("value").get<double>();
  out.step = value.at("step").get<std::int64_t>();
  out.bad_evals = value.at("bad_evals").get<std::int64_t>();
  return out;
}

RunState state_of(const nlohmann::json& root) {
  if (root.at("schema").get<int>() != kSchema) {
    throw CheckpointError(
        cat("schema ", root.at("schema").get<int>(), ", but this fovea reads ", kSchema));
  }
  RunState out;
  out.step = root.at("step").get<std::int64_t>();
  out.tokens = root.at("tokens").get<std::int64_t>();
  out.seed = root.at("seed").get<std::uint64_t>();
  out.data_hash = hash_of(root.at("data_hash"));
  out.data_fingerprint = root.value("data_fingerprint", "");
  out.scaler = scaler_of(root.at("scaler"));
  out.best = best_of(root.at("best"));
  out.seconds = root.at("seconds").get<double>();
  out.metrics = mark_of(root.at("metrics"));
  out.perf = mark_of(root.at("perf"));
  const nlohmann::json& arithmetic = root.at("arithmetic");
  out.arithmetic = {arithmetic.at("isa").get<std::string>(),
                    arithmetic.at("blas_core").get<std::string>(),
                    arithmetic.at("precision").get<std::string>()};
  out.version = root.at("version").get<std::string>();
  out.config_yaml = root.at("config").get<std::string>();
  return out;
}

}  // namespace

std::string state_json(const RunState& state) {
  const BestSoFar& best = state.best;
  JsonObject best_json;
  if (best.any)
    best_json.add("value", best.value);
  else
    best_json.raw("value", "null");
  best_json.add("step", best.step).add("bad_evals", best.bad_evals);
  return JsonObject()
      .add("schema", kSchema)
      .add("version", state.version)
      .add("step", state.step)
      .add("tokens", state.tokens)
      .add("seed", state.seed)
      .add("data_hash", data::hash_hex(state.data_hash))
      .add("data_fingerprint", state.data_fingerprint)
      .raw("scaler", scaler_json(state.scaler))
      .raw("best", best_json.str())
      .add("seconds", state.seconds)
      .raw("metrics", mark_json(state.metrics))
      .raw("perf", mark_json(state.perf))
      .raw("arithmetic", JsonObject()
                             .add("isa", state.arithmetic.isa)
                             .add("blas_core", state.arithmetic.blas_core)
                             .add("precision", state.arithmetic.precision)
                             .str())
      .add("config", state.config_yaml)
      .lines();
}

RunState parse_state(std::string_view json, const std::string& path) {
  try {
    return state_of(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& e) {
    throw CheckpointError(cat(path, ": is no state of a run: ", e.what()));
  } catch (const CheckpointError& e) {
    throw CheckpointError(cat(path, ": ", e.what()));
  }
}

}  // namespace fovea::train
