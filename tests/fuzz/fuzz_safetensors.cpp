// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <optional>

#include "base/error.h"
#include "ckpt/hf/safetensors.h"
#include "memory_file.h"
#include "readers.h"

namespace trireme::fuzz {

// The tensors of a file that opens cover its bytes after the header, each byte once.
bool read_safetensors(Input input) {
  static const MemoryFile file;
  file.fill(input);
  std::optional<ckpt::SafetensorsFile> opened;
  try {
    opened = ckpt::SafetensorsFile::open(file.path());
  } catch (const base::Error&) {
    return false;  // refused
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, input.data(), sizeof(header_bytes));
  const Input data = input.subspan(sizeof(header_bytes) + header_bytes);
  const auto sum = [](Input bytes) {
    uint64_t total = 0;
    for (const std::byte byte : bytes) total += static_cast<uint64_t>(byte);
    return total;
  };
  uint64_t bytes = 0, total = 0;
  for (const auto& [name, view] : opened->tensors()) {
    TRIREME_CHECK(opened->tensor(name).bytes.data() == view.bytes.data(), "'{}'", name);
    bytes += view.bytes.size();
    total += sum(view.bytes);
  }
  TRIREME_CHECK(bytes == data.size() && total == sum(data), "{} of {} bytes", bytes, data.size());
  return true;
}

}  // namespace trireme::fuzz
