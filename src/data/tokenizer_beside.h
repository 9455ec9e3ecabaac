// SPDX-License-Identifier: Apache-2.0
// What lies beside a data set that `data build` wrote: the folder PREFIX.tokenizer with the files
// of its tokenizer, and PREFIX.manifest.json.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"

namespace trireme::data {

// Returns the path of a data set without .bin or .idx at its end.
std::filesystem::path data_prefix(const std::filesystem::path& data);

// Return what lies beside the data set `data`, which is named by its prefix, its .bin or its .idx;
// nothing if there is none. The folder can be opened by text::open_tokenizer(). A manifest that is
// not a JSON object throws IoError.
std::optional<std::filesystem::path> tokenizer_beside(const std::filesystem::path& data);
std::optional<base::Json> manifest_beside(const std::filesystem::path& data);

// Returns PREFIX.tokenizer, whether it exists or not.
std::filesystem::path tokenizer_folder_of(const std::filesystem::path& prefix);

// Returns the name of file `index` of a tokenizer's files() beside data or weights: the first one
// becomes tokenizer.json or tokenizer.model.
std::string tokenizer_file_name(std::span<const std::filesystem::path> files, size_t index);

// Removes what lies beside an earlier data set of this name: manifest, rejections, mask and
// tokenizer. For writers that replace the tokens only.
void remove_beside(const std::filesystem::path& data);

// Copies the files of a tokenizer, which are text::Tokenizer::files(), into the new folder `to` and
// makes them durable. The first file becomes tokenizer.json or tokenizer.model, so that the folder
// can be opened. Throws IoError.
void copy_tokenizer(std::span<const std::filesystem::path> files, const std::filesystem::path& to);

// Throws ConfigError if `folder` exists and has anything but files of a tokenizer: it would be
// lost when a new data set replaces it.
void check_replaceable_tokenizer(const std::filesystem::path& folder);

}  // namespace trireme::data
