#pragma once
// What the verb `inspect` says of studies, of which train knows nothing.

#include <optional>
#include <string>

#include "train/inspect.h"

namespace fovea::study {

// Of a study's file ("study"; its configurations are not looked at), folder ("study folder") or
// ledger ("ledger"; what became of its runs is read from their folders too). None: the path is
// nothing of a study. Throws one error of one line: ConfigError for a file, IoError for a ledger.
std::optional<train::Inspection> inspect_study(const std::string& path);

}  // namespace fovea::study
