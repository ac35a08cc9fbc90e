#include "data/listops_expression.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data::listops {

namespace {

constexpr std::array<std::string_view, kVocabulary> kWords = {
    "", "[MIN", "[MAX", "[MED", "[SM", "]", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

// 0 for what is no token.
std::uint8_t id_of(std::string_view word) {
  if (word.size() == 1 && word[0] >= '0' && word[0] <= '9')
    return static_cast<std::uint8_t>(kDigit + (word[0] - '0'));
  const auto found = std::find(kWords.begin() + 1, kWords.end(), word);
  return found == kWords.end() ? std::uint8_t{0}
                               : static_cast<std::uint8_t>(found - kWords.begin());
}

bool is_operator(std::uint8_t id) {
  return id < kClose;
}

// Evaluates tokens as they come: a stack of open lists, so that no nesting is too deep.
class Reader {
 public:
  void add(std::uint8_t id, std::size_t number) {
    if (done_) fail(number, "stands behind the end of the expression");
    if (is_operator(id)) {
      open_.push_back({id, values_.size()});
    } else if (id == kClose) {
      if (open_.empty()) fail(number, "is ']', but no list is open");
      const auto [op, first] = open_.back();
      if (first == values_.size()) fail(number, "closes a list without arguments");
      const int value = apply(op, std::span(values_).subspan(first));
      values_.resize(first);
      open_.pop_back();
      take(value);
    } else {
      take(id - kDigit);
    }
  }
  int finish(std::size_t tokens) const {
    if (done_) return values_.front();
    if (tokens == 0) throw IoError("the expression is empty");
    throw IoError(
        cat("the expression ends with ", open_.size(), open_.size() == 1 ? " list" : " lists",
            " still open: ']' is missing (an early release of Long Range Arena lost it)"));
  }

 private:
  struct Open {
    std::uint8_t op;
    std::size_t first;  // place of its first argument in values_
  };

  [[noreturn]] static void fail(std::size_t number, const char* what) {
    throw IoError(cat("token ", number, " ", what));
  }
  void take(int value) {
    values_.push_back(static_cast<std::uint8_t>(value));
    done_ = open_.empty();
  }

  std::vector<Open> open_;
  std::vector<std::uint8_t> values_;
  bool done_ = false;
};

}  // namespace

int apply(std::uint8_t op, std::span<const std::uint8_t> arguments) {
  FOVEA_ASSERT(!arguments.empty() && is_operator(op));
  if (op == kSum) return std::accumulate(arguments.begin(), arguments.end(), 0) % 10;
  // Digits are counted, not sorted: a list may be long.
  std::array<std::size_t, kLabels> count{};
  for (const std::uint8_t value : arguments)
    ++count.at(value);
  const auto nth = [&](std::size_t n) {
    int digit = 0;
    for (; n >= count.at(static_cast<std::size_t>(digit)); ++digit)
      n -= count.at(static_cast<std::size_t>(digit));
    return digit;
  };
  const std::size_t n = arguments.size();
  if (op == kMin) return nth(0);
  if (op == kMax) return nth(n - 1);
  return (nth((n - 1) / 2) + nth(n / 2)) / 2;
}

int parse(std::string_view text, Expression& into) {
  into.clear();
  Reader reader;
  std::size_t depth = 0, number = 0;  // of round brackets; of the token, from 1
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (word == "(") {
      ++depth;
      continue;
    }
    if (word == ")") {
      if (depth == 0) throw IoError(cat("a ')' behind token ", number, " closes no '('"));
      --depth;
      continue;
    }
    ++number;
    const std::uint8_t id = id_of(word);
    if (id == 0) {
      throw IoError(cat("token ", number, " is ", quote(word, 40),
                        ", but must be a digit, [MIN, [MAX, [MED, [SM or ]"));
    }
    reader.add(id, number);
    into.push_back(id);
  }
  const int value = reader.finish(number);
  if (depth > 0) throw IoError(cat(depth, " '(' without ')'"));
  return value;
}

std::string tokens_text(std::span<const std::uint8_t> expression) {
  std::string out;
  for (const std::uint8_t id : expression) {
    if (!out.empty()) out += ' ';
    out += kWords.at(id);
  }
  return out;
}

std::string bracketed_text(std::span<const std::uint8_t> expression) {
  // An element that joins its list is closed by one bracket, and the list's head needs as many
  // opening ones as it has elements, the closing bracket among them.
  std::vector<std::size_t> elements, places;  // of each operator in order; of the open ones there
  for (const std::uint8_t id : expression) {
    if (is_operator(id)) {
      places.push_back(elements.size());
      elements.push_back(0);
      continue;
    }
    if (places.empty()) continue;
    ++elements[places.back()];
    if (id != kClose) continue;
    places.pop_back();
    if (!places.empty()) ++elements[places.back()];
  }
  std::string out;
  std::size_t at = 0, depth = 0;  // of the next operator; how many lists are open
  for (const std::uint8_t id : expression) {
    if (!out.empty()) out += ' ';
    if (is_operator(id)) {
      for (std::size_t i = 0; i < elements[at]; ++i)
        out += "( ";
      ++at;
      ++depth;
      out += kWords.at(id);
      continue;
    }
    out += kWords.at(id);
    if (depth > 0) out += " )";
    if (id != kClose) continue;
    --depth;
    if (depth > 0) out += " )";  // the list itself is an element of the one around it
  }
  return out;
}

}  // namespace fovea::data::listops
