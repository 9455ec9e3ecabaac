// SPDX-License-Identifier: Apache-2.0
// The configuration of a call from the settings of another program: --from-torchtitan and
// --from-megatron of `convert-config`, `train`, `launch` and `verify`.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "plan/convert/conversion.h"

namespace trireme::cli {

// --from-torchtitan and --from-megatron.
std::vector<Option> import_options();

// Returns the option that the call has, or "". Throws ConfigError if it has both.
std::string import_option(const Args&);

// Returns the text of --from-megatron: that of a file, if its value names one, or the value.
std::string megatron_text(const std::string& value);

// Converts the settings. REQUIRES: import_option() is not empty.
plan::Conversion imported_config(const Args&, const plan::ConvertOptions&);

// Returns a line for everything that was changed or dropped.
std::vector<std::string> import_notes(const plan::Conversion&);

}  // namespace trireme::cli
