// SPDX-License-Identifier: Apache-2.0
// Reads the members of a tar archive from a stream: ustar, GNU (long names, large sizes) and pax.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "data/readers/byte_stream.h"

namespace trireme::data {

// Used from one thread. Throws IoError with the byte offset for an archive that is truncated or has
// a header that is damaged, and for sparse files, which hold other bytes than they stand for.
class TarReader {
 public:
  explicit TarReader(ShardStream& stream) : stream_(stream) {}

  // Goes to the next regular file; folders, links and devices are skipped. Returns false at the end
  // of the archive.
  bool next();
  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  int64_t offset() const { return offset_; }  // of the content

  // Appends the content to `out`. At most once for a member.
  void read(std::string& out);

 private:
  using Header = std::array<char, 512>;
  bool read_header(Header& header);
  void check_end();
  void read_pax(const std::string& records, int64_t at);
  void append(std::string& out, int64_t bytes);
  void skip(int64_t bytes);
  std::string content(int64_t bytes, const char* what);

  ShardStream& stream_;
  std::string name_;
  int64_t bytes_ = 0, offset_ = 0;
  int64_t unread_ = 0, padding_ = 0;  // of the current member
  std::string long_name_, pax_path_;  // of the next member; empty: none
  int64_t pax_size_ = -1;
  bool is_at_end_ = false;
};

}  // namespace trireme::data
