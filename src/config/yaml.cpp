#include "config/yaml.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "config/clean_text.h"
#include "config/yaml_scan.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::config {

namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 20;
constexpr std::size_t kMostValues = 100'000;

// Turns offsets into places. Columns count characters.
class Places {
 public:
  Places(std::string_view text, const std::string& source, bool lines)
      : source_(source), lines_(lines) {
    starts_.push_back(0);
    characters_.push_back(0);
    for (std::size_t p = 0; p < text.size(); ++p) {
      const bool begins = (static_cast<unsigned char>(text[p]) & 0xC0) != 0x80;
      characters_.push_back(characters_.back() + (begins ? 1 : 0));
      if (text[p] == '\n') starts_.push_back(p + 1);
    }
  }
  Place of(std::size_t line, std::size_t column) const {
    if (!lines_) return {source_, 0, 0};
    const std::size_t start = starts_[std::min(line, starts_.size() - 1)];
    const int before =
        characters_[std::min(start + column, characters_.size() - 1)] - characters_[start];
    return {source_, static_cast<int>(line) + 1, before + 1};
  }
  Place of(const YAML::Mark& mark) const {
    return of(static_cast<std::size_t>(std::max(mark.line, 0)),
              static_cast<std::size_t>(std::max(mark.column, 0)));
  }
  Place at(std::size_t offset) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
    const auto line = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return of(line, offset - starts_[line]);
  }

 private:
  const std::string& source_;
  bool lines_;
  std::vector<std::size_t> starts_;  // of the lines, in bytes
  std::vector<int> characters_;      // before each byte
};

[[noreturn]] void refuse(const Place& place, std::string_view what) {
  throw ConfigError(cat(place.str(), ": ", what));
}

// Builds Nodes from the parser's events, so that every check knows its place.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const Places& places) : places_(places) {}

  // An empty text is null, in its first line.
  Node take() { return documents_ == 0 ? Node::null(places_.of(0, 0)) : std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      refuse(places_.of(mark), "a second document, or text that belongs to nothing, begins here");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(Node::null(places_.of(mark)), anchor, 1);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto target = anchors_.find(anchor);
    if (target == anchors_.end())
      refuse(places_.of(mark), "an alias inside the value that it names");
    add(target->second.first, 0, target->second.second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const Place place = places_.of(mark);
    if (tag != "?" && tag != "!" && !tag.empty())
      refuse(place, cat("tags are not supported: ", tag));
    // yaml-cpp 0.7 turns \N and \_ into single bytes.
    if (!is_utf8(value)) refuse(place, "an escape that cannot be read; write \\u and four digits");
    add(Node::scalar(value, place, tag == "!"), anchor, 1);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node::Kind kind = Node::Kind::map;
    Place place;
    YAML::anchor_t anchor = 0;
    std::vector<Node> items;
    std::vector<std::pair<std::string, Node>> entries;
    std::map<std::string, int, std::less<>> lines;  // of the keys so far
    std::optional<std::string> key;
    Place key_place;
    std::size_t values = 1;
  };

  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    const Place place = places_.of(mark);
    if (tag != "?" && !tag.empty()) refuse(place, cat("tags are not supported: ", tag));
    if (!open_.empty() && open_.back().kind == Node::Kind::map && !open_.back().key) {
      refuse(place, "a key must be text, not a list or a map");
    }
    open_.emplace_back();
    open_.back().kind = kind;
    open_.back().place = place;
    open_.back().anchor = anchor;
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    Node node = done.kind == Node::Kind::list ? Node::list(std::move(done.items), done.place)
                                              : Node::map(std::move(done.entries), done.place);
    add(std::move(node), done.anchor, done.values);
  }
  // `values`: how many values `node` holds, itself included. An alias counts as what it stands for,
  // so that nested aliases cannot grow beyond the limit.
  void add(Node node, YAML::anchor_t anchor, std::size_t values) {
    if (anchor != 0) anchors_.insert_or_assign(anchor, std::pair(node, values));
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    parent.values += values;
    if (parent.values > kMostValues)
      refuse(node.place(), cat("more than ", kMostValues, " values"));
    if (parent.kind == Node::Kind::list) {
      parent.items.push_back(std::move(node));
    } else if (parent.key) {
      node.set_key_place(parent.key_place);
      parent.entries.emplace_back(std::move(*parent.key), std::move(node));
      parent.key.reset();
    } else {
      take_key(parent, node);
    }
  }
  static void take_key(Open& parent, const Node& node) {
    if (node.kind() != Node::Kind::scalar || node.text().empty())
      refuse(node.place(), cat("a key must be text, but is ", node.describe()));
    const auto [first, fresh] = parent.lines.emplace(node.text(), node.place().line);
    if (!fresh)
      refuse(node.place(),
             cat("key '", node.text(), "' is given twice, first in line ", first->second));
    parent.key = node.text();
    parent.key_place = node.place();
  }

  const Places& places_;
  int documents_ = 0;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, std::pair<Node, std::size_t>> anchors_;
};

std::string read_bounded(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw ConfigError(cat(path, ": cannot be read: it is a folder"));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) throw ConfigError(cat(path, ": cannot be read: ", std::strerror(errno)));
  std::string text(kLargestFile + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0)
    throw ConfigError(cat(path, ": cannot be read: ", std::strerror(errno)));
  return text;
}

}  // namespace

Node load(const std::string& path) {
  return parse(read_bounded(path), path);
}

Node parse(std::string_view bytes, const std::string& source, bool lines) {
  if (bytes.size() > kLargestFile)
    throw ConfigError(cat(source, ": larger than ", human_bytes(kLargestFile)));
  const auto [text, problem] = clean_text(bytes);
  const Places places(text, source, lines);
  if (!problem.empty()) refuse(places.at(text.size()), problem);
  try {
    check_structure(text);
  } catch (const ScanError& e) {
    refuse(places.at(e.at), e.what());
  }
  Builder builder(places);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    refuse(places.of(e.mark), e.msg);
  }
  return builder.take();
}

}  // namespace fovea::config
