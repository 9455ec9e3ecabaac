// SPDX-License-Identifier: Apache-2.0
// How a call says what is trained: a configuration from a file, a pipe or standard input, options
// that stand for its keys, and --section.key=value; or options alone, without a file.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "config/config.h"

namespace trireme::cli {

// "config", --model, --data, --steps and --device.
std::vector<Option> config_options();

// Reads what "config" names; nothing is given: an empty text, where options name a model, or
// ConfigError. A pipe can be read once.
config::ConfigText config_text_of(const Args& args);

// --section.key=value as given, and what options set. Throws ConfigError where both set one key.
std::vector<std::string> overrides_of(const Args& args);

}  // namespace trireme::cli
