// SPDX-License-Identifier: Apache-2.0
// The prompts of a call of `generate`, from its options and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/shell/args.h"

namespace trireme::cli {

struct Prompt {
  std::string text;
  std::optional<std::vector<int32_t>> ids;  // instead of text
  std::string origin;                       // for messages: "--prompt", "prompts.txt:3"
};

// Options --prompt, --prompt-ids and --prompts.
std::vector<Option> prompt_options();

// Returns the prompts in the order of the options and lines; empty if none is given. A file has one
// prompt per line or, if its first line begins with '{', a JSON object per line with "prompt" (a
// text) or "prompt_ids" (token ids). Empty lines are skipped. Throws IoError or ConfigError with
// file and line.
std::vector<Prompt> read_prompts(const Args&);

}  // namespace trireme::cli
