// SPDX-License-Identifier: Apache-2.0
// Secrets of a configuration are not shown: values of keys that are called like passwords and
// tokens, values of environment variables, passwords in addresses and arguments of commands.
#pragma once

#include <string>
#include <string_view>

#include "base/text/json_fwd.h"

namespace trireme::board {

constexpr std::string_view secret_mask = "(masked)";

// Returns whether a key's name says that its value is a secret: "api_key", "HF_TOKEN", but neither
// "tokens" nor "tokenizer".
bool names_secret(std::string_view key);

// Returns the value with secrets replaced by secret_mask.
base::Json masked(const base::Json& value);
std::string masked_text(std::string_view text);

}  // namespace trireme::board
