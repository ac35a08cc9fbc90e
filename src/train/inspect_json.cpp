// JSON documents and JSON lines. See inspect_kinds.h.

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/text_reader.h"
#include "train/import/hub_config.h"
#include "train/inspect_kinds.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostKeys = 12;

// What a value is at its top, found without building it: a file of a million brackets takes no more
// memory than its text.
class Outline final : public Json::json_sax_t {
 public:
  enum class Kind { object, list, other };
  Kind kind = Kind::other;
  std::size_t entries = 0;
  bool all_integers = true;  // the values of an object
  bool has_model = false;    // a key `model` with an object
  std::string model_type;
  std::vector<std::string> keys;  // the first ones
  std::string wrong;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(true); }
  bool number_unsigned(number_unsigned_t) override { return value(true); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t& text) override {
    if (depth_ == 1 && key_ == "model_type") model_type = text;
    return value();
  }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(Kind::object); }
  bool start_array(std::size_t) override { return open(Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      key_ = name;
      if (keys.size() < kMostKeys) keys.push_back(name);
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    wrong = cat("is no JSON: byte ", position, " does not continue it");
    return false;
  }

 private:
  bool value(bool integer = false) {
    if (depth_ == 1) ++entries;
    if (depth_ == 1 && !integer) all_integers = false;
    return true;
  }
  bool open(Kind what) {
    value();
    if (depth_ == 0) kind = what;
    if (depth_ == 1 && what == Kind::object && key_ == "model") has_model = true;
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
  std::string key_;
};

Outline outline_of(std::string_view text) {
  Outline out;
  // The parser takes a zero byte for the end.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    out.wrong = cat("is no JSON: byte ", zero + 1, " is zero");
    return out;
  }
  Json::sax_parse(text.begin(), text.end(), &out);
  return out;
}

// One line after the other, without its end.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), bytes_(path) {}

  bool next(std::string& line) {
    line.clear();
    for (;;) {
      const std::size_t end = buffer_.find('\n', at_);
      line.append(buffer_, at_, end == std::string::npos ? end : end - at_);
      if (line.size() > kMostBytes)
        throw IoError(cat(path_, ": line ", number_ + 1, " is longer than 64 MiB"));
      if (end != std::string::npos) {
        at_ = end + 1;
        ++number_;
        return true;
      }
      buffer_.resize(std::size_t{1} << 20);
      buffer_.resize(bytes_.read(buffer_.data(), buffer_.size()));
      at_ = 0;
      if (buffer_.empty()) {
        if (line.empty()) return false;
        ++number_;
        return true;
      }
    }
  }
  std::int64_t number() const { return number_; }

 private:
  std::string path_;
  data::ByteReader bytes_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string keys_text(const std::vector<std::string>& keys) {
  std::vector<std::string> quoted;
  quoted.reserve(keys.size());
  for (const std::string& key : keys)
    quoted.push_back(data::quote(key, 40));
  return cat(join(quoted, ", "), keys.size() == kMostKeys ? ", ..." : "");
}

std::string keys_json(const std::vector<std::string>& keys) {
  std::vector<std::string> quoted;
  quoted.reserve(keys.size());
  for (const std::string& key : keys)
    quoted.push_back(json_string(key));
  return cat("[", join(quoted, ","), "]");
}

Inspection inspect_lines(const std::string& path) {
  Lines lines(path);
  std::vector<std::string> keys;
  std::int64_t records = 0;
  for (std::string line; lines.next(line);) {
    if (is_blank(line)) continue;
    const Outline record = outline_of(line);
    if (!record.wrong.empty() || record.kind != Outline::Kind::object) {
      throw IoError(cat(path, ": line ", lines.number(), " ",
                        record.wrong.empty() ? std::string("is no object") : record.wrong));
    }
    if (records++ == 0) keys = record.keys;
  }
  return {"JSON lines",
          cat(path, ": JSON lines, ", plural(records, "record"),
              keys.empty() ? "" : cat("\n  keys of the first: ", keys_text(keys))),
          JsonObject()
              .add("kind", "JSON lines")
              .add("path", path)
              .add("records", records)
              .raw("keys", keys_json(keys))
              .str(),
          {}};
}

Inspection inspect_hub_config(const std::string& path) {
  const HubConfig hub = read_hub_config(path);
  const models::ModelConfig& m = hub.model;
  return {"model",
          cat(path, ": description of a Hugging Face ", hub.model_type, " model\n  ",
              plural(m.n_layer, "layer"), ", ", plural(m.n_head, "head"), ", width ", m.n_embd,
              ", vocabulary ", m.vocab_size, ", block size ", m.block_size),
          JsonObject()
              .add("kind", "model")
              .add("path", path)
              .add("layout", cat("Hugging Face ", hub.model_type))
              .str(),
          {}};
}

bool is_vocabulary(const std::string& name, const Outline& outline) {
  return outline.kind == Outline::Kind::object && outline.entries > 0 && outline.all_integers &&
         (name.find("vocab") != std::string::npos || name == "encoder.json");
}

Inspection inspect_document(const std::string& path, const Outline& outline) {
  const std::string name = fs::path(path).filename().string();
  const bool object = outline.kind == Outline::Kind::object;
  if (is_vocabulary(name, outline) || (object && name == "tokenizer.json" && outline.has_model))
    return inspect_tokenizer(path);
  if (object && name == "config.json" && !outline.model_type.empty() &&
      outline.model_type != "fovea")
    return inspect_hub_config(path);
  const std::int64_t entries = static_cast<std::int64_t>(outline.entries);
  const std::string what = object                                ? "an object"
                           : outline.kind == Outline::Kind::list ? "a list"
                                                                 : "a value";
  return {
      "JSON",
      cat(path, ": JSON, ", what, outline.kind == Outline::Kind::other ? "" : cat(" of ", entries),
          outline.keys.empty() ? "" : cat("\n  keys: ", keys_text(outline.keys))),
      JsonObject()
          .add("kind", "JSON")
          .add("path", path)
          .add("entries", entries)
          .raw("keys", keys_json(outline.keys))
          .str(),
      {}};
}

// Whether the first line that is not blank is an object, and something follows.
bool has_lines(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_blank(line)) continue;
    const Outline record = outline_of(line);
    return record.wrong.empty() && record.kind == Outline::Kind::object &&
           text.find_first_not_of(" \t\r\n") != std::string_view::npos;
  }
  return false;
}

}  // namespace

Inspection inspect_json(const std::string& path, bool lines) {
  if (lines) return inspect_lines(path);
  data::ByteReader bytes(path);
  std::string text;
  for (std::size_t got = 1; got > 0 && text.size() <= kMostBytes;) {
    const std::size_t before = text.size(), piece = std::size_t{1} << 20;
    text.resize(before + piece);
    got = bytes.read(text.data() + before, piece);
    text.resize(before + got);
  }
  if (text.size() > kMostBytes || has_lines(text)) return inspect_lines(path);
  const Outline outline = outline_of(text);
  if (!outline.wrong.empty()) throw IoError(cat(path, ": ", outline.wrong));
  return inspect_document(path, outline);
}

}  // namespace fovea::train
