// SPDX-License-Identifier: Apache-2.0
// Takes the place of sentencepiece/ in a build without SentencePiece.
#include "base/error.h"
#include "text/sentencepiece.h"

namespace trireme::text {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model) {
  throw base::ConfigError(model.string() +
                          ": this build is without SentencePiece: install libsentencepiece-dev and "
                          "configure again, or use a tokenizer.json");
}

}  // namespace trireme::text
