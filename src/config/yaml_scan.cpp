#include "config/yaml_scan.h"

#include <algorithm>
#include <vector>

#include "core/text.h"

namespace fovea::config {

namespace {

constexpr std::size_t kDeepest = 64;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void run() {
    while (pos_ < text_.size())
      line();
  }

 private:
  [[noreturn]] static void fail(std::size_t at, const std::string& what) {
    throw ScanError(at, what);
  }

  char at(std::size_t p) const { return p < text_.size() ? text_[p] : '\n'; }
  bool blank(std::size_t p) const { return at(p) == ' ' || at(p) == '\t' || at(p) == '\n'; }
  bool flow_mark(std::size_t p) const {
    return std::string_view(",[]{}").find(at(p)) != std::string_view::npos;
  }
  int column(std::size_t p) const { return static_cast<int>(p - line_start_); }
  std::size_t line_end(std::size_t p) const { return std::min(text_.find('\n', p), text_.size()); }
  void skip_blanks() {
    while (at(pos_) == ' ' || at(pos_) == '\t')
      ++pos_;
  }
  // "---" or "..." alone at the start of a line ends whatever is open.
  bool document_mark(std::size_t p) const {
    const std::string_view mark = text_.substr(p, 3);
    return (mark == "---" || mark == "...") && blank(p + 3);
  }
  int spaces_at(std::size_t start) const {
    std::size_t p = start;
    while (at(p) == ' ')
      ++p;
    return static_cast<int>(p - start);
  }
  bool blank_line(std::size_t start) const {
    return text_.find_first_not_of(" \t", start) >= line_end(start);
  }
  // The block collection that holds a value at `col`: values' further lines must be indented
  // deeper.
  int parent_of(int col) const {
    int parent = -1;
    for (const int block : blocks_) {
      if (block < col) parent = block;
    }
    return parent;
  }
  bool may_hold_value(int col) const {
    return wanted_ && (blocks_.empty() || col > blocks_.back());
  }
  void open_block(int col) {
    if (blocks_.empty() || blocks_.back() < col) blocks_.push_back(col);
    if (blocks_.size() > kDeepest) fail(pos_, cat("nested deeper than ", kDeepest));
    wanted_ = true;
  }

  // Behind a value: nothing but a comment, which needs a blank before it. Moves to the next line.
  void finish_line(std::string_view after) {
    const std::size_t before = pos_;
    skip_blanks();
    if (at(pos_) == '#' && pos_ > before) pos_ = line_end(pos_);
    if (at(pos_) != '\n') fail(pos_, cat("unexpected text after ", after));
    next_line();
  }
  void next_line() {
    pos_ = line_end(pos_) + 1;
    line_start_ = pos_;
  }

  void line() {
    line_start_ = pos_;
    if (blank_line(pos_)) return next_line();
    pos_ += static_cast<std::size_t>(spaces_at(pos_));
    const int col = column(pos_);
    const std::size_t word = text_.find_first_not_of(" \t", pos_);
    if (at(word) == '#') return next_line();
    if (word != pos_) fail(pos_, "a tab in the indentation; use spaces");
    if (col == 0 && at(pos_) == '%') fail(pos_, "directives (%) are not supported");
    if (col == 0 && document_mark(pos_)) {
      blocks_.clear();
      wanted_ = true;
      const bool end = at(pos_) == '.';
      pos_ += 3;
      return end ? finish_line("...") : entries();
    }
    while (!blocks_.empty() && blocks_.back() > col)
      blocks_.pop_back();
    entries();
  }

  // The rest of a line: dashes and keys, then perhaps a value, which may go on over more lines.
  void entries() {
    int decorated = -1;  // column of the anchor or tag that the next value or key begins with
    for (;;) {
      const std::size_t before = pos_;
      skip_blanks();
      if (at(pos_) == '\n' || (at(pos_) == '#' && (pos_ > before || column(pos_) == 0)))
        return next_line();
      const std::size_t start = pos_;
      const int col = decorated >= 0 ? decorated : column(start);
      const char c = at(start);
      if ((c == '-' || c == '?' || c == ':') && blank(start + 1)) {
        open_block(col);
        properties_ = 0;
        ++pos_;
        continue;
      }
      if (c == '&' || c == '!') {
        property(false);
        if (blank_line(pos_) && !may_hold_value(col))
          fail(start, "an anchor or tag left of its value");
        decorated = col;
        continue;
      }
      properties_ = 0;
      if (c == '|' || c == '>') {
        if (!may_hold_value(col)) expected_key(start);
        return block_text(parent_of(col));
      }
      const std::size_t first_line = line_start_;
      value(parent_of(col));
      std::size_t colon = pos_;
      while (at(colon) == ' ' || at(colon) == '\t')
        ++colon;
      if (at(colon) == ':' && blank(colon + 1)) {
        if (line_start_ != first_line) fail(start, "a key must stand on one line");
        open_block(col);
        decorated = -1;
        pos_ = colon + 1;
        continue;
      }
      if (!may_hold_value(col)) expected_key(start);
      wanted_ = false;
      further_plain_lines(parent_of(col));
      return finish_line("the value");
    }
  }

