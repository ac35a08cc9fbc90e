#include "dist/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr std::size_t kMostHosts = 65536;

std::optional<int> number_of(std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 0) return std::nullopt;
  return out;
}

// Parts between commas that stand outside brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      out.emplace_back();
    else
      out.back().push_back(c);
  }
  return out;
}

class HostList {
 public:
  explicit HostList(const std::string& text) : text_(text) {
    for (const std::string& part : parts_of(text))
      expand("", part);
  }
  std::vector<std::string> take() { return std::move(hosts_); }

 private:
  ConfigError bad(const char* why) const {
    return ConfigError(cat("the list of hosts '", text_, "' cannot be read: ", why));
  }

  void expand(const std::string& prefix, std::string_view rest) {
    const std::size_t open = rest.find('['), close = rest.find(']');
    if (open == std::string_view::npos) {
      const std::string host = cat(prefix, rest);
      if (close != std::string_view::npos) throw bad("']' without '['");
      if (host.empty()) throw bad("an empty name");
      if (hosts_.size() == kMostHosts) throw bad("too many of them");
      hosts_.push_back(host);
      return;
    }
    if (close == std::string_view::npos || close < open) throw bad("'[' without ']'");
    for (const std::string& range : parts_of(rest.substr(open + 1, close - open - 1)))
      expand_range(cat(prefix, rest.substr(0, open)), range, rest.substr(close + 1));
  }

  void expand_range(const std::string& prefix, const std::string& range, std::string_view rest) {
    const std::size_t dash = range.find('-');
    const std::string first = range.substr(0, dash),
                      last = dash == std::string::npos ? first : range.substr(dash + 1);
    const auto from = number_of(first), to = number_of(last);
    if (!from || !to || *from > *to) throw bad("a range that is none");
    for (int i = *from; i <= *to; ++i) {
      const std::string digits = cat(i);
      const std::string zeros(first.size() - std::min(first.size(), digits.size()), '0');
      expand(cat(prefix, zeros, digits), rest);
      if (i == *to) return;  // the largest int has no next one
    }
  }

  const std::string& text_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_hostlist(const std::string& text) {
  return HostList(text).take();
}

std::vector<int> expand_counts(const std::string& text) {
  std::vector<int> out;
  for (const std::string& part : parts_of(text)) {
    const std::size_t open = part.find("(x");
    const bool repeated = open != std::string::npos;
    if (repeated && part.back() != ')') return {};
    const auto count = number_of(std::string_view(part).substr(0, open));
    const auto times =
        repeated ? number_of(std::string_view(part).substr(open + 2, part.size() - open - 3)) : 1;
    if (!count || !times || out.size() + static_cast<std::size_t>(*times) > kMostHosts) return {};
    out.insert(out.end(), static_cast<std::size_t>(*times), *count);
  }
  return out;
}

}  // namespace fovea::dist
