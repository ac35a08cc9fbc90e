#pragma once
// What the text of a plain YAML scalar means, and how a value is written.
//
// Stricter than either YAML: what YAML 1.1 and 1.2 read differently (010, 0x1F, 12:30, yes, no) is
// no number and no bool here, so that a config never changes its meaning with the reader.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fovea::config {

// "", "~", "null", "Null", "NULL".
bool is_null_text(std::string_view text);
// true | True | TRUE | false | False | FALSE.
std::optional<bool> to_bool(std::string_view text);
// Decimal, no leading zeros; 1_000 and, where the value is integral and below 2^53, 1e6 and 2.0.
std::optional<std::int64_t> to_int(std::string_view text);
// Decimal, finite; .5, 1e-3 and 1_000 are fine, .nan and .inf are not.
std::optional<double> to_number(std::string_view text);
// Seconds: a number at least 0, or hours, minutes and seconds as in "1h30m", "5m", "300s", "1.5h".
std::optional<double> to_seconds(std::string_view text);

// Shortest decimal text that reads back as `value`, in YAML 1.1, YAML 1.2 and JSON alike: "0.0003",
// "1.0e-20". `value` must be finite.
std::string number_text(double value);
// Whether some YAML reader would take the plain text for something else than a string, or not take
// it at all.
bool needs_quotes(std::string_view text);
// In double quotes, escaped as both JSON and YAML allow.
std::string quoted_text(std::string_view text);

}  // namespace fovea::config
