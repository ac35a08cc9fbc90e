#pragma once
// Files, read and written so that what is on disk is whole or an error says why. Every function
// throws IoError with the path and the system's reason.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea {

// All bytes of a file (pipes and devices too: up to their end).
std::string read_file(const std::string& path);

// A regular file open for reading at any offset; its size is taken once, when it is opened.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Throws IoError if the file ends before offset + bytes. Safe from several threads.
  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// A file written from the start, in pieces. Unless finish() returned, the destructor removes it: a
// full disk leaves no torn file behind.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // replaces what is there
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* from, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Brings the bytes to the disk and closes. Write nothing afterwards.
  void finish();

 private:
  std::string path_;
  int descriptor_ = -1;
  bool regular_ = false;
  std::uint64_t written_ = 0;
};

// A regular file, or a name still free, that a new file takes the place of once that is written. A
// link stays, and what it leads to is replaced. Unless finish() returned, the destructor removes
// what was written.
class ReplacedFile {
 public:
  // Finds out now whether that can be: throws if something else has the name (a device, a pipe, a
  // folder, a link that leads nowhere), or no file can be created beside it. Leaves nothing there.
  explicit ReplacedFile(const std::string& path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  // To be written and synced there.
  const std::string& temporary() const { return temporary_; }
  void finish();

 private:
  std::string path_, temporary_;
};

// Writes and syncs the file, not its name: follow with rename_over or sync_folder.
void write_file_synced(const std::string& path, std::string_view bytes);
// Makes the names in a folder durable.
void sync_folder(const std::string& path);
// Gives `from` the name `to` in one step (replacing a file; a folder only if it is empty) and makes
// the new name durable. Both must be on one file system.
void rename_over(const std::string& from, const std::string& to);

}  // namespace fovea
