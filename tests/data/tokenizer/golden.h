#pragma once
// Golden cases of the shared test data: JSON lines with a text and its ids.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace fovea::test {

struct GoldenCase {
  std::string text;
  std::vector<std::int32_t> ids;
  bool special = false;
  std::string decoded;  // SentencePiece only
};

inline std::vector<GoldenCase> golden_cases(const std::string& path) {
  std::vector<GoldenCase> cases;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    cases.push_back({json.at("text").get<std::string>(),
                     json.at("ids").get<std::vector<std::int32_t>>(), json.value("special", false),
                     json.value("decoded", "")});
  }
  return cases;
}

}  // namespace fovea::test
