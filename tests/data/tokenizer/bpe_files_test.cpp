// Small vocabularies in every layout: what is read, and what is refused for which reason.

#include "data/tokenizer/bpe_files.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/text.h"
#include "data/temp_folder.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

const std::string kVocab = R"({"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5})";
const std::string kMerges = "#version: 0.2\na b\nĠ ab\n";

std::unique_ptr<Tokenizer> from_pair(const std::string& vocab, const std::string& merges,
                                     const TokenizerOptions& options = {}) {
  const TempFolder folder;
  folder.put("merges.txt", merges);
  return open_tokenizer(folder.put("vocab.json", vocab), options);
}

std::string pair_refusal(const std::string& vocab, const std::string& merges) {
  return message_of([&] { from_pair(vocab, merges); });
}

// A tokenizer.json with these parts; "" leaves the usual.
struct Hub {
  std::string added = "[]", normalizer = "null",
              splitter = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})",
              model = R"("type": "BPE")", vocab = kVocab, merges = R"(["a b", "Ġ ab"])";
};

std::unique_ptr<Tokenizer> from_hub(const Hub& hub, const TokenizerOptions& options = {}) {
  const TempFolder folder;
  return open_tokenizer(
      folder.put("tokenizer.json",
                 cat(R"({"version": "1.0", "added_tokens": )", hub.added, R"(, "normalizer": )",
                     hub.normalizer, R"(, "pre_tokenizer": )", hub.splitter, R"(, "model": {)",
                     hub.model, R"(, "vocab": )", hub.vocab, R"(, "merges": )", hub.merges, "}}")),
      options);
}

std::string hub_refusal(const Hub& hub) {
  return message_of([&] { from_hub(hub); });
}

std::string tiktoken_refusal(const std::string& text) {
  const TempFolder folder;
  const std::string path = folder.put("x.tiktoken", text);
  return message_of([&] { open_tokenizer(path); });
}

}  // namespace

TEST_CASE("a vocabulary and its merges encode and decode") {
  const auto tokenizer = from_pair(kVocab, kMerges);
  CHECK(tokenizer->encode("ab ab abc") == Ids{4, 5, 5, 2});
  CHECK(tokenizer->decode(Ids{4, 5, 5, 2}) == "ab ab abc");
  CHECK_FALSE(tokenizer->end_of_text().has_value());
}

TEST_CASE("lines may end with CR LF, and the version line may be missing") {
  CHECK(from_pair(kVocab, "#version: 0.2\r\na b\r\nĠ ab\r\n")->encode(" ab") == Ids{5});
  CHECK(from_pair(kVocab, "a b\nĠ ab")->encode(" ab") == Ids{5});
}

TEST_CASE("merges alone rebuild the vocabulary: bytes, merges, end of text") {
  const TempFolder folder;
  const auto tokenizer = open_tokenizer(folder.put("merges.txt", kMerges));
  CHECK(tokenizer->vocab_size() == 259);
  CHECK(tokenizer->encode("! ab") == Ids{0, 257});
  CHECK(tokenizer->piece(257) == " ab");
  CHECK(tokenizer->end_of_text() == 258);
  const std::string broken = folder.put("other/merges.txt", "#version: 0.2\na b\nab cd\n");
  CHECK(contains(message_of([&] { open_tokenizer(broken); }),
                 "line 3: \"cd\" is not in the vocabulary"));
}

TEST_CASE("a byte without a token is refused, or unknown if there is such a token") {
  CHECK(contains(message_of([&] { from_pair(kVocab, kMerges)->encode("abd"); }),
                 "no token for the byte \"d\" (100) and no unknown token"));
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2, "<unk>": 3})";
  CHECK(from_pair(vocab, "a b\n")->encode("abd") == Ids{2, 3});
}

TEST_CASE("a token that no merge makes is not made by looking it up") {
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2, "aba": 3})";
  CHECK(from_pair(vocab, "a b\n")->encode("aba") == Ids{2, 0});
}

