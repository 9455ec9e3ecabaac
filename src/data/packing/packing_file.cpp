// SPDX-License-Identifier: Apache-2.0
// The file of a PackingTable: a header of 88 bytes, then the arrays (docs/formats.md).
#include <fmt/core.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "data/files/output_file.h"
#include "data/packing/packing_table.h"

namespace trireme::data {
namespace {

using base::IoError;

// "TRIPACK1" as a little-endian number: magic and version.
constexpr int64_t packing_magic = 0x314B434150495254;

struct PackingHeader {
  int64_t magic = packing_magic;
  int64_t seq_len = 0, window_documents = 0, first_document = 0, documents = 0;
  int64_t documents_without_label = 0, documents_split = 0;
  int64_t data_tokens = 0;
  uint64_t data_fingerprint = 0;
  int64_t pieces = 0, sequences = 0;
};
static_assert(sizeof(PackingHeader) == 88);

PackingHeader checked_header(std::span<const std::byte> bytes, const std::string& name,
                             const TokenData& data) {
  PackingHeader header;
  if (bytes.size() < sizeof(header)) {
    throw IoError(fmt::format("{}: {} bytes; a packing index has at least {}", name, bytes.size(),
                              sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != packing_magic) {
    throw IoError(fmt::format("{}: begins with {:016x}; a packing index of version 1 with {:016x}",
                              name, header.magic, packing_magic));
  }
  constexpr int64_t max_count = int64_t{1} << 56;  // the sizes below do not overflow
  if (header.pieces < 1 || header.sequences < 1 || header.sequences > header.pieces ||
      header.pieces > max_count) {
    throw IoError(
        fmt::format("{}: {} pieces in {} sequences", name, header.pieces, header.sequences));
  }
  const int64_t wanted = int64_t{sizeof(header)} + 8 * header.sequences + (8 + 4) * header.pieces;
  if (static_cast<int64_t>(bytes.size()) != wanted) {
    throw IoError(fmt::format("{}: {} bytes; {} pieces in {} sequences take {}", name, bytes.size(),
                              header.pieces, header.sequences, wanted));
  }
  if (header.seq_len < 1 || header.seq_len > int64_t{1} << 30 || header.documents < 1 ||
      header.documents_without_label < 0 || header.documents_split < 0 ||
      header.window_documents < 1 || header.first_document < 0) {
    throw IoError(fmt::format(
        "{}: seq_len {}, {} documents from {} on in windows of {}, {} split, "
        "{} without a label",
        name, header.seq_len, header.documents, header.first_document, header.window_documents,
        header.documents_split, header.documents_without_label));
  }
  if (header.data_tokens != data.tokens() || header.data_fingerprint != fingerprint(data)) {
    throw IoError(fmt::format(
        "{}: made for data of {} tokens with fingerprint {:016x}, but {} has {} and {:016x}; "
        "remove the index to make a new one",
        name, header.data_tokens, header.data_fingerprint, data.name(), data.tokens(),
        fingerprint(data)));
  }
  return header;
}

}  // namespace

void PackingTable::write(const std::filesystem::path& path, const TokenData& data) const {
  const PackingHeader header{.seq_len = options_.seq_len,
                             .window_documents = options_.window_documents,
                             .first_document = options_.first_document,
                             .documents = options_.documents,
                             .documents_without_label = stats_.documents_without_label,
                             .documents_split = stats_.documents_split,
                             .data_tokens = data.tokens(),
                             .data_fingerprint = fingerprint(data),
                             .pieces = stats_.pieces,
                             .sequences = stats_.sequences};
  OutputFile file(path);
  file.append(std::as_bytes(std::span(&header, 1)));
  file.append(std::as_bytes(ends_));
  file.append(std::as_bytes(first_tokens_));
  file.append(std::as_bytes(slots_));
  file.sync();
  file.rename();
}

PackingTable PackingTable::open(const std::filesystem::path& path, const TokenData& data) {
  PackingTable table;
  table.file_.emplace(path);
  const std::span<const std::byte> bytes = table.file_->bytes();
  const PackingHeader header = checked_header(bytes, path.string(), data);
  table.options_ = {.seq_len = header.seq_len,
                    .window_documents = header.window_documents,
                    .first_document = header.first_document,
                    .documents = header.documents};
  const auto pieces = static_cast<size_t>(header.pieces);
  const auto sequences = static_cast<size_t>(header.sequences);
  // A mapping begins at a page, and every array at a multiple of its elements.
  const std::byte* at = bytes.data() + sizeof(header);
  table.ends_ = {reinterpret_cast<const int64_t*>(at), sequences};
  at += 8 * sequences;
  table.first_tokens_ = {reinterpret_cast<const int64_t*>(at), pieces};
  at += 8 * pieces;
  table.slots_ = {reinterpret_cast<const int32_t*>(at), pieces};
  table.check(path.string(), data.tokens());
  table.stats_ = {.documents = header.documents,
                  .documents_without_label = header.documents_without_label,
                  .documents_split = header.documents_split,
                  .pieces = header.pieces,
                  .sequences = header.sequences};
  for (const int32_t slots : table.slots_) table.stats_.used_slots += slots;
  table.stats_.padding_slots = table.sequences() * table.seq_len() - table.stats_.used_slots;
  return table;
}

void PackingTable::check(const std::string& name, int64_t tokens) const {
  int64_t begin = 0;
  for (size_t i = 0; i < ends_.size(); ++i) {
    const auto end = ends_[i], all = static_cast<int64_t>(slots_.size());
    if (end <= begin || end > all) {
      throw IoError(
          fmt::format("{}: sequence {} has the pieces {} to {} of {}", name, i, begin, end, all));
    }
    int64_t used = 0;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = first_tokens_[static_cast<size_t>(k)];
      const int64_t slots = slots_[static_cast<size_t>(k)];
      used += slots;
      if (slots < 1 || used > seq_len() || first < 0 || first >= tokens - slots) {
        throw IoError(fmt::format(
            "{}: piece {} of sequence {} has {} slots from token {} on; the sequence has {} slots, "
            "the data {} tokens",
            name, k, i, slots, first, seq_len(), tokens));
      }
    }
    begin = end;
  }
  if (begin != static_cast<int64_t>(slots_.size())) {
    throw IoError(
        fmt::format("{}: its sequences have {} of {} pieces", name, begin, slots_.size()));
  }
}

}  // namespace trireme::data
