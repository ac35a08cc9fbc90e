#include "train/inspect.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/listops_files.h"
#include "data/quote.h"
#include "data/text_files.h"
#include "data/token_files.h"
#include "train/import/imported_model.h"
#include "train/inspect_kinds.h"
#include "train/json_text.h"
#include "train/manifest.h"
#include "train/run_status.h"

namespace fovea::train {

namespace fs = std::filesystem;

std::string plural(std::int64_t n, const char* one) {
  return cat(n, " ", one, n == 1 ? "" : "s");
}

std::string name_text(const std::string& name) {
  const std::string quoted = data::quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

namespace {

bool has(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(folder / name, ignored);
}

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (has(folder, name)) return true;
  return false;
}

bool is_run(const fs::path& folder) {
  return has(folder, "ckpt") && has_any(folder, {"config.yaml", kStatusName, "metrics.jsonl"});
}

bool is_checkpoint(const fs::path& folder) {
  return has_any(folder, {kManifestName, "state.json", "optimizer.safetensors"});
}

// A folder whose .bin files may be of any program: each has to be what it is as a file.
Inspection inspect_bins(const std::string& path, const std::vector<std::string>& names) {
  std::vector<Inspection> others;  // than data
  std::vector<std::string> texts, records;
  for (const std::string& name : names) {
    Inspection one = inspect_bin((fs::path(path) / name).string());
    texts.push_back(one.text);
    records.push_back(one.json);
    if (one.kind != "data") others.push_back(std::move(one));
  }
  if (others.empty()) return inspect_data_files(path);
  // A model with its tokenizer beside it is one thing.
  std::int64_t models = 0;
  for (Inspection& one : others) {
    if (one.kind == "model") ++models;
    if (one.kind == "model" && models == 1) std::swap(others.front(), one);
  }
  if (others.size() == names.size() && (models == 1 || names.size() == 1))
    return std::move(others.front());
  return {"folder",
          cat(path, ": folder, ", plural(static_cast<std::int64_t>(names.size()), "file"), "\n",
              join(texts, "\n")),
          JsonObject()
              .add("kind", "folder")
              .add("path", path)
              .raw("files", cat("[", join(records, ","), "]"))
              .str(),
          {}};
}

Inspection inspect_folder(const std::string& path) {
  const fs::path folder(path);
  if (!data::shards_in(path).empty()) return inspect_data_files(path);
  if (has_any(folder, {"index.bin", "blocks.bin"})) {
    throw IoError(cat(path, ": is prepared data without ", kManifestName,
                      ", so it is not whole: prepare it again"));
  }
  if (is_checkpoint(folder)) return inspect_checkpoint(path);
  if (is_run(folder)) return inspect_run(path);
  if (is_foreign_model(path)) return inspect_model(path);
  if (has_any(folder,
              {"tokenizer.json", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe"}) ||
      (has(folder, "vocab.txt") && is_tokenizer_text((folder / "vocab.txt").string())))
    return inspect_tokenizer(path);
  std::vector<std::string> bins;
  for (const std::string& name : data::list_files(path))
    if (name.ends_with(".bin") && name.find('/') == std::string::npos) bins.push_back(name);
  return bins.empty() ? inspect_data_files(path) : inspect_bins(path, bins);
}

Inspection inspect_file(const std::string& path) {
  const fs::path file(path);
  std::string name = file.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  const std::string extension = fs::path(name).extension().string();
  if (extension == ".safetensors") return inspect_safetensors(path);
  if (name.ends_with(".safetensors.index.json")) return inspect_model(path);
  if (extension == ".yaml" || extension == ".yml") return inspect_config(path);
  if (extension == ".jsonl" || extension == ".ndjson") return inspect_json(path, true);
  if (extension == ".json") return inspect_json(path, false);
  if (extension == ".bin") {
    // A file of prepared data is checked with the others of its folder.
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const bool prepared = name == "tokens.bin" || name == "index.bin" || name == "blocks.bin";
    if (prepared && has(folder, "index.bin")) return inspect_folder(folder.string());
    return inspect_bin(path);
  }
  for (const char* other : {".png", ".jpg", ".jpeg", ".gif", ".npy", ".npz", ".idx", ".mat",
                            ".model", ".pt", ".pth", ".onnx", ".parquet"}) {
    if (extension == other) throw IoError(cat(path, ": fovea does not read ", other, " files"));
  }
  if (extension == ".tsv" && data::listops::looks_like_table(path)) return inspect_listops(path);
  if (is_tokenizer_text(path)) return inspect_tokenizer(path);
  return inspect_data_files(path);
}

}  // namespace

std::string one_line(const std::string& what) {
  const std::size_t end = what.find('\n');
  if (end == std::string::npos) return what;
  std::string first = what.substr(0, end);
  std::int64_t more = 0;
  for (std::size_t at = end; at != std::string::npos; at = what.find('\n', at + 1))
    ++more;
  if (!first.ends_with(':')) return cat(first, " (and ", more, " more)");
  // A heading: what it lists comes first.
  const std::size_t begin = what.find_first_not_of(" \n", end);
  const std::string second = what.substr(begin, what.find('\n', begin) - begin);
  return cat(first, " ", second, more > 1 ? cat(" (and ", more - 1, " more)") : std::string());
}

Inspection inspect(const std::string& path) {
  try {
    if (!fs::exists(path)) throw IoError(cat(path, ": does not exist"));
    return fs::is_directory(path) ? inspect_folder(path) : inspect_file(path);
  } catch (const ConfigError& e) {
    throw ConfigError(one_line(e.what()));
  } catch (const CheckpointError& e) {
    throw CheckpointError(one_line(e.what()));
  } catch (const IoError& e) {
    throw IoError(one_line(e.what()));
  } catch (const fs::filesystem_error& e) {
    throw IoError(cat(path, ": cannot be read: ", e.code().message()));
  }
}

}  // namespace fovea::train
