// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include <memory>

#include "base/check.h"
#include "data/readers/compress.h"

namespace trireme::data {

void append_zstd(std::string_view bytes, std::string& out) {
  struct Free {
    void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
  };
  const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  TRIREME_CHECK(context != nullptr, "no memory for a zstd context");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  const size_t before = out.size();
  out.resize(before + ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress2(context.get(), out.data() + before, out.size() - before,
                                     bytes.data(), bytes.size());
  TRIREME_CHECK(ZSTD_isError(size) == 0, "zstd: {}", ZSTD_getErrorName(size));
  out.resize(before + size);
}

}  // namespace trireme::data
