// SPDX-License-Identifier: Apache-2.0
// What diagnose() finds in a run that has just ended, for train's summary.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/diagnosis.h"

namespace trireme::cli {

// Returns nothing if the folder cannot be read: a summary must not fail.
std::optional<analysis::Diagnosis> diagnosis_of(const std::filesystem::path& run_folder);
// One line each with title and advice, the three largest besides those that the outcome states; the
// command that shows the rest; what to do if the outcome is bad; and the sentence that `runs`,
// `watch`, `diagnose` and the board have.
std::string short_text(const analysis::Diagnosis&, std::string_view name,
                       const std::filesystem::path& run_folder);

}  // namespace trireme::cli
