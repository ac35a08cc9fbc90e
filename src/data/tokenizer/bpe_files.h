#pragma once
// Readers of the layouts that byte-level BPE vocabularies come in. All throw IoError with the path
// and, for text files, the line.

#include <string>

#include "data/tokenizer/bpe.h"

namespace fovea::data {

// A whole tokenizer file. Throws IoError if it is larger than 256 MiB: none is.
std::string read_tokenizer_file(const std::string& path);

// vocab.json {"token": id, ...} with the merges "A B" of merges.txt, a line each, most important
// first. Ids are 0 to n - 1, each once. Tokens that look like "<...>" and that no merge makes are
// special; "<unk>" stands for bytes without a token. If the first 256 ids are the bytes in GPT-2's
// order, the others must follow in the order in which the merges make them.
BpeVocabulary read_gpt2_files(const std::string& vocab_path, const std::string& merges_path);

// merges.txt alone: ids are the bytes in GPT-2's order, the merges, "<|endoftext|>".
BpeVocabulary read_merges_file(const std::string& path);

// Lines "base64(bytes) rank"; id = rank. The one rank left out, else the next one, is
// "<|endoftext|>". Counts that belong to encodings with another splitter are refused.
BpeVocabulary read_tiktoken_file(const std::string& path);

// The Hub's tokenizer.json, if it is BPE over byte symbols with GPT-2's splitter; anything else
// that would change ids is refused by its name. What a post_processor adds (a BOS) is not added.
BpeVocabulary read_hub_file(const std::string& path);

}  // namespace fovea::data
