// SPDX-License-Identifier: Apache-2.0
// Which pieces of documents make which packed sequence: a table, in memory or mapped from a file.
//
// A document of n tokens has n - 1 labels and takes as many slots: each slot is a token and the
// token after it as its label. A document of at most seq_len slots is never cut. A longer one gives
// full sequences and one shorter piece, and loses no label. Documents of one token have no label
// and are left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/mapped_file.h"
#include "data/files/token_data.h"

namespace trireme::data {

struct PackingOptions {
  int64_t seq_len = 0;
  // Documents are packed by best_fit() within windows of so many consecutive ones. Larger windows
  // leave less padding.
  int64_t window_documents = 65536;
  // The documents that are packed, so that others can be held out; -1: up to the last one.
  int64_t first_document = 0, documents = -1;
};

struct PackingStats {
  int64_t documents = 0;
  int64_t documents_without_label = 0;  // left out
  int64_t documents_split = 0;          // longer than a sequence
  int64_t pieces = 0, sequences = 0;
  int64_t used_slots = 0, padding_slots = 0;
  bool operator==(const PackingStats&) const = default;

  double padding_fraction() const;
  // "3 documents in 2 sequences of 8: 12.5 % padding, 1 split, 0 without a label"
  std::string description(int64_t seq_len) const;
};

// Takes 12 bytes for each piece (one a document, if none is split) and 8 for each sequence. Any
// thread may read.
class PackingTable {
 public:
  // Slots [first_token, first_token + slots) of the stream; the last label is one token behind.
  struct Piece {
    int64_t first_token = 0, slots = 0;
    bool operator==(const Piece&) const = default;
  };

  // Reads the document borders, not the tokens. Throws ConfigError, with numbers, if the options
  // are not legal or no document has a label.
  static PackingTable pack(const TokenData&, const PackingOptions&);
  // Opens a file of write() (docs/formats.md). Everything in it is checked. Throws IoError that
  // names the file and what was found if it is malformed or was made for other data.
  static PackingTable open(const std::filesystem::path&, const TokenData&);

  // The file appears complete or not at all. Throws IoError.
  void write(const std::filesystem::path&, const TokenData&) const;

  int64_t seq_len() const { return options_.seq_len; }
  int64_t sequences() const { return static_cast<int64_t>(ends_.size()); }
  const PackingOptions& options() const { return options_; }  // with the number of documents
  const PackingStats& stats() const { return stats_; }
  // Returns the number of pieces of a sequence. REQUIRES: 0 <= sequence < sequences().
  int64_t pieces(int64_t sequence) const;
  // Pieces are in the order of the data set.
  Piece piece(int64_t sequence, int64_t index) const;

 private:
  PackingTable() = default;
  void add_window(const DocumentIndex&, int64_t first, int64_t end);
  void check(const std::string& name, int64_t tokens) const;

  PackingOptions options_;
  PackingStats stats_;
  // One of the two holds the arrays below; neither moves them when the table is moved.
  std::optional<MappedFile> file_;
  std::vector<int64_t> owned_ends_, owned_first_tokens_;
  std::vector<int32_t> owned_slots_;

  std::span<const int64_t> ends_;          // by sequence: pieces up to its end
  std::span<const int64_t> first_tokens_;  // by piece
  std::span<const int32_t> slots_;         // by piece
};

}  // namespace trireme::data
