#pragma once
// One SQLite file. Every failure is an IoError with the path, what SQLite says, and what to do.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

struct sqlite3;

namespace fovea::study {

using Value = std::variant<std::int64_t, std::string>;  // NULL is an empty text
using Row = std::vector<Value>;

class Database {
 public:
  // read: the file is there already and is not written; it may lie in a folder that cannot be.
  enum class Mode { create, read };

  // Opens the file, which must be empty or carry `mark` (of its maker, PRAGMA application_id), and
  // checks that it is whole. `what` it is stands in messages: "ledger".
  Database(const std::string& path, Mode mode, std::int32_t mark, std::string_view what);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  // Runs one statement with its ? filled in, and returns its rows.
  std::vector<Row> query(std::string_view sql, std::span<const Value> values = {}) const;
  std::vector<Row> query(std::string_view sql, std::initializer_list<Value> values) const {
    return query(sql, std::span<const Value>(values.begin(), values.size()));
  }

 private:
  [[noreturn]] void fail(std::string_view action, int code) const;
  void open(Mode mode);
  void recognise(Mode mode, std::int32_t mark);

  std::string path_, what_;
  sqlite3* handle_ = nullptr;
};

// All or nothing of what is written while it lives.
class Transaction {
 public:
  explicit Transaction(const Database& database);
  ~Transaction();  // takes it back, unless commit() returned
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  const Database& database_;
  bool open_ = true;
};

}  // namespace fovea::study
