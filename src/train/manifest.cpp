#include "train/manifest.h"

#include <charconv>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/safetensors.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

constexpr int kSchema = 1;

std::string tail_of(std::string_view body) {
  return cat("  \"xxh3\":\"", data::hash_hex(data::xxh3_64(body)), "\"\n}\n");
}

std::uint64_t hash_of(const nlohmann::json& value) {
  const std::string text = value.get<std::string>();
  std::uint64_t hash = 0;
  std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  return hash;
}

// Says what is wrong inside a safetensors file whose hash is wrong.
std::string culprit(const std::string& path, const ManifestFile& file) {
  try {
    const data::SafetensorsFile tensors(path);
    for (const auto& [name, expected] : file.tensors) {
      const data::SafetensorsEntry* entry = tensors.find(name);
      if (entry == nullptr) return cat("its header is altered: tensor ", name, " is missing");
      std::string bytes(entry->end - entry->begin, '\0');
      tensors.read_bytes(*entry, bytes.data());
      const std::uint64_t found = data::xxh3_64(bytes);
      if (found == expected) continue;
      return cat("tensor ", name, " has xxh3 ", data::hash_hex(found), ", but the manifest says ",
                 data::hash_hex(expected));
    }
    return "its header is altered";
  } catch (const IoError& e) {
    return cat("its header is altered (", e.what(), ")");
  }
}

}  // namespace

std::string manifest_json(const std::vector<ManifestFile>& files) {
  std::string rows;
  for (const ManifestFile& file : files) {
    JsonObject row, tensors;
    for (const auto& [name, hash] : file.tensors)
      tensors.add(name, data::hash_hex(hash));
    row.add("name", file.name).add("bytes", file.bytes).add("xxh3", data::hash_hex(file.xxh3));
    row.raw("tensors", tensors.str());
    rows += cat(rows.empty() ? "" : ",\n", "    ", row.str());
  }
  const std::string body = cat("{\n  \"schema\":", kSchema, ",\n  \"files\":[\n", rows, "\n  ],\n");
  return body + tail_of(body);
}

std::vector<ManifestFile> parse_manifest(std::string_view text, const std::string& path) {
  const std::size_t tail = tail_of("").size();
  const std::string_view body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  if (text.substr(body.size()) != tail_of(body)) {
    throw CheckpointError(cat(path, ": is altered or cut: its own hash does not fit"));
  }
  std::vector<ManifestFile> out;
  try {
    const nlohmann::json root = nlohmann::json::parse(text);
    if (root.at("schema").get<int>() != kSchema) {
      throw CheckpointError(cat(path, ": has schema ", root.at("schema").get<int>(),
                                ", but this fovea reads ", kSchema));
    }
    for (const nlohmann::json& row : root.at("files")) {
      ManifestFile file;
      file.name = row.at("name").get<std::string>();
      file.bytes = row.at("bytes").get<std::uint64_t>();
      file.xxh3 = hash_of(row.at("xxh3"));
      for (const auto& [name, hash] : row.at("tensors").items())
        file.tensors.emplace_back(name, hash_of(hash));
      if (file.name.empty() || file.name.find('/') != std::string::npos ||
          file.name.front() == '.') {
        throw CheckpointError(
            cat(path, ": names a file outside the checkpoint: ", json_string(file.name)));
      }
      out.push_back(std::move(file));
    }
  } catch (const nlohmann::json::exception& e) {
    throw CheckpointError(cat(path, ": is no manifest: ", e.what()));
  }
  return out;
}

std::vector<ManifestFile> read_manifest(const std::string& folder) {
  const std::string path = cat(folder, "/", kManifestName);
  if (!std::filesystem::is_directory(folder))
    throw CheckpointError(cat(folder, ": is no checkpoint folder"));
  if (!std::filesystem::is_regular_file(path)) {
    throw CheckpointError(cat(path, ": is missing, so the checkpoint is not whole"));
  }
  return parse_manifest(read_file(path), path);
}

void verify_file(const std::string& folder, const ManifestFile& file) {
  const std::string path = cat(folder, "/", file.name);
  if (!std::filesystem::is_regular_file(path)) throw CheckpointError(cat(path, ": is missing"));
  const std::uint64_t bytes = std::filesystem::file_size(path);
  if (bytes != file.bytes) {
    throw CheckpointError(cat(path, ": has ", bytes, " bytes, but the manifest says ", file.bytes));
  }
  const std::uint64_t found = data::xxh3_64_file(path);
  if (found == file.xxh3) return;
  throw CheckpointError(cat(path, ": ",
                            file.tensors.empty()
                                ? cat("has xxh3 ", data::hash_hex(found),
                                      ", but the manifest says ", data::hash_hex(file.xxh3))
                                : culprit(path, file)));
}

std::vector<ManifestFile> verify_manifest(const std::string& folder) {
  std::vector<ManifestFile> files = read_manifest(folder);
  for (const ManifestFile& file : files)
    verify_file(folder, file);
  return files;
}

}  // namespace fovea::train
