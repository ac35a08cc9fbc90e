#pragma once
// JSON without what its parsed value would hide. A template, so that nlohmann-json, in any of its
// forms, stays with the callers.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

// `text` as Json. Throws IoError "PATH: SUBJECT..." (subject "" or "the header ") unless it is JSON
// in which no object has two equal names, and nothing nests deeper than `most_levels`: a file of
// 10^8 brackets would cost memory. The caller has refused NUL bytes: the parser takes one for the
// end of its input and would ignore the rest.
template <class Json>
Json parse_strict_json(const std::string& path, std::string_view text, int most_levels,
                       std::string_view subject = "") {
  using Event = typename Json::parse_event_t;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto watch = [&](int depth, Event event, Json& value) {
    if (depth > most_levels)
      throw IoError(cat(path, ": ", subject, "nests deeper than ", most_levels, " levels"));
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key) {
      const auto& name = value.template get_ref<const std::string&>();
      if (!names.back().insert(name).second)
        throw IoError(cat(path, ": ", quote(name), " is there twice"));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const typename Json::exception& e) {
    throw IoError(cat(path, ": ", subject, "is not JSON: ", quote(e.what(), 200)));
  }
}

}  // namespace fovea::data
