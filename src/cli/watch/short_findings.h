// SPDX-License-Identifier: Apache-2.0
// What diagnose() finds in a run that has just ended, for train's summary.
#pragma once

#include <filesystem>
#include <vector>

#include "analysis/diagnosis.h"

namespace trireme::cli {

// Returns nothing if the folder cannot be read: a summary must not fail.
std::vector<analysis::Finding> findings_of(const std::filesystem::path& run_folder);
// One line each with title and advice, the three largest; then the command that shows the rest.
std::string short_text(const std::vector<analysis::Finding>& findings,
                       const std::filesystem::path& run_folder);

}  // namespace trireme::cli
