#pragma once
// A file that `fovea data make` writes: it appears whole or not at all.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file.h"
#include "data/existing.h"

namespace fovea::data {

class MadeFile {
 public:
  // Throws IoError if `path` exists and may not be replaced, or nothing can be written there.
  MadeFile(const std::string& path, Existing existing);
  void write(std::string_view text) { file_.write(text); }
  // Gives the file its name. Without it nothing is left.
  void finish();

 private:
  ReplacedFile replaced_;
  OutputFile file_;
};

// Throws IoError as MadeFile would for what is there already.
void require_free(const std::string& path, Existing existing);

// "[1,2,3]".
std::string json_list(std::span<const std::int32_t> ids);

}  // namespace fovea::data
