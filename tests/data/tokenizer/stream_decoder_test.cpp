#include "data/tokenizer/stream_decoder.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/temp_folder.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;

namespace {

// All that `text` gives when it comes in pieces of `bytes`, with "|" behind each answer.
std::string shown(StopText stop, std::string_view text, std::size_t bytes, bool bars = false) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += bytes)
    out += stop.add(text.substr(at, bytes)) + (bars ? "|" : "");
  return out + stop.finish();
}

void check_pieces(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (const std::size_t size : {1u, 2u, 3u, 1000u}) {
    StreamDecoder decoder(tokenizer);
    std::string got;
    for (std::size_t at = 0; at < ids.size(); at += size)
      got += decoder.add(std::span(ids).subspan(at, std::min(size, ids.size() - at)));
    CHECK(got == tokenizer.decode(ids));
  }
}

}  // namespace

TEST_CASE("ids decoded in pieces give the text of the whole, with every tokenizer") {
  const test::TempFolder folder;
  const std::string text = "two  words\nthen \xC3\xA9t\xC3\xA9\n\n end";
  const std::string file = folder.put("a.txt", text);
  check_pieces(*open_tokenizer("byte"), text);
  check_pieces(*open_tokenizer("char:" + file), text);
  check_pieces(*open_tokenizer("word:" + file), text);
  for (const char* name : {"models/stories260K/tok512.bin", "gpt2-bpe"}) {
    const std::string path = test::test_data(name);
    if (path.empty()) FOVEA_SKIP("no models or gpt2-bpe data");
    check_pieces(*open_tokenizer(path), text);
  }
}

TEST_CASE("a text decoded behind restart() begins anew") {
  const std::string path = test::test_data("models/stories260K/tok512.bin");
  if (path.empty()) FOVEA_SKIP("no models data");
  const auto tokenizer = open_tokenizer(path);
  const std::vector<std::int32_t> ids = tokenizer->encode("Lily");
  StreamDecoder decoder(*tokenizer);
  CHECK(decoder.add(ids) == "Lily");
  CHECK(decoder.add(ids) == " Lily");
  decoder.restart();
  CHECK(decoder.add(ids) == "Lily");
  CHECK_THROWS_AS(decoder.add(std::vector<std::int32_t>{512}), IoError);
}

TEST_CASE("a stop text is found across pieces and not shown") {
  for (std::size_t bytes = 1; bytes < 9; ++bytes) {
    CHECK(shown(StopText({"END"}), "abEENDcd", bytes) == "abE");
    CHECK(shown(StopText({"aab"}), "aaaabaab", bytes) == "aa");
    CHECK(shown(StopText({"xyz", "\n\n"}), "a\nb\n\nxyz", bytes) == "a\nb");
    CHECK(shown(StopText({"longer", "ng"}), "so long", bytes) == "so lo");
    CHECK(shown(StopText({"b", "ab"}), "aab", bytes) == "a");  // of two that end there, the longer
    CHECK(shown(StopText({"END"}), "ab EN", bytes) == "ab EN");
    CHECK(shown(StopText({}), "ab", bytes) == "ab");
  }
  StopText stop({"b"});
  CHECK(stop.add("abc") == "a");
  CHECK(stop.stopped());
  CHECK(stop.add("def").empty());
  CHECK(stop.finish().empty());
}

TEST_CASE("characters are shown whole, and no byte is lost") {
  CHECK(shown(StopText({}), "\xC3\xA9!\xE2\x82\xAC\xF0\x9F\x98\x80", 1, true) ==
        "|\xC3\xA9|!|||\xE2\x82\xAC||||\xF0\x9F\x98\x80|");
  // Bytes that never become a character, a character that is cut off at the end.
  CHECK(shown(StopText({}), "\xFF\x80\xC3", 1) == "\xFF\x80\xC3");
  CHECK(shown(StopText({}), "a\xE2\x82", 1, true) == "a|||\xE2\x82");
  // The beginning of a character before what may become a stop text.
  CHECK(shown(StopText({"\xA9x"}), "\xC3\xA9y", 1, true) == "||\xC3\xA9y|");
}
