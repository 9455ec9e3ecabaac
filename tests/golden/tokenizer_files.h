// SPDX-License-Identifier: Apache-2.0
// The files of tests/golden/tokenizers, which make_tokenizer_goldens.py made with Hugging Face
// `tokenizers`.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/normal_forms.h"
#include "text/regex.h"

namespace trireme::golden {

inline std::filesystem::path tokenizer_file(const std::string& name) {
  return std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/golden/tokenizers" / name;
}

inline nlohmann::json tokenizer_json(const std::string& name) {
  std::ifstream in(tokenizer_file(name));
  return nlohmann::json::parse(in);
}

// Returns whether this build has the libraries that the goldens need.
inline bool has_text_libraries() {
  try {
    text::require_normal_forms();
  } catch (const base::ConfigError&) {
    return false;  // the error names the library
  }
  return text::has_regex();
}

}  // namespace trireme::golden
