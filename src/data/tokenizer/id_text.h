#pragma once
// Token ids as text, numbers between spaces, made and read in pieces: what `fovea tokenize` does.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/stream_decoder.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// Takes what was made; false: nothing more is needed.
using TextTaker = std::function<bool(std::string_view)>;

struct ConversionCounts {
  std::int64_t texts = 0, tokens = 0, bytes = 0;  // bytes of text, not of ids
};

// Texts become lines of ids, a line a text.
class IdWriter {
 public:
  struct Format {
    bool lines = false;   // every line is a text, without its line end; else every file is one
    bool pieces = false;  // quoted texts of the tokens instead of ids
  };
  // Borrows everything.
  IdWriter(const Tokenizer& tokenizer, const Format& format, const TextTaker& take)
      : tokenizer_(tokenizer), format_(format), take_(take), encoder_(tokenizer) {}

  // What follows is the file `name`.
  void begin_file(const std::string& name) { name_ = name; }
  // False: the receiver needs nothing more. Throws IoError, with the file's name, for what the
  // vocabulary cannot express.
  bool add(std::string_view text);
  bool end_file();
  const ConversionCounts& counts() const { return counts_; }

 private:
  bool end_text();
  bool encode(std::string_view text, bool ends);

  const Tokenizer& tokenizer_;
  Format format_;
  const TextTaker& take_;
  StreamEncoder encoder_;
  ConversionCounts counts_;
  std::string name_;
  std::vector<std::int32_t> ids_;
  bool begins_ = true;  // the next id is its line's first
  bool open_ = false;   // there is text behind the last line end
};

// Lines of ids become texts, one behind the other.
class IdReader {
 public:
  // `lines`: every text gets a line end, unless it has one. Borrows everything.
  IdReader(const Tokenizer& tokenizer, bool lines, const TextTaker& take)
      : tokenizer_(tokenizer), lines_(lines), take_(take), decoder_(tokenizer) {}

  void begin_file(const std::string& name);
  // False: the receiver needs nothing more. Throws IoError "name:line: ..." for what is no id of
  // the vocabulary.
  bool add(std::string_view ids);
  bool end_file();
  const ConversionCounts& counts() const { return counts_; }

 private:
  void end_word();
  bool end_line();
  bool put();
  bool write(std::string_view text);

  const Tokenizer& tokenizer_;
  bool lines_;
  const TextTaker& take_;
  StreamDecoder decoder_;
  ConversionCounts counts_;
  std::string name_, word_;
  std::int64_t line_ = 1;
  std::vector<std::int32_t> ids_;
  char last_ = '\0';   // of the line's text
  bool open_ = false;  // there is something behind the last line end
};

}  // namespace fovea::data
