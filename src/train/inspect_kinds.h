#pragma once
// What inspect() says about each kind of file, once it is known.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/inspect.h"

namespace fovea::train {

// inspect_run.cpp
Inspection inspect_checkpoint(const std::string& path);
Inspection inspect_run(const std::string& path);
Inspection inspect_config(const std::string& path);
// inspect_model.cpp
Inspection inspect_safetensors(const std::string& path);
Inspection inspect_model(const std::string& path);  // of another program
// inspect_data.cpp
Inspection inspect_tokenizer(const std::string& path);
Inspection inspect_data_files(const std::string& path);  // shards, token files, texts
Inspection inspect_bin(const std::string& path);
Inspection inspect_listops(const std::string& path);  // a table; every label is checked
// Whether a text file is one that open_tokenizer() knows by its content.
bool is_tokenizer_text(const std::string& path);
// inspect_json.cpp. *.json is one value, or one an object a line; a vocabulary or the description
// of a model or tokenizer is inspected as that. `lines`: the file's name says JSON lines.
Inspection inspect_json(const std::string& path, bool lines);

// "1 layer", "2 layers".
std::string plural(std::int64_t n, const char* one);
// A name out of a file, safe for a terminal.
std::string name_text(const std::string& name);

}  // namespace fovea::train
