#include "data/prepare.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/documents.h"
#include "data/folder_lock.h"
#include "data/hash.h"
#include "data/shard.h"
#include "data/text_layout.h"
#include "data/token_encoder.h"
#include "data/token_files.h"
#include "data/token_split.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;
using Stage = PrepareProgress::Stage;
using Progress = std::function<void(const PrepareProgress&)>;

// Passes text on and says how far it is.
class Meter final : public TextSink {
 public:
  Meter(TextSink& to, Split split, const Progress& progress)
      : to_(to), split_(split), progress_(progress) {}
  void begin_document(const std::string& where, std::uint64_t left_out) override {
    to_.begin_document(where, left_out);
  }
  void text(std::string_view piece) override {
    to_.text(piece);
    bytes_ += static_cast<std::int64_t>(piece.size());
    if (bytes_ < next_) return;
    next_ = bytes_ + kStep;
    progress_({Stage::encoding, split_, bytes_});
  }
  void end_document() override { to_.end_document(); }

 private:
  static constexpr std::int64_t kStep = std::int64_t{4} << 20;
  TextSink& to_;
  Split split_;
  const Progress& progress_;
  std::int64_t bytes_ = 0, next_ = 0;
};

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/'))
    path.pop_back();
  return path;
}

bool is_empty_or_missing(const std::string& path) {
  std::error_code code;
  return !fs::exists(path, code) || (fs::is_directory(path, code) && fs::is_empty(path, code));
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Progress& progress)
      : options_(options),
        progress_(progress ? progress : [](const PrepareProgress&) {}),
        out_(without_slash(options.out)),
        work_(out_ + ".preparing") {
    check();
    tokenizer_ = open();
    for (TextSplit& split : find_splits(options.source, wikitext_form(*tokenizer_))) {
      // Nothing can fall into the split: it is none.
      const double other_share =
          split.split == Split::train ? options.val_fraction : 1 - options.val_fraction;
      if (!split.by_fraction || other_share < 1) splits_.push_back(std::move(split));
    }
    for (const TextSplit& split : splits_)
      recipes_.push_back(recipe(split));
  }

  Prepared run() {
    if (whole()) return Prepared{out_, std::move(done_), true};
    require_free();
    fs::create_directories(fs::path(out_).has_parent_path() ? fs::path(out_).parent_path() : ".");
    make_all();
    for (PreparedSplit& split : done_)
      split.folder = cat(out_, "/", name_of(split.manifest.recipe.split));
    progress_({Stage::done});
    return Prepared{out_, std::move(done_), false};
  }

 private:
  void check() const {
    if (out_.empty()) throw ConfigError("data prepare: give the folder to write, --out DIR");
    if (options_.jobs < 1)
      throw ConfigError(cat("data prepare: --jobs is ", options_.jobs, ", but must be at least 1"));
    if (!(options_.val_fraction >= 0 && options_.val_fraction <= 1)) {
      throw ConfigError(cat("data prepare: --val-fraction is ", options_.val_fraction,
                            ", but must be in [0, 1]"));
    }
    std::error_code code;
    const std::string source = fs::weakly_canonical(options_.source, code).string() + "/";
    if (fs::is_directory(source, code) &&
        fs::weakly_canonical(out_, code).string().starts_with(source)) {
      throw ConfigError(cat(out_, ": lies in ", options_.source,
                            ", whose files would be read with it; choose a folder outside"));
    }
    require_possible();
  }

  // What is wrong with OUT whatever the texts are; reading them may take long.
  void require_possible() const {
    if (!is_empty_or_missing(out_)) {
      if (!shards_in(out_).empty()) return;
      throw IoError(
          cat(out_, ": is there already, and is no prepared data; choose another folder"));
    }
    fs::path above = fs::absolute(out_).parent_path();
    while (!fs::exists(above))
      above = above.parent_path();
    if (::access((above / "").c_str(), W_OK | X_OK) == 0) return;
    throw IoError(cat(out_, ": cannot be made in ", above.string(), ": ",
                      std::generic_category().message(errno)));
  }

  void make_all() {
    const FolderLock lock(work_ + ".lock",
                          cat(out_,
                              ": another process is preparing it: wait for it, or choose "
                              "another folder"));
    fs::create_directories(work_);
    write_tokenizer();
    for (std::size_t i = 0; i < splits_.size(); ++i)
      make(splits_[i], recipes_[i]);
    remove_strangers();
    progress_({Stage::renaming});
    move_in();
  }

  std::unique_ptr<Tokenizer> open() const {
    std::string name = options_.tokenizer;
    if (!options_.vocab_from.empty()) {
      if (name != "word" && name != "char") {
        throw ConfigError(cat(
            "data prepare: --vocab-from is for the tokenizers word and char, not ", "for ", name));
      }
      name += ":" + options_.vocab_from;
    }
    return tokenizer_for(name, {options_.source}, options_.text_field, options_.val_fraction);
  }

  ShardRecipe recipe(const TextSplit& split) const {
    ShardRecipe out;
    out.split = split.split;
    out.layout = split.layout;
    out.by_fraction = split.by_fraction;
    if (split.by_fraction) out.val_fraction = options_.val_fraction;
    out.text_field = options_.text_field;
    out.tokenizer = tokenizer_->kind();
    out.tokenizer_fingerprint = tokenizer_->fingerprint();
    out.vocab = tokenizer_->vocab_size();
    progress_({Stage::hashing, split.split});
    for (const TextFile& file : split.files) {
      out.sources.push_back({file.name, InputFile(file.path).size(), xxh3_64_file(file.path)});
    }
    return out;
  }

  // Whether OUT has just these splits, whole. Fills done_ if so.
  bool whole() {
    std::vector<PreparedSplit> found;
    try {
      for (const std::string& folder : shards_in(out_))
        found.push_back({folder, ShardTokens(folder).manifest(), true});
    } catch (const IoError&) {
      return false;  // damaged: to be made again, if that is allowed
    }
    auto next = found.begin();
    for (const ShardRecipe& recipe : recipes_) {
      if (next != found.end() && next->manifest.recipe == recipe) {
        ++next;
      } else if (!recipe.by_fraction || recipe.split != Split::validation) {
        return false;  // only a validation split of nothing may be missing
      }
    }
    const bool equal = !found.empty() && next == found.end();
    if (equal) done_ = std::move(found);
    return equal;
  }

  void require_free() const {
    if (!is_empty_or_missing(out_) && !options_.overwrite) {
      throw IoError(cat(out_,
                        ": holds other prepared data (of other texts, another tokenizer or "
                        "other options, or damaged); choose another folder, or use "
                        "--overwrite"));
    }
  }

  void write_tokenizer() const {
    const std::string folder = work_ + "/tokenizer";
    fs::remove_all(folder);
    const std::vector<TokenizerFile> files = tokenizer_->files();
    if (files.empty()) return;
    fs::create_directories(folder);
    for (const TokenizerFile& file : files)
      write_file_synced(cat(folder, "/", file.name), file.bytes);
    sync_folder(folder);
  }

  void make(const TextSplit& split, const ShardRecipe& recipe) {
    const std::string folder = cat(work_, "/", name_of(split.split));
    if (std::optional<ShardManifest> there = finished(folder, recipe)) {
      done_.push_back({folder, std::move(*there), true});
      progress_({Stage::split_done, split.split});
      return;
    }
    fs::remove_all(folder);
    fs::create_directories(folder);
    try {
      ShardManifest manifest = encode(split, recipe, folder);
      // Of short documents nothing may be left for validation.
      if (manifest.counts.bytes > 0) {
        done_.push_back({folder, std::move(manifest), false});
      } else if (split.split == Split::validation && split.by_fraction) {
        fs::remove_all(folder);
      } else {
        throw IoError(cat(split.source, ": the ", name_of(split.split),
                          " split has no bytes (files ", split.files.size(), "); give more text"));
      }
    } catch (...) {
      fs::remove_all(folder);
      if (done_.empty()) fs::remove_all(work_);
      throw;
    }
    sync_folder(work_);
    progress_({Stage::split_done, split.split});
  }

  static std::optional<ShardManifest> finished(const std::string& folder,
                                               const ShardRecipe& recipe) {
    std::error_code code;
    if (!fs::exists(cat(folder, "/", kShardManifest), code)) return std::nullopt;
    try {
      const ShardTokens shard(folder);
      if (shard.manifest().recipe == recipe) return shard.manifest();
    } catch (const IoError&) {
      // Not whole: it is made again.
    }
    return std::nullopt;
  }

  ShardManifest encode(const TextSplit& split, const ShardRecipe& recipe,
                       const std::string& folder) const {
    ShardWriter writer(folder, tokenizer_->vocab_size());
    TokenEncoder encoder(*tokenizer_, options_.jobs, writer);
    Meter meter(encoder, split.split, progress_);
    ShardManifest manifest;
    manifest.recipe = recipe;
    manifest.source = split.source;
    manifest.removed = read_documents(split, {options_.text_field, options_.val_fraction}, meter);
    encoder.finish();
    manifest.counts = encoder.counts();
    check_wikitext(split, manifest.counts);
    writer.finish(manifest);
    return manifest;
  }

  // What an earlier start with other options left.
  void remove_strangers() const {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(work_)) {
      const std::string name = entry.path().filename().string();
      const bool known =
          name == "tokenizer" || std::any_of(done_.begin(), done_.end(), [&](const auto& split) {
            return name == name_of(split.manifest.recipe.split);
          });
      if (!known) found.push_back(entry.path());
    }
    for (const fs::path& path : found)
      fs::remove_all(path);
    sync_folder(work_);
  }

  void move_in() const {
    const std::string old = out_ + ".replaced";
    fs::remove_all(old);
    if (!is_empty_or_missing(out_)) rename_over(out_, old);
    rename_over(work_, out_);
    fs::remove_all(old);
  }

  const PrepareOptions& options_;
  Progress progress_;
  std::string out_, work_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TextSplit> splits_;
  std::vector<ShardRecipe> recipes_;
  std::vector<PreparedSplit> done_;
};

}  // namespace

Prepared prepare(const PrepareOptions& options,
                 const std::function<void(const PrepareProgress&)>& progress) {
  try {
    return Preparation(options, progress).run();
  } catch (const fs::filesystem_error& e) {
    throw IoError(cat(options.out, ": cannot be prepared: ", e.what()));
  }
}

}  // namespace fovea::data