TEST_CASE("special tokens are ordinary text unless they are allowed") {
  const std::string vocab =
      R"({"a": 0, "<": 1, ">": 2, "Ġ": 3, "<a>": 4, "<é>": 5, "Ã": 6, "©": 7})";
  CHECK(from_pair(vocab, "")->encode("a<a>") == Ids{0, 1, 0, 2});
  const auto allowed = from_pair(vocab, "", {.allow_special = true});
  CHECK(allowed->encode("a<a>") == Ids{0, 4});
  CHECK(allowed->encode("<<é>é") == Ids{1, 5, 6, 7});
  CHECK(allowed->decode(Ids{5}) == "<é>");
}

TEST_CASE("vocabularies that lie are refused for the reason") {
  CHECK(contains(pair_refusal(R"({"a": 0, "b": 0})", ""), "\"a\" and \"b\" share the id 0"));
  CHECK(contains(pair_refusal(R"({"a": 0, "b": 2})", ""),
                 "the id of \"b\" is 2, but the ids of 2 tokens are 0 to 1 without a hole"));
  CHECK(contains(pair_refusal(R"({"a": 0.5})", ""), "is \"0.5\", not a whole number"));
  CHECK(contains(pair_refusal(R"({"a": "0"})", ""), "not a whole number"));
  CHECK(contains(pair_refusal(R"({"a": -1})", ""), "ids begin at 0"));
  CHECK(contains(pair_refusal(R"({"a": 99999999999999999999})", ""), "not a whole number"));
  CHECK(contains(pair_refusal(R"({"a": 0, "a": 1})", ""), "\"a\" is there twice"));
  CHECK(contains(pair_refusal(R"({"a": 0)", ""), "is not JSON"));
  CHECK(contains(pair_refusal("{}", ""), "is not an object of tokens and their ids"));
  CHECK(contains(pair_refusal("{\"\xff\": 0}", ""), "is not JSON"));
  CHECK(contains(pair_refusal("{\"a\": " + std::string(1'000'000, '['), ""), "nests deeper"));
}

TEST_CASE("merges that lie are refused with their line") {
  CHECK(contains(pair_refusal(kVocab, "#version: 0.2\na b c\n"),
                 "merges.txt: line 2: \"a b c\" is not two tokens"));
  for (const std::string line : {"ab\n", " b\n", "a \n", "a  b\n", "\n\na b\n"})
    CHECK(contains(pair_refusal(kVocab, line), "line 1: "));
  CHECK(contains(pair_refusal(kVocab, "a b\na b\n"), "line 2: \"a\" \"b\" is there twice"));
  CHECK(contains(pair_refusal(kVocab, "a c\n"), "line 1: \"ac\" is not in the vocabulary"));
}

TEST_CASE("merges of another vocabulary with GPT-2's bytes are noticed (test data)") {
  const std::string vocab = test::test_data("gpt2-bpe/encoder.json");
  if (vocab.empty()) FOVEA_SKIP("no gpt2-bpe");
  std::string merges = read_tokenizer_file(test::test_data("gpt2-bpe/vocab.bpe"));
  const std::size_t first = merges.find('\n') + 1;
  const std::size_t second = merges.find('\n', first) + 1;
  const std::size_t third = merges.find('\n', second) + 1;
  merges = merges.substr(0, first) + merges.substr(second, third - second) +
           merges.substr(first, second - first) + merges.substr(third);
  const TempFolder folder;
  const std::string path = folder.put("vocab.bpe", merges);
  CHECK(contains(message_of([&] { read_gpt2_files(vocab, path); }),
                 "line 2: makes \" a\", whose id in " + vocab + " is 257, but should be 256"));
}

