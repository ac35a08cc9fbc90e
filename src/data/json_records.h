#pragma once
// The texts of a JSON-lines file: an object a line, one field of it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_reader.h"

namespace fovea::data {

// Names under which a file is taken for JSON lines: *.jsonl, *.ndjson, *.json, each also with .gz.
bool is_json_lines_name(std::string_view path);

class JsonRecords {
 public:
  // `field` is a key; dots lead into nested objects. Throws IoError.
  JsonRecords(const std::string& path, std::string_view field);

  // The text of the next record, cleaned as a file would be (text_reader.h): a string, or a list of
  // strings joined by single spaces. Blank lines are no records. False at the end. Throws IoError
  // with path, line and byte: not JSON, not UTF-8, no object, no such field, or a field of another
  // type, a record of more than 64 MiB.
  bool next(std::string& text);
  // What was cleaned away so far, the file's own byte order mark included.
  const Removed& removed() const { return removed_; }
  // Places in the last text of every LF that a CR stood before.
  const std::vector<std::size_t>& cut_at() const { return cut_at_; }
  std::int64_t line() const { return line_; }  // of the last record, from 1

 private:
  bool next_line();
  [[noreturn]] void fail(std::size_t column, std::string_view what) const;

  std::string path_, field_;
  std::vector<std::string> keys_;
  ByteReader bytes_;
  std::string buffer_, record_;
  std::size_t begin_ = 0;     // of the unread part of buffer_
  std::uint64_t offset_ = 0;  // of record_ in the (unpacked) file
  std::uint64_t next_offset_ = 0;
  std::int64_t line_ = 0;
  bool ended_ = false;
  Removed removed_;
  std::vector<std::size_t> cut_at_;
};

}  // namespace fovea::data
