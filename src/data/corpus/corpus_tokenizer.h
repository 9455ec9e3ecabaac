// SPDX-License-Identifier: Apache-2.0
// A tokenizer of src/text as the encoder of a corpus, and the choice of its special tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/corpus/corpus.h"
#include "text/tokenizer.h"

namespace trireme::data {

// Which tokens stand around documents. A text names a token by its id, or, with a tokenizer, by
// its name ("<|endoftext|>"); "-1" and "none": no token. Empty: the default.
struct DocumentTokens {
  std::string begin;  // default: none
  std::string end;    // default: the end-of-text token of the tokenizer; with bytes, 0
};

// Encodes without the tokens that the tokenizer itself adds around texts. Throws ConfigError for a
// name that is not a token, an id outside of the vocabulary, and, with the candidates, if the
// default end is needed and the tokenizer does not name one.
CorpusTokenizer corpus_tokenizer(std::shared_ptr<const text::Tokenizer> tokenizer,
                                 const DocumentTokens& tokens);

// One token per byte. An id may lie above the 256 bytes.
CorpusTokenizer byte_tokenizer(const DocumentTokens& tokens);

}  // namespace trireme::data
