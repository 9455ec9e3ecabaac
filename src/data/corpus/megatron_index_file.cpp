// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/megatron_index_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "data/files/layouts.h"
#include "data/files/output_file.h"

namespace trireme::data {
namespace {

template <typename T>
void append_value(OutputFile& file, T value) {
  file.append(std::as_bytes(std::span(&value, 1)));
}

// Calls visit(tokens, starts a document) for every sequence. An empty document is one sequence.
template <typename Visit>
void for_each_sequence(const DocumentLengths& documents, Visit&& visit) {
  for (size_t at = 0; at < documents.lengths.size(); at += 8) {
    int64_t length = 0;
    std::memcpy(&length, documents.lengths.data() + at, 8);
    bool is_first = true;
    do {
      const int64_t part = std::min(length, documents.max_sequence_tokens);
      visit(part, is_first);
      is_first = false;
      length -= part;
    } while (length > 0);
  }
}

}  // namespace

void write_megatron_index(const std::filesystem::path& path, const DocumentLengths& documents) {
  TRIREME_CHECK(documents.lengths.size() % 8 == 0 && documents.max_sequence_tokens >= 1 &&
                    documents.max_sequence_tokens < int64_t{1} << 31,
                "{} bytes of lengths, max_sequence_tokens = {}", documents.lengths.size(),
                documents.max_sequence_tokens);
  OutputFile file(path);
  const std::array<std::byte, megatron_header_bytes> empty{};
  file.append(empty);
  int64_t sequences = 0, pointer = 0, sequence = 0;
  for_each_sequence(documents, [&](int64_t tokens, bool) {
    append_value(file, static_cast<int32_t>(tokens));
    ++sequences;
  });
  for_each_sequence(documents, [&](int64_t tokens, bool) {
    append_value(file, pointer);
    pointer += tokens * size_of(documents.type);
  });
  for_each_sequence(documents, [&](int64_t, bool is_first) {
    if (is_first) append_value(file, sequence);
    ++sequence;
  });
  append_value(file, sequences);
  std::array<std::byte, megatron_header_bytes> header{};
  const auto entries = static_cast<int64_t>(documents.lengths.size() / 8) + 1;
  std::memcpy(header.data(), megatron_magic.data(), megatron_magic.size());
  std::memcpy(&header[9], &megatron_version, 8);
  header[17] = std::byte{megatron_code(documents.type)};
  std::memcpy(&header[18], &sequences, 8);
  std::memcpy(&header[26], &entries, 8);
  file.write_at(0, header);
  file.sync();
  file.rename();
}

}  // namespace trireme::data
