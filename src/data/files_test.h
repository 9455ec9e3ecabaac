// SPDX-License-Identifier: Apache-2.0
// A folder for one test, and bytes written by hand.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "data/files/token_data.h"

namespace trireme::data {

// A folder for the test, removed with its content.
class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("trireme_data_") + info->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~FilesTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    EXPECT_TRUE(file) << name;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns the names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::filesystem::path folder_;
};

// Returns the value's bytes as stored in memory.
template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
std::string raw_array(const std::vector<int64_t>& values) {
  std::string bytes;
  for (const int64_t value : values) bytes += raw(static_cast<T>(value));
  return bytes;
}

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

inline std::vector<int32_t> all_tokens(const TokenData& data) {
  std::vector<int32_t> tokens(static_cast<size_t>(data.tokens()));
  data.read(0, tokens);
  return tokens;
}

inline std::vector<int64_t> all_starts(const TokenData& data) {
  std::vector<int64_t> starts;
  for (int64_t i = 0; i <= data.documents().count(); ++i) {
    starts.push_back(data.documents().start(i));
  }
  return starts;
}

// Returns whether `message` contains every one of `parts`.
inline ::testing::AssertionResult says(const std::string& message,
                                       const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "'" << message << "' lacks '" << part << "'";
    }
  }
  return ::testing::AssertionSuccess();
}

// Returns whether `found` equals `wanted`. The type of the elements follows from `found`.
template <typename T>
::testing::AssertionResult holds(const std::vector<T>& found,
                                 const std::type_identity_t<std::vector<T>>& wanted) {
  if (found == wanted) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << ::testing::PrintToString(found) << " is not " << ::testing::PrintToString(wanted);
}

// Returns the message of the exception of type E that `call` throws.
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace trireme::data
