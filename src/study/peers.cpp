#include "study/peers.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace fovea::study {

namespace {

using Json = nlohmann::ordered_json;

double number(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}
std::int64_t whole(const Json& row, const char* key) {
  return static_cast<std::int64_t>(number(row, key));
}
std::string text(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Peers::Peers(const std::string& file) {
  Json root;
  try {
    root = Json::parse(read_file(file));
  } catch (const Json::exception& e) {
    throw IoError(cat(file, ": is no JSON: ", e.what()));
  }
  const auto add = [this](const std::string& part, const Json& rows) {
    for (const Json& row : rows) {
      if (!row.is_object()) continue;
      Row out;
      const double alone = number(row, "ms"), forward = number(row, "fwd_ms");
      out.one_query = forward <= 0;
      out.time.forward_ms = out.one_query ? alone : forward;
      out.time.backward_ms = number(row, "bwd_ms");
      if (out.time.forward_ms <= 0) continue;
      const std::string name = row.contains("name") ? text(row, "name") : text(row, "be");
      out.time.name = cat(part, part.empty() || name.empty() ? "" : " ", name);
      out.batch = whole(row, "B");
      out.heads = whole(row, "H");
      out.kv_heads = row.contains("Hk") ? whole(row, "Hk") : out.heads;
      out.tokens = whole(row, "N");
      out.v_dim = whole(row, "D");
      out.qk_dim = whole(row, "Dqk");
      const auto causal = row.find("causal");
      if (causal != row.end() && causal->is_boolean()) {
        out.causal = causal->get<bool>();
        out.full = !out.causal;
      } else {
        out.causal = name.find("full") == std::string::npos;
        out.full = name.find("causal") == std::string::npos;
      }
      rows_.push_back(std::move(out));
    }
  };
  if (root.is_array()) add("", root);
  if (!root.is_object()) return;
  for (const auto& [part, rows] : root.items()) {
    if (rows.is_array()) add(part, rows);
  }
}

std::vector<PeerTime> Peers::of(const AttentionSize& size) const {
  std::vector<PeerTime> out;
  for (const Row& row : rows_) {
    const bool form = row.one_query
                          ? size.queries == 1
                          : size.queries == size.keys && (size.causal ? row.causal : row.full);
    if (form && row.tokens == size.keys && row.batch == size.batch && row.heads == size.heads &&
        row.kv_heads == size.kv_heads && row.v_dim == size.v_dim &&
        (row.qk_dim == 0 || row.qk_dim == size.qk_dim))
      out.push_back(row.time);
  }
  return out;
}

}  // namespace fovea::study
