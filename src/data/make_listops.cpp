// The file form of ListOps: `fovea data make listops`.

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "core/error.h"
#include "core/parallel.h"
#include "core/text.h"
#include "data/listops_files.h"
#include "data/listops_generator.h"
#include "data/made_file.h"

namespace fovea::data::listops {

namespace {

namespace fs = std::filesystem;

// Lines of these trees, in their order.
void write_trees(const Generator& generator, std::span<const std::uint64_t> trees, ThreadPool& pool,
                 MadeFile& file) {
  constexpr std::size_t kPiece = 64, kPieces = 64;
  std::vector<std::string> texts(kPieces);
  file.write("Source\tTarget\r\n");
  for (std::size_t from = 0; from < trees.size(); from += kPiece * kPieces) {
    const auto part = trees.subspan(from, std::min(kPiece * kPieces, trees.size() - from));
    const auto pieces = static_cast<std::int64_t>((part.size() + kPiece - 1) / kPiece);
    parallel_for(StreamRef{&pool}, pieces, 1, [&](std::int64_t piece, std::int64_t) {
      std::string& text = texts[static_cast<std::size_t>(piece)];
      text.clear();
      const std::size_t first = static_cast<std::size_t>(piece) * kPiece;
      Expression tree;
      for (const std::uint64_t number :
           part.subspan(first, std::min(kPiece, part.size() - first))) {
        const int value = generator.draw(number, tree);
        text += cat(bracketed_text(tree), "\t", value, "\r\n");
      }
    });
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      file.write(texts[static_cast<std::size_t>(piece)]);
  }
}

}  // namespace

void make_files(const ListOpsConfig& config, std::uint64_t seed, int threads,
                const std::string& folder, Existing existing) {
  struct Part {
    const char* name;
    std::int64_t examples;
  };
  const Part parts[] = {{"basic_train.tsv", config.train_examples},
                        {"basic_val.tsv", config.validation_examples},
                        {"basic_test.tsv", config.test_examples}};
  std::int64_t all = 0;
  for (const Part& part : parts) {
    if (part.examples < 1)
      throw ConfigError(cat("listops: ", part.name, " would have ", part.examples,
                            " examples, but needs at least 1"));
    all += part.examples;
  }
  const Generator generator(config, seed);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(cat(folder, ": cannot be made: ", error.message()));
  for (const Part& part : parts)
    require_free((fs::path(folder) / part.name).string(), existing);
  const std::vector<std::uint64_t> trees = generator.first(all, threads);
  ThreadPool pool(threads);
  std::span<const std::uint64_t> left(trees);
  for (const Part& part : parts) {
    const auto count = static_cast<std::size_t>(part.examples);
    MadeFile file((fs::path(folder) / part.name).string(), existing);
    write_trees(generator, left.first(count), pool, file);
    file.finish();
    left = left.subspan(count);
  }
}

}  // namespace fovea::data::listops
