// SPDX-License-Identifier: Apache-2.0
// Where documents start in a stream of tokens: read from an index, found by their last token, or
// unknown (all is one document).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/files/layouts.h"
#include "data/files/token_array.h"

namespace trireme::data {

// Documents follow one another without gaps. Any thread may ask.
class DocumentIndex {
 public:
  virtual ~DocumentIndex() = default;

  virtual int64_t count() const = 0;
  // The first token of a document; that of document count() is the end of the stream.
  virtual int64_t start(int64_t document) const = 0;
  // Appends the starts of non-empty documents in [begin, end) to `out`, rising.
  virtual void starts_in(int64_t begin, int64_t end, std::vector<int64_t>& out) const = 0;

  // The document that holds `token`, by binary search. REQUIRES: there is such a token.
  int64_t at(int64_t token) const;
};

std::unique_ptr<DocumentIndex> one_document(int64_t tokens);
// REQUIRES: the bytes of `index` outlive the result.
std::unique_ptr<DocumentIndex> indexed_documents(const MegatronIndex& index);
// A document ends with each `last_token`, and at the end of the stream. starts_in() looks only at
// its range; count() and start() read all tokens once and keep 8 bytes per document.
std::unique_ptr<DocumentIndex> documents_ending_with(int32_t last_token, const TokenArray& tokens);

}  // namespace trireme::data
