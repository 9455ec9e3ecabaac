// SPDX-License-Identifier: Apache-2.0
// Normalizer: how a tokenizer.json changes text before it is split. Each kind does what the kind of
// the same name of Hugging Face `tokenizers` does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/normal_forms.h"
#include "text/pipeline/pattern.h"

namespace trireme::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Returns the normalized text: `text` itself if nothing changes, otherwise a view of `storage`.
  // Sets `keeps_start` to false if the first character of the text was removed. Thread-safe. Throws
  // ConfigError if the text grows above max_normalized_bytes().
  // REQUIRES: `text` is valid UTF-8 and not a view of `storage`.
  virtual std::string_view apply(std::string_view text, std::string& storage,
                                 bool& keeps_start) const = 0;
};

// Steps that replace short texts by long ones can multiply a text until memory is exhausted. No
// normal form grows a text more than eighteenfold.
size_t max_normalized_bytes(size_t text_bytes);

std::unique_ptr<Normalizer> form_normalizer(NormalForm);
std::unique_ptr<Normalizer> lowercase_normalizer();
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right);
std::unique_ptr<Normalizer> strip_accents_normalizer();
std::unique_ptr<Normalizer> replace_normalizer(std::unique_ptr<Pattern> pattern,
                                               std::string content);
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix);
std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> parts);

}  // namespace trireme::text
