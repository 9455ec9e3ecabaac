// SPDX-License-Identifier: Apache-2.0
// The entry point of libFuzzer. The build names the reader, one program each.
#include <cstdint>

#include "readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  (void)trireme::fuzz::TRIREME_FUZZ_READER(std::as_bytes(std::span(bytes, size)));
  return 0;
}
