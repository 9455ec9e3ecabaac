// SPDX-License-Identifier: Apache-2.0
#include "engine/host_floats.h"

#include <algorithm>

#include "base/dtype.h"

namespace trireme::engine {

std::vector<float> download_floats(device::Stream& stream, const device::Tensor& from) {
  std::vector<float> values(static_cast<size_t>(from.elements()));
  if (from.dtype == base::DType::f32) {
    stream.download(std::as_writable_bytes(std::span(values)), from);
    stream.synchronize();
    return values;
  }
  std::vector<base::Bf16> stored(values.size());
  stream.download(std::as_writable_bytes(std::span(stored)), from);
  stream.synchronize();
  std::transform(stored.begin(), stored.end(), values.begin(),
                 [](base::Bf16 v) { return static_cast<float>(v); });
  return values;
}

void upload_floats(device::Stream& stream, const device::Tensor& to,
                   std::span<const float> values) {
  if (to.dtype == base::DType::f32) {
    stream.upload(to, std::as_bytes(values));
    stream.synchronize();
    return;
  }
  std::vector<base::Bf16> stored(values.size());
  std::transform(values.begin(), values.end(), stored.begin(),
                 [](float v) { return base::Bf16(v); });
  stream.upload(to, std::as_bytes(std::span(stored)));
  stream.synchronize();
}

}  // namespace trireme::engine
