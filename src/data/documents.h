#pragma once
// The documents of a split, one after the other and in pieces: a file is a document, and so is a
// record of JSON lines. What is in them does not depend on which of the two they came in.

#include <cstdint>
#include <string>
#include <string_view>

#include "data/text_layout.h"
#include "data/text_reader.h"

namespace fovea::data {

// Receives clean text (text_reader.h). Called from one thread.
class TextSink {
 public:
  virtual ~TextSink() = default;
  // Before a document's first text(): where it is from, for messages, and how many of its bytes
  // come before that.
  virtual void begin_document(const std::string& /*where*/, std::uint64_t /*left_out*/) {}
  virtual void text(std::string_view piece) = 0;  // the next bytes of a document
  virtual void end_document() = 0;                // empty documents have no text() before it
};

struct DocumentOptions {
  std::string text_field = "text";  // of JSON lines
  double val_fraction = 0.1;        // where TextSplit::by_fraction
};

// Of each document of n bytes the last floor(val_fraction n) are held out, from the next
// beginning of a line on if there is one within 64 KiB, else from the next beginning of a
// character. A document of which nothing falls into the split is left out (an empty one belongs to
// train). Memory: a few MiB, whatever the size of the files, but for the largest JSON record.
// Throws IoError (text_reader.h, json_records.h); ConfigError unless val_fraction is in [0, 1].
// Returns what cleaning removed from this split of the documents.
Removed read_documents(const TextSplit& split, const DocumentOptions& options, TextSink& sink);

}  // namespace fovea::data
