#pragma once
// JSON objects written key by key: numbers in the shortest form that reads back, keys in their
// order.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::train {

std::string json_string(std::string_view text);  // quoted and escaped
std::string json_number(double value);           // "null" if not finite

class JsonObject {
 public:
  JsonObject& add(std::string_view key, double value) { return raw(key, json_number(value)); }
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>) {
      return raw(key, value ? "true" : "false");
    } else {
      return raw(key, std::to_string(value));
    }
  }
  JsonObject& add(std::string_view key, std::string_view text) {
    return raw(key, json_string(text));
  }
  JsonObject& add(std::string_view key, const char* text) { return raw(key, json_string(text)); }
  JsonObject& add(std::string_view key, const std::string& text) {
    return raw(key, json_string(text));
  }
  // `json` is a JSON value.
  JsonObject& raw(std::string_view key, std::string_view json);

  std::string str() const { return "{" + body_ + "}"; }
  // The same over several lines, one a key of this object.
  std::string lines() const;

 private:
  std::string body_, spread_;
};

}  // namespace fovea::train
