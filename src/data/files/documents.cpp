// SPDX-License-Identifier: Apache-2.0
#include "data/files/documents.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "base/check.h"

namespace trireme::data {
namespace {

class OneDocument final : public DocumentIndex {
 public:
  explicit OneDocument(int64_t tokens) : tokens_(tokens) {}

  int64_t count() const override { return tokens_ > 0 ? 1 : 0; }
  int64_t start(int64_t document) const override {
    TRIREME_CHECK(document >= 0 && document <= count(), "document {} of {}", document, count());
    return document == 0 ? 0 : tokens_;
  }
  void starts_in(int64_t begin, int64_t end, std::vector<int64_t>& out) const override {
    if (begin <= 0 && end > 0 && tokens_ > 0) out.push_back(0);
  }

 private:
  int64_t tokens_;
};

class IndexedDocuments final : public DocumentIndex {
 public:
  explicit IndexedDocuments(const MegatronIndex& index) : index_(index) {}

  int64_t count() const override { return index_.documents; }
  int64_t start(int64_t document) const override { return index_.document_start(document); }
  void starts_in(int64_t begin, int64_t end, std::vector<int64_t>& out) const override {
    int64_t low = 0, high = index_.documents;  // the first document that starts at or after begin
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (start(middle) < begin) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    for (; low < index_.documents; ++low) {
      const int64_t first = start(low);
      if (first >= end) return;
      if (start(low + 1) > first) out.push_back(first);
    }
  }

 private:
  MegatronIndex index_;
};

class DocumentsByLastToken final : public DocumentIndex {
 public:
  DocumentsByLastToken(int32_t last_token, const TokenArray& tokens)
      : last_token_(last_token), tokens_(tokens) {}

  int64_t count() const override { return static_cast<int64_t>(all().size()) - 1; }
  int64_t start(int64_t document) const override {
    TRIREME_CHECK(document >= 0 && document <= count(), "document {} of {}", document, count());
    return all()[static_cast<size_t>(document)];
  }
  void starts_in(int64_t begin, int64_t end, std::vector<int64_t>& out) const override {
    begin = std::max<int64_t>(begin, 0);
    end = std::min(end, tokens_.size());
    if (begin == 0 && end > 0) {
      out.push_back(0);
      begin = 1;
    }
    std::array<int32_t, 4096> chunk;
    while (begin < end) {
      const int64_t count = std::min<int64_t>(end - begin, chunk.size());
      const auto tokens = std::span(chunk).first(static_cast<size_t>(count));
      tokens_.read(begin - 1, tokens);
      for (int64_t i = 0; i < count; ++i) {
        if (tokens[static_cast<size_t>(i)] == last_token_) out.push_back(begin + i);
      }
      begin += count;
    }
  }

 private:
  // All starts, and the end of the stream.
  const std::vector<int64_t>& all() const {
    std::call_once(once_, [this] {
      std::vector<int64_t> starts;
      starts_in(0, tokens_.size(), starts);
      starts.push_back(tokens_.size());
      all_ = std::move(starts);
    });
    return all_;
  }

  int32_t last_token_;
  TokenArray tokens_;
  mutable std::once_flag once_;
  mutable std::vector<int64_t> all_;
};

}  // namespace

int64_t DocumentIndex::at(int64_t token) const {
  const int64_t documents = count();
  TRIREME_CHECK(token >= 0 && token < start(documents), "token {} of {}", token, start(documents));
  int64_t low = 0, high = documents;  // the first document that starts after `token`
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (start(middle) <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

std::unique_ptr<DocumentIndex> one_document(int64_t tokens) {
  return std::make_unique<OneDocument>(tokens);
}

std::unique_ptr<DocumentIndex> indexed_documents(const MegatronIndex& index) {
  return std::make_unique<IndexedDocuments>(index);
}

std::unique_ptr<DocumentIndex> documents_ending_with(int32_t last_token, const TokenArray& tokens) {
  return std::make_unique<DocumentsByLastToken>(last_token, tokens);
}

}  // namespace trireme::data
