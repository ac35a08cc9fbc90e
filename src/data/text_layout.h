#pragma once
// Which files make up a split: the layouts that corpora come in.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/example.h"

namespace fovea::data {

struct TextFile {
  std::string path;
  std::string name;  // relative to the source, for manifests
  friend bool operator==(const TextFile&, const TextFile&) = default;
};

struct TextSplit {
  std::string source;  // as it was given
  Split split = Split::train;
  std::vector<TextFile> files;  // in the order of comes_before() (text_files.h)
  bool by_fraction = false;     // a part of every document: the head (train) or the tail
  std::string layout;           // "one file", "plain folder", "split folders", "split files",
                                // "pattern"; WikiText's split files: "wikitext EXT", other
                                // texts of it: "one file of wikitext" and so on
};

// The source has other splits, but not this one.
struct NoSuchSplit : IoError {
  using IoError::IoError;
};

// Where there are both forms of WikiText: `tokens` (rare words are <unk>) belong to word
// tokenizers, `raw` to all others.
enum class WikiTextForm { tokens, raw };

// `source` is
//   a file;
//   a pattern with *, ? or [...], if nothing has that name: all files it matches, and those below
//     folders it matches;
//   a folder with a folder train/ (the layout of PG-19): train/, validation/ (or valid/, val/) and
//     test/ are the splits, and nothing else is read;
//   a folder with split files: [wiki.]{train,valid,validation,val,test}.EXT, or
//     NAME{.,-,_}SPLIT{.,-,_}N-of-N.EXT, EXT one of tokens, raw, txt, text, jsonl, ndjson, json,
//     each also with .gz. Of several extensions that hold the same splits one counts: WikiText's
//     form first;
//   any other folder: every regular file below it. Names that begin with a dot are skipped; links
//     are followed, but no folder is entered twice.
// A file is WikiText by its name, wiki.SPLIT.{tokens,raw}, or if it begins as all of that corpus
// does, with a blank line and a heading: " \n = ".
// Where the layout names no validation split, it is the tail of every training document. There is
// a test split only by name. Throws IoError, naming what was looked for and what is there.
TextSplit find_text(const std::string& source, Split split, WikiTextForm form = WikiTextForm::raw);
// All splits of the source. Throws IoError if there is none.
std::vector<TextSplit> find_splits(const std::string& source, WikiTextForm form);

// The split that a word names: "train", "valid", ...; nothing for other words.
std::optional<Split> split_named(std::string_view word);
// Takes the last component off a name; components are separated by '.', '-' and '_'.
std::string_view take_last_component(std::string_view& name);

}  // namespace fovea::data