  // An anchor or a tag. A value has at most one of each; the parser takes minutes over a million of
  // them.
  void property(bool in_flow) {
    if (++properties_ > 2) fail(pos_, "too many anchors and tags on one value");
    while (!blank(pos_) && !(in_flow && flow_mark(pos_)))
      ++pos_;
  }

  // A value, or what may turn out to be a key: of plain text its first line only.
  void value(int parent) {
    const char c = at(pos_);
    if (c == '"' || c == '\'') {
      quoted(parent);
    } else if (c == '[' || c == '{') {
      flow(parent);
    } else {
      plain_line(false);
    }
    after_plain_ = c != '"' && c != '\'' && c != '[' && c != '{';
  }
  [[noreturn]] void expected_key(std::size_t start) const {
    const std::string_view rest = text_.substr(start, line_end(start) - start);
    const bool glued = rest.find(':') != std::string_view::npos;
    fail(start,
         glued ? "expected 'key: value', with a blank after the colon" : "expected 'key: value'");
  }

  // At the start of a further line of a value.
  void check_further_line(int parent, std::string_view what, bool brackets) {
    if (blank_line(pos_)) return;
    if (document_mark(pos_)) fail(pos_, cat(what, " is not closed"));
    const int spaces = spaces_at(pos_);
    // A closing bracket may stand below the key, as many people write it.
    const char first = at(pos_ + static_cast<std::size_t>(spaces));
    if (brackets && (first == ']' || first == '}') && spaces >= parent) return;
    if (spaces <= parent)
      fail(pos_, cat(what, " goes on here, so this line must be indented deeper"));
  }

  void quoted(int parent) {
    const std::size_t start = pos_;
    const char quote = at(pos_++);
    for (;; ++pos_) {
      if (pos_ >= text_.size()) fail(start, "this quote is never closed");
      const char c = text_[pos_];
      if (c == '\n') {
        line_start_ = pos_ + 1;
        ++pos_;
        check_further_line(parent, "quoted text", false);
        --pos_;
      } else if (c == '\\' && quote == '"' && at(pos_ + 1) != '\n') {
        ++pos_;
      } else if (c == quote) {
        if (quote == '"' || at(pos_ + 1) != '\'') break;
        ++pos_;
      }
    }
    ++pos_;
  }

  // Plain text goes on over deeper lines, which must not look like keys.
  void further_plain_lines(int parent) {
    while (after_plain_ && at(pos_) == '\n' && pos_ < text_.size()) {
      std::size_t next = pos_ + 1;
      while (next < text_.size() && blank_line(next))
        next = line_end(next) + 1;
      const int spaces = spaces_at(next);
      const std::size_t word = next + static_cast<std::size_t>(spaces);
      if (next >= text_.size() || spaces <= parent || at(word) == '#' ||
          (spaces == 0 && document_mark(next)))
        return;
      line_start_ = next;
      pos_ = word;
      if (plain_line(false)) fail(word, "the key above has a value already; check the indentation");
    }
  }
  // Moves to the end of a piece of plain text in its line; true if that is the colon of a key.
  bool plain_line(bool in_flow) {
    for (; at(pos_) != '\n'; ++pos_) {
      if (at(pos_) == ':' && (blank(pos_ + 1) || (in_flow && flow_mark(pos_ + 1)))) return true;
      if (in_flow && flow_mark(pos_)) return false;
      if ((at(pos_) == ' ' || at(pos_) == '\t') && at(pos_ + 1) == '#') return false;
    }
    return false;
  }

