// SPDX-License-Identifier: Apache-2.0
// Text files that a verb writes for its user.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::cli {

struct NewFile {
  std::filesystem::path path;
  bool may_replace = false;
  const char* option = "--output";  // the option that named the path, for messages
};

// Throws IoError if the file exists and may not be replaced.
void check_new_file(const NewFile&);
// Writes the file, complete or not at all, and creates its folder. Throws IoError.
void write_new_file(const NewFile&, const std::string& text);

}  // namespace trireme::cli
