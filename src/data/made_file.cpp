#include "data/made_file.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

namespace {

const std::string& free_path(const std::string& path, Existing existing) {
  require_free(path, existing);
  return path;
}

}  // namespace

void require_free(const std::string& path, Existing existing) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (existing == Existing::refuse && fs::exists(fs::symlink_status(path, ignored)))
    throw IoError(cat(path, ": exists already; remove it or ask to overwrite it"));
}

MadeFile::MadeFile(const std::string& path, Existing existing)
    : replaced_(free_path(path, existing)), file_(replaced_.temporary()) {}

void MadeFile::finish() {
  file_.finish();
  replaced_.finish();
}

std::string json_list(std::span<const std::int32_t> ids) {
  std::string out = "[";
  for (const std::int32_t id : ids)
    out += cat(out.size() > 1 ? "," : "", id);
  return out + "]";
}

}  // namespace fovea::data
