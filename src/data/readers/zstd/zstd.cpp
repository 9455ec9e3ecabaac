// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "data/readers/decompress.h"

namespace trireme::data {
namespace {

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(const CompressedInput& input)
      : stream_(input.stream),
        name_(input.name),
        buffer_(std::max(ZSTD_DStreamInSize(), input.start.size())),
        context_(ZSTD_createDCtx()) {
    TRIREME_CHECK(context_ != nullptr, "no memory for a zstd context");
    std::copy(input.start.begin(), input.start.end(), buffer_.begin());
    in_ = {buffer_.data(), input.start.size(), 0};
  }

  size_t read(std::span<std::byte> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      // A frame that is not finished may have more output without more input.
      if (in_.pos == in_.size && !has_pending_output_ && !fill()) {
        if (is_inside_frame_) throw fail("truncated: the file ends inside a zstd frame");
        break;
      }
      const size_t result = ZSTD_decompressStream(context_.get(), &to, &in_);
      if (ZSTD_isError(result) != 0) {
        throw fail(fmt::format("damaged zstd data: {}", ZSTD_getErrorName(result)));
      }
      is_inside_frame_ = result != 0;
      has_pending_output_ = is_inside_frame_ && to.pos == to.size;
    }
    return to.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
  };

  bool fill() {
    consumed_ += in_.size;
    in_ = {buffer_.data(), stream_.read(buffer_), 0};
    return in_.size > 0;
  }

  base::IoError fail(const std::string& what) const {
    return base::IoError(
        fmt::format("{}: {} (at byte {} of the file)", name_, what, consumed_ + in_.pos));
  }

  ByteStream& stream_;
  std::string name_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  ZSTD_inBuffer in_{};
  size_t consumed_ = 0;  // bytes before the buffer
  bool is_inside_frame_ = true, has_pending_output_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_zstd(const CompressedInput& input) {
  return std::make_unique<ZstdStream>(input);
}

}  // namespace trireme::data
