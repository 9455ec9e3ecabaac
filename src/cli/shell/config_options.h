// SPDX-License-Identifier: Apache-2.0
// The configuration of a call: a file, a pipe or standard input, options that set some of its keys,
// and --section.key=value; or options alone, without a file.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "config/config.h"

namespace trireme::cli {

// "config", --model, --data, --steps, --device and import_options().
std::vector<Option> config_options();

// Reads the configuration that "config" names, or converts the one of another program. Without both
// it returns an empty text if options name a model, and throws ConfigError otherwise. A pipe can be
// read once.
config::ConfigText config_text_of(const Args& args);

// Returns all --section.key=value, and the keys that options set in the same form. Throws
// ConfigError if both set one key.
std::vector<std::string> overrides_of(const Args& args);

}  // namespace trireme::cli
