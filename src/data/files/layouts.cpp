// SPDX-License-Identifier: Apache-2.0
#include "data/files/layouts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace trireme::data {
namespace {

using base::IoError;

template <typename T>
T load(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string printable(std::span<const std::byte> bytes);
TokenType type_of_code(uint8_t code, std::string_view name);
void check_sequences(const MegatronIndex&, std::span<const std::byte> lengths, int64_t bin_bytes,
                     std::string_view name);
void check_documents(const MegatronIndex&, std::string_view name);

// The magic numbers of other llm.c files, so that a message can identify a file.
struct OtherFile {
  int32_t magic;
  std::string_view what;
};
constexpr std::array<OtherFile, 6> other_llmc_files = {{{20240522, "evaluation questions"},
                                                        {20240326, "a GPT-2 model"},
                                                        {20240803, "a Llama 3 model"},
                                                        {20240527, "a training state"},
                                                        {20240327, "a debug state"},
                                                        {20240328, "a tokenizer"}}};

}  // namespace

uint8_t megatron_code(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return 1;
    case TokenType::i8:
      return 2;
    case TokenType::i16:
      return 3;
    case TokenType::i32:
      return 4;
    case TokenType::i64:
      return 5;
    case TokenType::u16:
      return 8;
    case TokenType::u32:
      break;
  }
  TRIREME_CHECK(false, "Megatron's index has no code for {}", name_of(type));
  return 0;
}

int64_t MegatronIndex::document_start(int64_t document) const {
  TRIREME_CHECK(document >= 0 && document <= documents, "document {} of {}", document, documents);
  const auto sequence = load<int64_t>(first_sequences, document * 8);
  return sequence == sequences ? tokens : load<int64_t>(pointers, sequence * 8) / size_of(type);
}

MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, int64_t bin_bytes,
                                   std::string_view name) {
  const size_t magic_found = std::min(bytes.size(), megatron_magic.size());
  if (magic_found != 0 && std::memcmp(bytes.data(), megatron_magic.data(), magic_found) != 0) {
    throw IoError(fmt::format("{}: starts with \"{}\"; a Megatron index starts with \"{}\"", name,
                              printable(bytes.first(magic_found)),
                              printable(std::as_bytes(std::span(megatron_magic)))));
  }
  if (bytes.size() < megatron_header_bytes) {
    throw IoError(fmt::format("{}: truncated: {} bytes; the header alone takes {}", name,
                              bytes.size(), megatron_header_bytes));
  }
  const auto version = load<uint64_t>(bytes, 9);
  if (version != megatron_version) {
    throw IoError(
        fmt::format("{}: index version {}; allowed: {}", name, version, megatron_version));
  }
  MegatronIndex index;
  index.type = type_of_code(load<uint8_t>(bytes, 17), name);
  const auto sequences = load<uint64_t>(bytes, 18), entries = load<uint64_t>(bytes, 26);
  const uint64_t room = bytes.size() - megatron_header_bytes;
  // The first two conditions keep the third from overflowing.
  if (sequences > room / 12 || entries > room / 8 || sequences * 12 + entries * 8 > room) {
    throw IoError(
        fmt::format("{}: truncated: {} bytes cannot hold {} sequences and {} document entries",
                    name, bytes.size(), sequences, entries));
  }
  if (entries == 0) {
    throw IoError(fmt::format("{}: 0 document entries; there is one more than documents", name));
  }
  const uint64_t rest = room - sequences * 12 - entries * 8;
  if (rest != 0 && rest != sequences) {
    throw IoError(fmt::format(
        "{}: {} bytes after {} sequences and {} document entries; allowed: none, or one per "
        "sequence (its mode)",
        name, rest, sequences, entries));
  }
  for (const std::byte mode : bytes.last(rest)) {
    if (mode != std::byte{0}) {
      throw IoError(fmt::format("{}: holds sequences that are not text (mode {})", name,
                                static_cast<int>(mode)));
    }
  }
  index.sequences = static_cast<int64_t>(sequences);
  index.documents = static_cast<int64_t>(entries) - 1;
  const auto lengths = bytes.subspan(megatron_header_bytes, sequences * 4);
  index.pointers = bytes.subspan(megatron_header_bytes + sequences * 4, sequences * 8);
  index.first_sequences = bytes.subspan(megatron_header_bytes + sequences * 12, entries * 8);
  index.tokens = bin_bytes / size_of(index.type);
  check_sequences(index, lengths, bin_bytes, name);
  check_documents(index, name);
  return index;
}

bool has_llmc_magic(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return false;
  const auto magic = load<int32_t>(bytes, 0);
  for (const LlmcKind& kind : llmc_kinds) {
    if (kind.magic == magic) return true;
  }
  for (const OtherFile& file : other_llmc_files) {
    if (file.magic == magic) return true;
  }
  return false;
}

