// SPDX-License-Identifier: Apache-2.0
// Where documents start in a stream of tokens: read from an index, found by their last token, or
// unknown (one document).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/files/layouts.h"
#include "data/files/token_array.h"

namespace trireme::data {

// Documents follow each other without gaps. Any thread may call.
class DocumentIndex {
 public:
  virtual ~DocumentIndex() = default;

  virtual int64_t count() const = 0;
  // Returns the first token of a document; start(count()) is the end of the stream.
  virtual int64_t start(int64_t document) const = 0;
  // Appends the starts of non-empty documents in [begin, end) to `out`, ascending.
  virtual void starts_in(int64_t begin, int64_t end, std::vector<int64_t>& out) const = 0;

  // Returns the document that holds `token`, by binary search. REQUIRES: the token exists.
  int64_t at(int64_t token) const;
};

std::unique_ptr<DocumentIndex> one_document(int64_t tokens);
// REQUIRES: the bytes of `index` outlive the result.
std::unique_ptr<DocumentIndex> indexed_documents(const MegatronIndex& index);
// A document ends with each `last_token` and at the end of the stream. starts_in() reads only its
// range; count() and start() read all tokens once and keep 8 bytes per document.
std::unique_ptr<DocumentIndex> documents_ending_with(int32_t last_token, const TokenArray& tokens);

}  // namespace trireme::data
