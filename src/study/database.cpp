#include "study/database.h"

#include <exception>
#include <filesystem>
#include <system_error>

#include <sqlite3.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::study {

namespace {

namespace fs = std::filesystem;

constexpr int kPatience = 10'000;  // ms, while another process writes

// Finalised with its scope.
struct Statement {
  sqlite3_stmt* handle = nullptr;
  ~Statement() { sqlite3_finalize(handle); }
};

Value value_at(sqlite3_stmt* statement, int column) {
  if (sqlite3_column_type(statement, column) == SQLITE_INTEGER)
    return std::int64_t{sqlite3_column_int64(statement, column)};
  const unsigned char* const text = sqlite3_column_text(statement, column);
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
  return text == nullptr ? std::string() : std::string(text, text + bytes);
}

int bind(sqlite3_stmt* statement, int index, const Value& value) {
  if (const auto* const number = std::get_if<std::int64_t>(&value))
    return sqlite3_bind_int64(statement, index, *number);
  const std::string& text = std::get<std::string>(value);
  return sqlite3_bind_text(statement, index, text.data(), static_cast<int>(text.size()),
                           SQLITE_TRANSIENT);
}

}  // namespace

Database::Database(const std::string& path, Mode mode, std::int32_t mark, std::string_view what)
    : path_(path), what_(what) {
  try {
    open(mode);
    recognise(mode, mark);
  } catch (const Error&) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() {
  sqlite3_close(handle_);
}

void Database::open(Mode mode) {
  if (mode == Mode::read && !fs::exists(path_))
    throw IoError(cat(path_, ": there is no ", what_, " here: run fovea sweep first"));
  std::error_code ignored;
  if (fs::is_directory(path_, ignored))
    throw IoError(cat(path_, ": is a folder, but must be the ", what_,
                      "'s file: move it away and "
                      "start the sweep again: finished runs are known by their folders"));
  // Its log beside it cannot be made in a folder that is not ours to write; nobody writes there
  // then.
  const std::string folder = fs::path(path_).parent_path().string();
  const bool fixed =
      mode == Mode::read && ::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0;
  std::string name = path_;
  if (fixed) {
    name = "file:";
    for (const char c : path_) {
      if (c == '%' || c == '?' || c == '#') {
        name += cat("%", c == '%' ? "25" : c == '?' ? "3f" : "23");
      } else {
        name.push_back(c);
      }
    }
    name += "?immutable=1";
  }
  const int flags = fixed                ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI
                    : mode == Mode::read ? SQLITE_OPEN_READWRITE
                                         : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) fail("cannot be opened", code);
  sqlite3_extended_result_codes(handle_, 1);
  sqlite3_busy_timeout(handle_, kPatience);
}

void Database::recognise(Mode mode, std::int32_t mark) {
  const auto number = [&](std::string_view sql) {
    return std::get<std::int64_t>(query(sql)[0][0]);
  };
  const std::int64_t found = number("PRAGMA application_id");
  const bool empty = number("SELECT count(*) FROM sqlite_master") == 0;
  if (found != mark && !(empty && found == 0)) {
    throw IoError(
        cat(path_, ": is an SQLite database, but no ", what_, " of fovea: choose another out_dir"));
  }
  if (mode == Mode::read) {
    if (empty) throw IoError(cat(path_, ": the ", what_, " is empty: run fovea sweep first"));
  } else {
    query("PRAGMA journal_mode = WAL");
    query("PRAGMA synchronous = NORMAL");
    if (found == 0) query(cat("PRAGMA application_id = ", mark));
  }
  const Value verdict = query("PRAGMA quick_check(1)")[0][0];
  const auto* const text = std::get_if<std::string>(&verdict);
  if (text == nullptr || *text != "ok") fail("is damaged", SQLITE_CORRUPT);
}

void Database::fail(std::string_view action, int code) const {
  const int kind = code & 0xff;
  const bool unreadable = kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB;
  // Our statements are sound: what SQLite finds wrong with one is a table or column that is gone.
  const bool damaged = unreadable || kind == SQLITE_ERROR;
  const std::string why = unreadable ? std::string(sqlite3_errstr(kind)) : sqlite3_errmsg(handle_);
  throw IoError(cat(path_, ": the ", what_, " ", damaged ? std::string_view("is damaged") : action,
                    ": ", why,
                    damaged ? "; move it away and start the sweep again: finished runs are known "
                              "by their folders"
                            : ""));
}

std::vector<Row> Database::query(std::string_view sql, std::span<const Value> values) const {
  Statement statement;
  int code = sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()),
                                &statement.handle, nullptr);
  if (code != SQLITE_OK) fail("cannot be read", code);
  for (std::size_t i = 0; i < values.size(); ++i) {
    code = bind(statement.handle, static_cast<int>(i) + 1, values[i]);
    if (code != SQLITE_OK) fail("cannot be written", code);
  }
  std::vector<Row> rows;
  while ((code = sqlite3_step(statement.handle)) == SQLITE_ROW) {
    Row& row = rows.emplace_back();
    for (int column = 0; column < sqlite3_column_count(statement.handle); ++column)
      row.push_back(value_at(statement.handle, column));
  }
  const bool reads = sqlite3_stmt_readonly(statement.handle) != 0;
  if (code != SQLITE_DONE) fail(reads ? "cannot be read" : "cannot be written", code);
  return rows;
}

Transaction::Transaction(const Database& database) : database_(database) {
  database_.query("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.query("ROLLBACK");
  } catch (...) {
    // Closing the file takes it back as well.
    open_ = false;
  }
}

void Transaction::commit() {
  database_.query("COMMIT");
  open_ = false;
}

}  // namespace fovea::study