  // [a, b] and {a: b}, over any number of lines.
  void flow(int parent) {
    const std::size_t start = pos_;
    std::vector<char> open;
    char last = ' ';  // [ , : or v for a value, t for plain text, which goes on over lines
    std::size_t last_line = line_start_;
    do {
      const bool spaced = flow_blanks(parent, start);
      const char c = at(pos_);
      const bool value_follows = c != ',' && c != ']' && c != '}' && c != ':' && c != '#';
      if (c == '#') {
        if (!spaced) fail(pos_, "a comment needs a blank before it");
        pos_ = line_end(pos_);
        continue;
      }
      if (value_follows && (last == 'v' || (last == 't' && line_start_ == last_line))) {
        fail(pos_, "expected a comma or a closing bracket");
      }
      last = flow_token(parent, start, open, last);
      last_line = line_start_;
      if (blocks_.size() + open.size() > kDeepest) fail(pos_, cat("nested deeper than ", kDeepest));
    } while (!open.empty());
  }
  // Skips blanks and line ends; whether there were any.
  bool flow_blanks(int parent, std::size_t start) {
    const std::size_t before = pos_;
    while (blank(pos_)) {
      if (pos_ >= text_.size()) fail(start, "this bracket is never closed");
      const bool new_line = at(pos_) == '\n';
      ++pos_;
      if (!new_line) continue;
      line_start_ = pos_;
      const std::size_t word = text_.find_first_not_of(" \t", pos_);
      if (at(word) != '#') check_further_line(parent, "this list or map", true);
    }
    return pos_ > before;
  }
  // Takes one token; returns what it was, for `last`.
  char flow_token(int parent, std::size_t start, std::vector<char>& open, char last) {
    const char c = at(pos_);
    const bool separated = blank(pos_ + 1) || flow_mark(pos_ + 1);
    switch (c) {
      case '[':
      case '{':
        properties_ = 0;
        open.push_back(c == '[' ? ']' : '}');
        ++pos_;
        return '[';
      case ']':
      case '}':
        if (open.back() != c)
          fail(pos_, cat("expected ", open.back(), ", the end of what is open"));
        open.pop_back();
        ++pos_;
        return 'v';
      case ',':
        properties_ = 0;
        if (last == '[' || last == ',') fail(pos_, "nothing stands before this comma");
        ++pos_;
        return ',';
      case '"':
      case '\'':
        quoted(parent);
        return 'v';
      case '&':
      case '!':
        property(true);
        return ':';
      default:
        break;
    }
    properties_ = 0;
    if (c == '-' && separated) fail(pos_, "a dash cannot stand for a value inside brackets");
    if (c == ':' && (separated || last == 'v')) {
      ++pos_;
      return ':';
    }
    if (c == '?' && separated) {
      ++pos_;
      return ':';
    }
    if (pos_ >= text_.size()) fail(start, "this bracket is never closed");
    plain_line(true);
    return 't';
  }

  // | and >: the first line with text sets the indentation of the rest.
  void block_text(int parent) {
    const std::size_t start = pos_;
    int given = 0;
    for (++pos_; !blank(pos_) && pos_ < start + 3; ++pos_) {
      if (at(pos_) >= '1' && at(pos_) <= '9') given = at(pos_) - '0';
    }
    finish_line("the head of a block text");
    wanted_ = false;
    int indent = given > 0 ? std::max(parent, 0) + given : -1;
    int widest_blank = 0;
    for (; pos_ < text_.size(); next_line()) {
      const int spaces = spaces_at(pos_);
      const bool empty = blank_line(pos_) && at(pos_ + static_cast<std::size_t>(spaces)) == '\n';
      if (empty) {
        if (indent < 0) widest_blank = std::max(widest_blank, spaces);
        continue;
      }
      if (indent < 0) {
        if (spaces <= parent) return;
        if (widest_blank > spaces)
          fail(pos_, "the blank lines above have more spaces than the text");
        indent = spaces;
      }
      if (spaces < indent || (spaces == 0 && document_mark(pos_))) return;
    }
  }

  std::string_view text_;
  std::size_t pos_ = 0, line_start_ = 0;
  std::vector<int> blocks_;   // columns of the open block collections, ascending
  int properties_ = 0;        // anchors and tags before the value to come
  bool after_plain_ = false;  // the last value was plain text
  bool wanted_ =
      true;  // whether a value may start here: at the start, after a dash and after "key:"
};

}  // namespace

void check_structure(std::string_view text) {
  Scanner(text).run();
}

}  // namespace fovea::config
