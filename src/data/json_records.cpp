#include "data/json_records.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

constexpr std::size_t kLongestRecord = std::size_t{64} << 20;
constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kDeepest = 256;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kJsonSpace = " \t\r\n";

// Takes one field out of a record as it is parsed, so that nothing else of it is kept.
class FieldFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldFinder(const std::vector<std::string>& keys, std::string& text) : keys_(keys), text_(text) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool number_integer(number_integer_t) override { return scalar("a number"); }
  bool number_unsigned(number_unsigned_t) override { return scalar("a number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number"); }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool string(string_t& value) override {
    if (depth_ == 0) return refuse("is a string, but must be an object");
    if (in_list_ > 0 && depth_ == in_list_) {
      if (!first_) text_ += ' ';
      first_ = false;
      text_ += value;
    } else if (expected_ == Expected::text) {
      text_ = std::move(value);
      found_ = true;
    } else if (expected_ == Expected::object) {
      return refuse("is a string, but must be an object", true);
    }
    expected_ = Expected::nothing;
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_list_ > 0 || expected_ == Expected::text) return wrong("an object");
    if (expected_ == Expected::object) ++inside_;
    return deeper();
  }
  bool key(string_t& name) override {
    if (in_list_ > 0 || depth_ != inside_ + 1 || name != keys_[inside_]) {
      expected_ = Expected::nothing;
    } else {
      expected_ = inside_ + 1 == keys_.size() ? Expected::text : Expected::object;
      text_.clear();  // of two equal keys the last one counts
      found_ = false;
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    if (inside_ > 0 && depth_ < inside_ + 1) --inside_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return refuse("is a list, but must be an object a line");
    if (in_list_ > 0) return wrong("a list of lists");
    if (expected_ == Expected::object) return refuse("is a list, but must be an object", true);
    if (expected_ == Expected::text) {
      in_list_ = depth_ + 1;
      first_ = true;
      found_ = true;
    }
    return deeper();
  }
  bool end_array() override {
    if (depth_ == in_list_) in_list_ = 0;
    --depth_;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::json::exception& e) override {
    byte_ = at > 0 ? at - 1 : 0;
    const std::string_view what = e.what();
    const std::size_t reason = what.find("syntax error");
    problem_ = cat("is not JSON: ",
                   quote(reason == std::string_view::npos ? what : what.substr(reason), 160));
    return false;
  }

  bool found() const { return found_; }
  const std::string& problem() const { return problem_; }
  bool of_field() const { return of_field_; }
  std::size_t byte() const { return byte_; }

 private:
  enum class Expected { nothing, object, text };

  bool deeper() {
    expected_ = Expected::nothing;
    return ++depth_ <= kDeepest || refuse(cat("nests deeper than ", kDeepest));
  }
  bool scalar(const char* what) {
    if (depth_ == 0) return refuse(cat("is ", what, ", but must be an object"));
    if (in_list_ > 0 || expected_ == Expected::text) return wrong(what);
    if (expected_ == Expected::object)
      return refuse(cat("is ", what, ", but must be an object"), true);
    return true;
  }
  bool wrong(const char* what) {
    return refuse(in_list_ > 0 ? cat("has ", what, " in its list, but must be a list of strings")
                               : cat("is ", what, ", but must be a string or a list of strings"),
                  true);
  }
  bool refuse(std::string what, bool of_field = false) {
    problem_ = std::move(what);
    of_field_ = of_field;
    return false;
  }

  const std::vector<std::string>& keys_;
  std::string& text_;
  std::size_t depth_ = 0;
  std::size_t inside_ = 0;   // how many of the keys lead to the innermost object of interest
  std::size_t in_list_ = 0;  // depth of the field's list while it is open
  Expected expected_ = Expected::nothing;  // of the next value
  bool found_ = false, first_ = true, of_field_ = false;
  std::string problem_;
  std::size_t byte_ = 0;
};

}  // namespace

bool is_json_lines_name(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || path.ends_with(".json");
}

JsonRecords::JsonRecords(const std::string& path, std::string_view field)
    : path_(path), field_(field), bytes_(path) {
  for (std::size_t at = 0; at <= field.size();) {
    const std::size_t dot = std::min(field.find('.', at), field.size());
    keys_.emplace_back(field.substr(at, dot - at));
    at = dot + 1;
  }
}

void JsonRecords::fail(std::size_t column, std::string_view what) const {
  throw IoError(cat(path_, ": line ", line_, " (byte ", offset_ + column, "): the record ", what));
}

// Puts the next line into record_, without its LF.
bool JsonRecords::next_line() {
  record_.clear();
  offset_ = next_offset_;
  ++line_;
  while (true) {
    const std::size_t end = buffer_.find('\n', begin_);
    const std::size_t stop = end == std::string::npos ? buffer_.size() : end;
    record_.append(buffer_, begin_, stop - begin_);
    next_offset_ += stop - begin_;
    begin_ = stop;
    if (record_.size() > kLongestRecord) {
      fail(0, cat("is longer than ", kLongestRecord,
                  " bytes; give a text of that size as a file of its own"));
    }
    if (end != std::string::npos) {
      ++begin_;
      ++next_offset_;
      return true;
    }
    if (ended_) return !record_.empty();
    buffer_.resize(kChunk);
    buffer_.resize(bytes_.read(buffer_.data(), kChunk));
    begin_ = 0;
    ended_ = buffer_.empty();
  }
}

bool JsonRecords::next(std::string& text) {
  do {
    if (!next_line()) return false;
    if (line_ == 1 && record_.starts_with(kByteOrderMark)) {
      record_.erase(0, kByteOrderMark.size());
      offset_ += kByteOrderMark.size();
      ++removed_.byte_order_marks;
    }
  } while (record_.find_first_not_of(kJsonSpace) == std::string::npos);
  std::string raw;
  FieldFinder finder(keys_, raw);
  if (!nlohmann::json::sax_parse(record_, &finder)) {
    const std::string& problem = finder.problem();
    fail(finder.byte(),
         finder.of_field() ? cat("is of no use: ", quote(field_), " ", problem) : problem);
  }
  if (!finder.found()) fail(0, cat("has no field ", quote(field_)));
  text.clear();
  TextCleaner cleaner;
  cut_at_.clear();
  cleaner.add(raw, text, &cut_at_);
  cleaner.finish(text);
  removed_ += cleaner.removed();
  return true;
}

}  // namespace fovea::data