TokenArray parse_llmc(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < llmc_header_bytes) {
    throw IoError(fmt::format("{}: truncated: {} bytes; the llm.c header alone takes {}", name,
                              bytes.size(), llmc_header_bytes));
  }
  const auto magic = load<int32_t>(bytes, 0), version = load<int32_t>(bytes, 4);
  const auto tokens = load<int32_t>(bytes, 8);
  for (const OtherFile& file : other_llmc_files) {
    if (file.magic == magic) {
      throw IoError(
          fmt::format("{}: holds {} of llm.c (magic {}), not tokens", name, file.what, magic));
    }
  }
  for (const LlmcKind& kind : llmc_kinds) {
    if (kind.magic != magic) continue;
    if (kind.version != version) {
      throw IoError(fmt::format("{}: llm.c tokens with magic {} have version {}, this file has {}",
                                name, magic, kind.version, version));
    }
    if (tokens < 0) throw IoError(fmt::format("{}: the header says {} tokens", name, tokens));
    const size_t wanted = llmc_header_bytes + static_cast<size_t>(tokens * size_of(kind.type));
    if (bytes.size() != wanted) {
      throw IoError(
          fmt::format("{}: {} tokens of {} take {} bytes with the header, the file has {}", name,
                      tokens, name_of(kind.type), wanted, bytes.size()));
    }
    return {bytes.subspan(llmc_header_bytes), kind.type, std::string(name)};
  }
  throw IoError(fmt::format("{}: starts with the number {}; llm.c tokens start with {} or {}", name,
                            magic, llmc_kinds[0].magic, llmc_kinds[1].magic));
}

namespace {

std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    text +=
        std::isprint(c) != 0 ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return text;
}

TokenType type_of_code(uint8_t code, std::string_view name) {
  switch (code) {
    case 1:
      return TokenType::u8;
    case 2:
      return TokenType::i8;
    case 3:
      return TokenType::i16;
    case 4:
      return TokenType::i32;
    case 5:
      return TokenType::i64;
    case 8:
      return TokenType::u16;
    default:
      break;
  }
  throw IoError(
      fmt::format("{}: token type code {}{}; allowed: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16", name,
                  code, code == 6 || code == 7 ? " (floating point)" : ""));
}

void check_sequences(const MegatronIndex& index, std::span<const std::byte> lengths,
                     int64_t bin_bytes, std::string_view name) {
  const int64_t size = size_of(index.type);
  int64_t expected = 0;
  for (int64_t i = 0; i < index.sequences; ++i) {
    const auto length = load<int32_t>(lengths, i * 4);
    if (length < 0) {
      throw IoError(fmt::format("{}: sequence {} has {} tokens", name, i, length));
    }
    const auto pointer = load<int64_t>(index.pointers, i * 8);
    if (pointer < 0 || pointer > bin_bytes) {
      throw IoError(fmt::format("{}: sequence {} starts at byte {} of a .bin of {} bytes", name, i,
                                pointer, bin_bytes));
    }
    if (pointer != expected) {
      throw IoError(fmt::format(
          "{}: sequence {} starts at byte {}; the one before it ends at {}, and sequences must lie "
          "back to back",
          name, i, pointer, expected));
    }
    expected += length * size;
    if (expected > bin_bytes) {
      throw IoError(
          fmt::format("{}: sequence {} ({} tokens of {}) ends at byte {}; the .bin has {}", name, i,
                      length, name_of(index.type), expected, bin_bytes));
    }
  }
  if (expected != bin_bytes) {
    throw IoError(fmt::format("{}: its {} sequences take {} bytes; the .bin has {}", name,
                              index.sequences, expected, bin_bytes));
  }
}

void check_documents(const MegatronIndex& index, std::string_view name) {
  int64_t previous = 0;
  for (int64_t i = 0; i <= index.documents; ++i) {
    const auto first = load<int64_t>(index.first_sequences, i * 8);
    if (i == 0 && first != 0) {
      throw IoError(
          fmt::format("{}: document 0 starts at sequence {}; it must start at 0", name, first));
    }
    if (first < previous) {
      throw IoError(fmt::format("{}: document {} starts at sequence {}, the one before it at {}",
                                name, i, first, previous));
    }
    if (first > index.sequences) {
      throw IoError(fmt::format("{}: document {} starts at sequence {} of {}", name, i, first,
                                index.sequences));
    }
    previous = first;
  }
  if (previous != index.sequences) {
    throw IoError(fmt::format("{}: the documents end at sequence {}; there are {}", name, previous,
                              index.sequences));
  }
}

}  // namespace
}  // namespace trireme::data
