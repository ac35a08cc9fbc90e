// fovea tokenize: text to token ids, and back.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "byte_io.h"
#include "command_line.h"
#include "core/text.h"
#include "data/text_reader.h"
#include "data/tokenizer/id_text.h"
#include "data/tokenizer/tokenizer.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

struct Options {
  std::string tokenizer, vocab_from, output;
  std::vector<std::string> files;
  bool pieces = false, count = false, decode = false, lines = false;
  bool clean = false, allow_special = false;

  void check() const {
    const auto refuse = [](const std::string& what) {
      throw ConfigError(cat("fovea tokenize: ", what));
    };
    if (tokenizer.empty())
      refuse("--tokenizer is required: byte, word, char, or a tokenizer's file or folder");
    const bool bare = tokenizer == "word" || tokenizer == "char";
    if (bare && vocab_from.empty())
      refuse(cat("the tokenizer ", tokenizer, " needs --vocab-from FILE"));
    if (!bare && !vocab_from.empty())
      refuse(cat("--vocab-from is for the tokenizers word and char, not for ", tokenizer));
    if (decode && (pieces || count || clean || allow_special))
      refuse("--decode goes with none of --pieces, --count, --clean and --allow-special");
    if (count && (pieces || !output.empty()))
      refuse("--count prints no tokens: it goes with neither --pieces nor --output");
  }

  std::unique_ptr<data::Tokenizer> open() const {
    return data::open_tokenizer(vocab_from.empty() ? tokenizer : cat(tokenizer, ":", vocab_from),
                                {.allow_special = allow_special});
  }
};

// Hands all files to an IdWriter or IdReader.
template <class Way>
data::ConversionCounts convert(const Options& options, Way&& way) {
  const auto file = [&](const std::string& path) {
    ByteInput in(path);
    way.begin_file(in.name());
    data::TextCleaner cleaner;
    std::string raw, clean;
    while (in.read(raw)) {
      if (options.clean) cleaner.add(raw, clean);
      if (!way.add(options.clean ? clean : raw)) return false;
      clean.clear();
    }
    cleaner.finish(clean);
    return way.add(clean) && way.end_file();
  };
  for (const std::string& path : options.files)
    if (!file(path)) break;
  return way.counts();
}

}  // namespace

ExitCode tokenize(const Arguments& arguments, Output& out) {
  Options options;
  CommandLine line("tokenize",
                   "Prints the token ids of each FILE on a line of its own; every byte counts as "
                   "it is, but gzip files are unpacked. With --json the ids go to --output only.");
  line.rest("FILE", options.files, "texts, - for standard input (default)")
      .option("--tokenizer", options.tokenizer,
              "byte, word, char, or a tokenizer's file or folder, as data.tokenizer")
      .option("--vocab-from", options.vocab_from, "word, char: a text to make the vocabulary of")
      .flag("--decode", options.decode, "from ids to text: every line of ids is a text")
      .flag("--lines", options.lines, "every line is a text of its own, without its line end")
      .flag("--pieces", options.pieces, "print the tokens' quoted texts instead of ids")
      .flag("--count", options.count, "print how many tokens and bytes there are")
      .flag("--clean", options.clean,
            "drop byte order marks and CR before LF, as training data does")
      .flag("--allow-special", options.allow_special,
            "\"<|endoftext|>\" and the like in a text are the special tokens")
      .option("--output", options.output, "a file to write to, replaced as a whole");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  options.check();
  if (options.files.empty()) options.files = {"-"};

  const std::unique_ptr<data::Tokenizer> tokenizer = options.open();
  std::unique_ptr<ByteOutput> bytes;
  const bool printed = !options.count && !out.json();
  if (printed || !options.output.empty()) bytes = std::make_unique<ByteOutput>(options.output);
  const data::TextTaker take = [&](std::string_view text) {
    return bytes == nullptr || bytes->write(text);
  };
  const data::ConversionCounts counts =
      options.decode
          ? convert(options, data::IdReader(*tokenizer, options.lines, take))
          : convert(options, data::IdWriter(*tokenizer, {options.lines, options.pieces}, take));
  if (bytes != nullptr) bytes->finish();
  const double ratio = static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens);
  if (options.count) {
    out.line(counts.tokens == 0 ? cat("0 tokens, ", counts.bytes, " bytes")
                                : cat(counts.tokens, " tokens, ", counts.bytes, " bytes, ",
                                      rounded(ratio, 4), " bytes a token"));
  }
  out.record().add("texts", counts.texts).add("tokens", counts.tokens).add("bytes", counts.bytes);
  out.record().add("bytes_per_token", ratio).add("tokenizer", tokenizer->kind());
  out.record().add("tokenizer_fingerprint", tokenizer->fingerprint());
  out.record().add("vocab_size", tokenizer->vocab_size());
  if (!options.output.empty()) out.record().add("path", options.output);
  return ExitCode::ok;
}

}  // namespace fovea::apps
