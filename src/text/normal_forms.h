// SPDX-License-Identifier: Apache-2.0
// The normal forms of Unicode, by utf8proc. Code points that Hugging Face `tokenizers` does not
// know in its older tables stay as they are. In a build without utf8proc the function throws for
// text that is not ASCII.
#pragma once

#include <string>
#include <string_view>

namespace trireme::text {

enum class NormalForm : unsigned char { nfc, nfd, nfkc, nfkd };

// Returns `text` itself if it is normalized already, otherwise a view of `storage`. REQUIRES: valid
// UTF-8.
std::string_view normalize(NormalForm, std::string_view text, std::string& storage);

// Throws ConfigError if this build has no utf8proc.
void require_normal_forms();

}  // namespace trireme::text