TEST_CASE("a tokenizer.json is read with merges in both forms") {
  Hub hub;
  CHECK(from_hub(hub)->encode(" abc") == Ids{5, 2});
  hub.merges = R"([["a", "b"], ["Ġ", "ab"]])";
  CHECK(from_hub(hub)->encode(" abc") == Ids{5, 2});
  hub.merges = "[]";
  CHECK(from_hub(hub)->encode(" ab") == Ids{3, 0, 1});
  hub.model = R"("type": "BPE", "ignore_merges": true)";
  CHECK(from_hub(hub)->encode(" ab") == Ids{5});
}

TEST_CASE("added tokens are found first, special ones only if allowed") {
  Hub hub;
  hub.added = R"([{"id": 6, "content": "bb", "special": false},
                  {"id": 7, "content": "<|endoftext|>", "special": true},
                  {"id": 8, "content": "cc", "special": true}])";
  CHECK(from_hub(hub)->encode("abbbcc") == Ids{0, 6, 1, 2, 2});
  const auto allowed = from_hub(hub, {.allow_special = true});
  CHECK(allowed->encode("ab<|endoftext|>ccc") == Ids{4, 7, 8, 2});
  CHECK(allowed->end_of_text() == 7);
  CHECK(allowed->vocab_size() == 9);
}

TEST_CASE("what a tokenizer.json asks beyond that is refused by name") {
  const auto with = [](auto change) {
    Hub hub;
    change(hub);
    return hub_refusal(hub);
  };
  CHECK(with([](Hub&) {}).empty());
  CHECK(contains(with([](Hub& h) { h.model = R"("type": "Unigram")"; }),
                 "model.type \"Unigram\" is not supported; only BPE is"));
  CHECK(contains(with([](Hub& h) { h.normalizer = R"({"type": "NFC"})"; }), "normalizer NFC"));
  CHECK(contains(with([](Hub& h) { h.splitter = R"({"type": "Metaspace"})"; }),
                 "pre_tokenizer Metaspace is not supported"));
  CHECK(contains(with([](Hub& h) { h.splitter = "null"; }), "pre_tokenizer null"));
  CHECK(contains(with([](Hub& h) { h.splitter = R"({"type": "Sequence"})"; }), "Sequence"));
  CHECK(contains(
      with([](Hub& h) { h.splitter = R"({"type": "ByteLevel", "add_prefix_space": true})"; }),
      "add_prefix_space true"));
  CHECK(contains(with([](Hub& h) {
                   h.splitter =
                       R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
                 }),
                 "use_regex false"));
  CHECK(contains(with([](Hub& h) { h.model += R"(, "byte_fallback": true)"; }), "byte_fallback"));
  CHECK(contains(with([](Hub& h) { h.model += R"(, "dropout": 0.1)"; }), "dropout"));
  CHECK(contains(with([](Hub& h) { h.model += R"(, "end_of_word_suffix": "</w>")"; }), "</w>"));
  CHECK(contains(with([](Hub& h) { h.merges = R"(["a b c"])"; }), "merge 1 is "));
  CHECK(contains(with([](Hub& h) { h.merges = R"([["a"]])"; }), "merge 1 is "));
  CHECK(contains(with([](Hub& h) { h.merges = "null"; }), "model.merges is not a list"));
  CHECK(contains(with([](Hub& h) { h.vocab = "[]"; }), "model.vocab is not an object"));
  CHECK(contains(with([](Hub& h) { h.added = R"([{"id": 9, "content": "x"}])"; }),
                 "the id of \"x\" is 9"));
  CHECK(contains(with([](Hub& h) { h.added = R"([{"id": 6, "content": "x", "lstrip": true}])"; }),
                 "lstrip is not supported"));
  CHECK(contains(with([](Hub& h) { h.model += R"(, "unk_token": "?")"; }), "unk_token"));
}

TEST_CASE("ranks merge by the rank of what they make") {
  const TempFolder folder;
  // a, b, c, bc, ab, abc: "bc" ranks before "ab".
  const auto tokenizer =
      open_tokenizer(folder.put("x.tiktoken", "YQ== 0\nYg== 1\nYw== 2\nYmM= 3\nYWI= 4\nYWJj 5\n"));
  CHECK(tokenizer->vocab_size() == 7);
  CHECK(tokenizer->end_of_text() == 6);
  CHECK(tokenizer->encode("abbcab") == Ids{4, 3, 4});
  CHECK(tokenizer->encode("abcb") == Ids{5, 1});
  CHECK(tokenizer->encode("abc") == Ids{5});
}

