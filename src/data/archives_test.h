// SPDX-License-Identifier: Apache-2.0
// Archives, shards and compressed bytes for tests, written by hand.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "data/files_test.h"

namespace trireme::data {

// "hello\n" by gzip -9n, and by zstd -19 with a checksum.
inline const std::string gzip_hello =
    from_hex("1f8b0800000000000203cb48cdc9c9e7020020303a3606000000");
inline const std::string zstd_hello = from_hex("28b52ffd046831000068656c6c6f0a5388bd91");

// A gzip member with one stored block: no compressor is needed. REQUIRES: at most 65535 bytes.
inline std::string gzip_stored(const std::string& text) {
  uint32_t crc = 0xffffffffU;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  const auto size = static_cast<uint16_t>(text.size());
  return from_hex("1f8b0800000000000003") + '\x01' + raw(size) + raw(static_cast<uint16_t>(~size)) +
         text + raw(~crc) + raw(static_cast<uint32_t>(text.size()));
}

// A header of 512 bytes with its checksum. `fields` are (offset, bytes) written before it.
inline std::string tar_header(const std::string& name, size_t size, char type = '0',
                              const std::vector<std::pair<size_t, std::string>>& fields = {}) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  char octal[12];
  std::snprintf(octal, sizeof(octal), "%011o", static_cast<unsigned>(size));
  header.replace(124, 11, octal);
  header[156] = type;
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  for (const auto& [at, bytes] : fields) header.replace(at, bytes.size(), bytes);
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof(checksum), "%06o", sum);
  header.replace(148, 7, std::string(checksum, 7));
  return header;
}

inline std::string tar_padded(std::string content) {
  content.resize((content.size() + 511) / 512 * 512);
  return content;
}

inline std::string tar_member(const std::string& name, const std::string& content,
                              char type = '0') {
  return tar_header(name, content.size(), type) + tar_padded(content);
}

inline const std::string tar_end = std::string(1024, '\0');

// An MDS shard with the columns id (int) and text (str).
inline std::string mds_shard(const std::vector<std::string>& texts) {
  const std::string config = "{}";
  const auto samples = static_cast<uint32_t>(texts.size());
  std::string offsets, body;
  const size_t start = 4 + 4 * (texts.size() + 1) + config.size();
  offsets += raw(static_cast<uint32_t>(start));
  for (const std::string& text : texts) {
    body += raw(static_cast<uint32_t>(text.size())) + raw(int64_t{7}) + text;
    offsets += raw(static_cast<uint32_t>(start + body.size()));
  }
  return raw(samples) + offsets + config + body;
}

inline std::string mds_index_entry(const std::string& name, size_t bytes, size_t samples,
                                   const std::string& zip = "null",
                                   const std::string& compression = "null") {
  return R"({"column_encodings":["int","str"],"column_names":["id","text"],"column_sizes":[8,null],)"
         R"("compression":)" +
         compression + R"(,"format":"mds","hashes":[],"raw_data":{"basename":")" + name +
         R"(","bytes":)" + std::to_string(bytes) + R"(,"hashes":{}},"samples":)" +
         std::to_string(samples) + R"(,"size_limit":67108864,"version":2,"zip_data":)" + zip + "}";
}

inline std::string mds_index(const std::string& entries) {
  return R"({"version":2,"shards":[)" + entries + "]}";
}

}  // namespace trireme::data
