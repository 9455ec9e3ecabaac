// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/windows.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::ckpt {

int64_t elements_of(const TensorInfo& tensor) {
  return bytes_of(tensor) / base::size_of(tensor.dtype);
}

void read_flat(const Generation& generation, const TensorInfo& tensor, int64_t first,
               std::span<std::byte> bytes) {
  const int64_t element_bytes = base::size_of(tensor.dtype);
  TRIREME_CHECK(std::ssize(bytes) % element_bytes == 0, "{}: {} bytes are no whole elements",
                tensor.name, bytes.size());
  const spec::ShardSpec whole{.name = tensor.name, .shape = tensor.shape, .cuts = {}};
  const std::vector<ReadRequest> requests = {
      {tensor, spec::pieces(whole, {}, {}, {first, first + std::ssize(bytes) / element_bytes}),
       bytes}};
  generation.read(requests);
}

void for_each_window(const TensorInfo& tensor, const std::function<void(spec::Range)>& each) {
  const int64_t elements = elements_of(tensor);
  const int64_t step = window_bytes / base::size_of(tensor.dtype);
  for (int64_t first = 0; first < elements; first += step) {
    each({first, std::min(elements, first + step)});
  }
}

}  // namespace trireme::ckpt
