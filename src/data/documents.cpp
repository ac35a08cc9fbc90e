#include "data/documents.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/json_records.h"

namespace fovea::data {

namespace {

constexpr std::size_t kSearched = std::size_t{64} << 10;

// Where the held-out part begins, in the text from its earliest place on.
std::size_t next_beginning(char before, std::string_view text) {
  if (before == '\n') return 0;
  const std::size_t end_of_line = text.substr(0, kSearched).find('\n');
  if (end_of_line != std::string_view::npos && end_of_line + 1 < text.size())
    return end_of_line + 1;
  std::size_t at = 0;
  while (at < 3 && at + 1 < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    ++at;
  return at;
}

// Passes on the part of a document that belongs to the split.
class Part {
 public:
  Part(std::string where, std::uint64_t bytes, double val_fraction, Split split, TextSink& sink)
      : where_(std::move(where)), train_(split == Split::train), sink_(sink) {
    const auto held_out = static_cast<std::uint64_t>(static_cast<double>(bytes) * val_fraction);
    if (held_out > 0) earliest_ = bytes - std::min(held_out, bytes);
  }

  // The next piece, and the places in it of LFs that a CR stood before.
  void text(std::string_view piece, const std::vector<std::size_t>& cut_at) {
    for (const std::size_t place : cut_at)
      cut(read_ + place);
    read_ += piece.size();
    empty_ = empty_ && piece.empty();
    if (at_ == At::train) {
      const auto head =
          static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), earliest_ - seen_));
      pass(piece.substr(0, head), true);
      if (head > 0) before_ = piece[head - 1];
      seen_ += head;
      piece.remove_prefix(head);
      if (piece.empty()) return;
      at_ = At::border;
    }
    if (at_ == At::held_out) return pass(piece, false);
    border_ += piece;
    if (border_.size() > kSearched) decide();
  }

  // Returns what was removed from the part; `marks` byte order marks from the whole.
  Removed end(std::int64_t marks) {
    if (at_ == At::border) decide();
    if (passed_ || (train_ && empty_)) sink_.end_document();
    const bool begins = at_ == At::train || border_at_ > 0;
    return {begins == train_ ? marks : 0, train_ ? cut_before_ : cut_behind_};
  }

 private:
  enum class At { train, border, held_out };

  void decide() {
    const std::size_t cut = next_beginning(before_, border_);
    border_at_ = seen_ + cut;
    pass(std::string_view(border_).substr(0, cut), true);
    pass(std::string_view(border_).substr(cut), false);
    border_.clear();
    at_ = At::held_out;
    for (const std::uint64_t place : undecided_)
      ++(place < border_at_ ? cut_before_ : cut_behind_);
  }
  void pass(std::string_view piece, bool train) {
    if (train != train_ || piece.empty()) return;
    if (!passed_) sink_.begin_document(where_, train ? 0 : border_at_);
    passed_ = true;
    sink_.text(piece);
  }
  void cut(std::uint64_t place) {
    if (place < earliest_) {
      ++cut_before_;
    } else if (at_ == At::held_out) {
      ++cut_behind_;
    } else {
      undecided_.push_back(place);
    }
  }

  std::string where_;
  bool train_;
  TextSink& sink_;
  std::uint64_t earliest_ = ~std::uint64_t{0};  // where the held-out part begins at the earliest
  std::uint64_t seen_ = 0;                      // of the bytes before that
  At at_ = At::train;
  std::string border_;  // the bytes from there on, until a beginning is found
  char before_ = '\n';  // the byte before them
  bool passed_ = false, empty_ = true;
  std::uint64_t read_ = 0;                        // bytes, until now
  std::uint64_t border_at_ = 0;                   // once it is decided
  std::int64_t cut_before_ = 0, cut_behind_ = 0;  // CRs, by the side of the border
  std::vector<std::uint64_t> undecided_;          // places of those near it
};

std::uint64_t clean_bytes(const std::string& path) {
  TextReader reader(path);
  std::uint64_t bytes = 0;
  for (std::string chunk; reader.read(chunk);)
    bytes += chunk.size();
  return bytes;
}

class DocumentReader {
 public:
  DocumentReader(const TextSplit& split, const DocumentOptions& options, TextSink& sink)
      : split_(split), options_(options), sink_(sink) {}

  Removed run() {
    for (const TextFile& file : split_.files) {
      if (is_json_lines_name(file.path)) {
        records(file.path);
      } else {
        whole_file(file.path);
      }
    }
    return removed_;
  }

 private:
  // A split by fraction has to know a document's size first: its file is read twice.
  void whole_file(const std::string& path) {
    Part part(path, split_.by_fraction ? clean_bytes(path) : 0, fraction(), side(), sink_);
    TextReader reader(path);
    for (std::string chunk; reader.read(chunk);)
      part.text(chunk, reader.cut_at());
    removed_ += part.end(reader.removed().byte_order_marks);
  }

  void records(const std::string& path) {
    JsonRecords reader(path, options_.text_field);
    std::int64_t marks = 0;
    for (std::string text; reader.next(text);) {
      Part part(cat(path, ": line ", reader.line()), text.size(), fraction(), side(), sink_);
      part.text(text, reader.cut_at());
      removed_ += part.end(reader.removed().byte_order_marks - marks);
      marks = reader.removed().byte_order_marks;
    }
  }

  // A split of its own is passed on whole, as a train part of nothing held out.
  double fraction() const { return split_.by_fraction ? options_.val_fraction : 0; }
  Split side() const { return split_.by_fraction ? split_.split : Split::train; }

  const TextSplit& split_;
  const DocumentOptions& options_;
  TextSink& sink_;
  Removed removed_;
};

}  // namespace

Removed read_documents(const TextSplit& split, const DocumentOptions& options, TextSink& sink) {
  if (!(options.val_fraction >= 0 && options.val_fraction <= 1)) {
    throw ConfigError(
        cat("data.val_fraction is ", options.val_fraction, ", but must be in [0, 1]"));
  }
  return DocumentReader(split, options, sink).run();
}

}  // namespace fovea::data
