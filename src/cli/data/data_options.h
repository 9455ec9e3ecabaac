// SPDX-License-Identifier: Apache-2.0
// Options that several data verbs have, and what they mean.
#pragma once

#include <memory>
#include <vector>

#include "cli/shell/args.h"
#include "data/files/token_data.h"
#include "data/sources/blocks.h"

namespace trireme::cli {

Option output_option();     // --output, required
Option output_format();     // --format of a data set that is written
Option overwrite_option();  // --overwrite
Option workers_option();    // --workers
// --kind, --key, --prompt-key, --completion-key, --split-lines, --raw-bytes,
// --max-document-bytes: how documents are read.
std::vector<Option> document_options();
// "data", --format, --type, --eod: a data set that is read.
std::vector<Option> data_set_options();

// Throws ConfigError if a file of the data set --output exists and --overwrite is not given.
void check_output(const Args& args);
// Returns the values of document_options(). Throws ConfigError.
data::DocumentOptions documents_of(const Args& args);
data::OpenOptions open_options_of(const Args& args);
// Opens the data set of data_set_options().
std::unique_ptr<data::TokenData> open_data_set(const Args& args);

}  // namespace trireme::cli
