// SPDX-License-Identifier: Apache-2.0
// Tokenizers that people know by a name, and where their files are found. Nothing is downloaded.
#pragma once

#include <string>
#include <string_view>

namespace trireme::text {

// Returns how to get the file of a tokenizer with a well-known name ("gpt2", "Llama-3",
// "cl100k_base", in any case and with or without dashes); empty for any other name. The text begins
// with "; ".
std::string known_tokenizer_hint(std::string_view name);

}  // namespace trireme::text
