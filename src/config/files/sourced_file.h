// SPDX-License-Identifier: Apache-2.0
// The common part of files in which every number names its source: machines (machine_file.h) and
// stacks (stack_file.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/apply.h"
#include "config/schema.h"

namespace trireme::config {

struct SourcedKind {
  std::string_view one, many;  // "machine", "Machines"
  std::string_view how;        // advice if none fits, at the end of a message
};
// Returns the file of a path or of a name in one of the folders. Throws ConfigError with the
// nearest name and all names.
std::filesystem::path find_sourced(const SourcedKind&, const std::string& path_or_name,
                                   const std::vector<std::filesystem::path>& folders);

// Returns whether a key is a number that has a source; names and the format do not.
bool has_source(const Key&);
// Appends a key of section [sources] for every key that has a source. The keys point into the map.
void add_sources(std::vector<Key>& keys, std::map<std::string, std::string>& sources);
// Reports keys of [sources] that are not in quotes; `example` is one that is.
void check_quoted(const std::vector<Entry>&, std::string_view example, Report&);
// Reports numbers that were given without a source, in a file that has none for all of them.
void check_sources(const std::map<std::string, std::string>& sources, const std::vector<Key>& keys,
                   Report&);

// Returns a table of all keys except those of [sources], for a page of documentation.
std::string keys_page(const std::vector<Key>&);

}  // namespace trireme::config
