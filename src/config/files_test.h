// SPDX-License-Identifier: Apache-2.0
// Files for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/config.h"

namespace trireme::config {

// Returns the root of the source tree.
inline std::filesystem::path source_root() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
}
inline std::filesystem::path shipped_models() { return source_root() / "configs" / "models"; }

// Returns the configuration that a run of options.world ranks has.
template <typename Given>
Config load_solved(const Given& given, const LoadOptions& options,
                   const std::optional<SavedSums>& saved = {}) {
  return solved(load(given, options), options.world, saved);
}

// A folder that the destructor removes with all its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("trireme_config_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

// Returns the message of the error that `call` throws; empty if it throws none.
template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\nfound:  " << text;
}

}  // namespace trireme::config
