#include "data/listops_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/text_reader.h"

namespace fovea::data::listops {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLine = std::size_t{16} << 20;
constexpr std::string_view kHeader = "Source\tTarget";

// Lines of a text file, without their ends, and without a byte order mark before the first.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), bytes_(path) {}

  bool next(std::string_view& line) {
    std::size_t end;
    while ((end = buffer_.find('\n', searched_)) == std::string::npos && !ended_) {
      searched_ = buffer_.size();
      if (searched_ - begin_ > kLongestLine) {
        throw IoError(cat(path_, ":", number_ + 1, ": the line has more than ", kLongestLine,
                          " bytes: this is no table of expressions"));
      }
      refill();
    }
    if (end == std::string::npos) end = buffer_.size();
    if (begin_ >= buffer_.size()) return false;
    line = std::string_view(buffer_).substr(begin_, end - begin_);
    begin_ = searched_ = end + 1;
    if (number_++ == 0 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }
  std::int64_t number() const { return number_; }  // of the last line, from 1

 private:
  void refill() {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    const std::size_t kept = buffer_.size();
    buffer_.resize(kept + kPiece);
    buffer_.resize(kept + bytes_.read(buffer_.data() + kept, kPiece));
    ended_ = buffer_.size() < kept + kPiece;
  }

  std::string path_, buffer_;
  ByteReader bytes_;
  std::size_t begin_ = 0, searched_ = 0;
  std::int64_t number_ = 0;
  bool ended_ = false;
};

std::string_view unquoted(std::string_view field) {
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    return field.substr(1, field.size() - 2);
  return field;
}

bool is_digit(std::string_view text) {
  return text.size() == 1 && text[0] >= '0' && text[0] <= '9';
}

// One line of a table, whichever of its two fields comes first.
struct Row {
  std::string_view source, label;
};

Row row_of(std::string_view line) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos)
    throw IoError("there is no tab between an expression and its label");
  const std::string_view first = unquoted(line.substr(0, tab)),
                         second = unquoted(line.substr(tab + 1));
  if (second.find('\t') != std::string_view::npos)
    throw IoError("there are more than two fields between tabs");
  // A digit is an expression too, but then both fields are digits and mean the same.
  return is_digit(first) ? Row{second, first} : Row{first, second};
}

void add(std::string_view line, Expression& tree, Table& to) {
  const Row row = row_of(line);
  if (!is_digit(row.label)) {
    throw IoError(cat("the label is ", quote(row.label, 40), ", but must be a digit, 0 to 9"));
  }
  const int value = parse(row.source, tree), label = row.label[0] - '0';
  if (value != label) {
    throw IoError(cat("the label is ", label, ", but the expression's value is ", value,
                      ": the file is damaged or of other rules"));
  }
  to.tokens.insert(to.tokens.end(), tree.begin(), tree.end());
  to.ends.push_back(to.tokens.size());
  to.values.push_back(static_cast<std::uint8_t>(value));
}

constexpr const char* name_in_file(Split split) {
  return split == Split::train ? "train" : split == Split::validation ? "val" : "test";
}

}  // namespace

Place find_split(const std::string& path, Split split) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    if (split != Split::test) return {path, true};
    throw IoError(cat(path,
                      ": is one file of expressions, of which the tail is held out for "
                      "validation; a test split is a file basic_test.tsv in a folder"));
  }
  constexpr std::array<const char*, 4> kFolders = {"", "listops-1000/", "lra_release/listops-1000/",
                                                   "lra_release/lra_release/listops-1000/"};
  if (!fs::is_directory(path, ignored))
    throw IoError(cat(path, ": there is no such file or folder"));
  std::vector<std::string> there;
  for (const char* folder : kFolders) {
    for (const Split each : {Split::train, Split::validation, Split::test}) {
      for (const char* end : {"", ".gz"}) {
        const std::string name = cat(folder, "basic_", name_in_file(each), ".tsv", end);
        const std::string file = (fs::path(path) / name).string();
        if (!fs::is_regular_file(file, ignored)) continue;
        if (each == split) return {file, false};
        there.push_back(name);
      }
    }
  }
  throw IoError(
      cat(path, ": has no ", name_of(split), " split of ListOps: looked for basic_",
          name_in_file(split), ".tsv and .tsv.gz there and in listops-1000/, ",
          "lra_release/listops-1000/ and lra_release/lra_release/listops-1000/ below; ",
          there.empty() ? "none of the splits is there" : cat("there is ", join(there, ", "))));
}

Table read_table(const std::string& path) {
  Lines lines(path);
  Table out;
  Expression tree;
  std::string_view line;
  while (lines.next(line)) {
    if (line.empty()) continue;
    if (lines.number() == 1 && line.find('\t') != std::string_view::npos) {
      const std::size_t tab = line.find('\t');
      if (unquoted(line.substr(0, tab)) == kHeader.substr(0, 6) &&
          unquoted(line.substr(tab + 1)) == kHeader.substr(7))
        continue;
    }
    try {
      add(line, tree, out);
    } catch (const IoError& e) {
      throw IoError(cat(path, ":", lines.number(), ": ", e.what()));
    }
  }
  if (out.size() == 0) throw IoError(cat(path, ": holds no example"));
  return out;
}

bool looks_like_table(const std::string& path) {
  std::string head(4096, '\0');
  head.resize(ByteReader(path).read(head.data(), head.size()));
  if (head.starts_with(kHeader)) return true;
  for (const char* word : {"[MIN ", "[MAX ", "[MED ", "[SM "}) {
    if (head.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace fovea::data::listops
