#pragma once
// What a report is made of: a study's ledger and folders, or any run folders.

#include <optional>
#include <span>
#include <string>

#include "study/report.h"

namespace fovea::study {

// Of a study's folder: the runs of its last sweep, as the ledger and their folders show them.
// Throws IoError where there is no ledger, or it cannot be read. select: in place of the study's
// own.
ReportInput report_of_study(const std::string& study_folder, std::optional<Select> select = {});

// Of run folders that no study made: those that differ in nothing but their seed are a cell, and
// the settings in which the cells differ are the axes. Throws ConfigError, IoError for a folder
// that is none of a run, and for two runs of one cell and seed.
ReportInput report_of_runs(std::span<const std::string> folders, Select select = Select::last);

}  // namespace fovea::study