TEST_CASE("one rank may be left out: it is the end of text") {
  const TempFolder folder;
  const auto tokenizer = open_tokenizer(folder.put("x.tiktoken", "YQ== 0\nYg== 2\nYWI= 3\n"));
  CHECK(tokenizer->end_of_text() == 1);
  CHECK(tokenizer->encode("ab") == Ids{3});
  CHECK(contains(tiktoken_refusal("YQ== 0\nYg== 2\nYWI= 4\n"), "no token has rank 3"));
  CHECK(contains(tiktoken_refusal("YQ== 0\nYg== 3\n"), "no token has rank 1"));
}

TEST_CASE("rank files that lie are refused with their line") {
  CHECK(contains(tiktoken_refusal("YQ== 0\n!!!! 1\n"),
                 "line 2: \"!!!! 1\" does not begin with base64"));
  CHECK(contains(tiktoken_refusal("YQ== 0\nYR== 1\n"), "line 2"));  // unused bits set
  CHECK(contains(tiktoken_refusal("YQ== 0\nYg== 0\n"), "line 2: rank 0 is also in line 1"));
  CHECK(contains(tiktoken_refusal("YQ== 0\nYQ== 1\n"), "line 2: \"a\" has the rank 0 already"));
  CHECK(contains(tiktoken_refusal("YQ== 0\nYg== x\n"), "does not end with a rank"));
  CHECK(contains(tiktoken_refusal("YQ== -1\n"), "does not end with a rank"));
  CHECK(contains(tiktoken_refusal("YQ==\n"), "is not \"base64 rank\""));
  CHECK(contains(tiktoken_refusal(" 0\n"), "does not begin with base64"));
  CHECK(contains(tiktoken_refusal(""), "has no ranks"));
}

TEST_CASE("the hostile BPE files end as EXPECTED.tsv says (test data)") {
  const std::string folder = test::test_data("hostile/containers/bpe");
  if (folder.empty()) FOVEA_SKIP("no hostile/containers/bpe");
  const auto refusal = [&](const std::string& name) {
    const std::string path = cat(folder, "/", name);
    const std::string message = message_of([&] { open_tokenizer(path); });
    CHECK(message.starts_with(path + ": "));
    CHECK_THROWS_AS(open_tokenizer(path), IoError);
    return message;
  };
  CHECK(open_tokenizer(cat(folder, "/merges_crlf.txt"))->encode("ab") == Ids{256});
  CHECK(contains(refusal("merges_three_fields.txt"), "line 2"));
  CHECK(contains(refusal("tiktoken_bad_base64.tiktoken"), "line 2"));
  CHECK(contains(refusal("vocab_dup_ids.json"), "share the id 0"));
  CHECK(contains(refusal("vocab_float.json"), "not a whole number"));
  CHECK(contains(refusal("vocab_hole.json"), "without a hole"));
  CHECK(contains(refusal("vocab_negative.json"), "ids begin at 0"));
  CHECK(contains(refusal("vocab_truncated.json"), "is not JSON"));
}

TEST_CASE("the tokenizer of tiny_gpt2 has its ids (test data)") {
  const std::string folder = test::test_data("models/tiny_gpt2");
  if (folder.empty()) FOVEA_SKIP("no models/tiny_gpt2");
  const auto tokenizer = open_tokenizer(folder);
  CHECK(tokenizer->vocab_size() == 21);
  CHECK(tokenizer->end_of_text() == 20);
  CHECK(tokenizer->encode(" lower newer") == Ids{14, 15, 10, 9, 3, 2, 15});
  CHECK(tokenizer->encode("lx") == Ids{0, 19});
}
