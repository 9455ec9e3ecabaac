// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "data/readers/decompress.h"

namespace trireme::data {
namespace {

constexpr size_t gzip_buffer_bytes = 256 << 10;

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(const CompressedInput& input)
      : stream_(input.stream), name_(input.name), buffer_(gzip_buffer_bytes) {
    std::copy(input.start.begin(), input.start.end(), buffer_.begin());
    z_.next_in = at(0);
    filled_ = input.start.size();
    z_.avail_in = static_cast<uInt>(filled_);
    // 16: the header and trailer of gzip, with its checksum.
    TRIREME_CHECK(inflateInit2(&z_, 15 + 16) == Z_OK, "inflateInit2 failed");
  }
  ~GzipStream() override { inflateEnd(&z_); }

  size_t read(std::span<std::byte> out) override {
    z_.next_out = reinterpret_cast<Bytef*>(out.data());
    z_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1U << 30));
    const size_t wanted = z_.avail_out;
    while (z_.avail_out > 0 && !is_at_end_) {
      if (is_between_members_) {
        is_at_end_ = !start_member();
      } else {
        inflate_some();
      }
    }
    return wanted - z_.avail_out;
  }

 private:
  void inflate_some() {
    if (!fill()) throw fail("truncated: the file ends inside a gzip member");
    const int code = inflate(&z_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      is_between_members_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      throw fail(fmt::format("damaged gzip data: {}", z_.msg != nullptr ? z_.msg : zError(code)));
    }
  }

  // Returns false at the end of the file.
  bool start_member() {
    if (!fill()) return false;
    if (*z_.next_in == 0) {
      skip_zeros();
      return false;
    }
    if (*z_.next_in != 0x1f) {
      throw fail(
          fmt::format("byte 0x{:02x} after the end of a gzip member; another member begins "
                      "with 0x1f",
                      *z_.next_in));
    }
    TRIREME_CHECK(inflateReset(&z_) == Z_OK, "inflateReset failed");
    is_between_members_ = false;
    return true;
  }

  void skip_zeros() {
    while (fill()) {
      if (*z_.next_in != 0) {
        throw fail(
            fmt::format("byte 0x{:02x} after zeros that follow the last gzip member", *z_.next_in));
      }
      ++z_.next_in;
      --z_.avail_in;
    }
  }

  // Returns false if there is no input left.
  bool fill() {
    if (z_.avail_in > 0) return true;
    consumed_ += filled_;
    filled_ = stream_.read(buffer_);
    z_.next_in = at(0);
    z_.avail_in = static_cast<uInt>(filled_);
    return filled_ > 0;
  }

  base::IoError fail(const std::string& what) const {
    return base::IoError(fmt::format("{}: {} (at byte {} of the file)", name_, what,
                                     consumed_ + static_cast<size_t>(z_.next_in - at(0))));
  }

  Bytef* at(size_t index) const {
    return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(buffer_.data())) + index;
  }

  ByteStream& stream_;
  std::string name_;
  std::vector<std::byte> buffer_;
  size_t filled_ = 0, consumed_ = 0;  // bytes in the buffer, and before it
  z_stream z_{};
  bool is_between_members_ = false, is_at_end_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_gzip(const CompressedInput& input) {
  return std::make_unique<GzipStream>(input);
}

}  // namespace trireme::data
