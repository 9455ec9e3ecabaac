// SPDX-License-Identifier: Apache-2.0
#include "device/stream_number.h"

#include "base/check.h"

namespace trireme::device {

bool can_set_numbers(const Stream& stream) {
  return stream.host_calls() != Stream::HostCalls::none || is_gpu_stream(stream);
}

void set_in_order(Stream& stream, int64_t* number, int64_t value) {
  TRIREME_CHECK(!stream.is_capturing(), "stream '{}' is being captured", stream.name());
  if (set_on_gpu(stream, number, value)) return;
  stream.call_host([number, value] {
    std::atomic_ref<int64_t>(*number).store(value, std::memory_order_relaxed);
  });
}

void add_in_order(Stream& stream, int64_t* number) {
  TRIREME_CHECK(stream.is_capturing(), "stream '{}' is not being captured", stream.name());
  if (add_on_gpu(stream, number)) return;
  stream.call_host(
      [number] { std::atomic_ref<int64_t>(*number).fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace trireme::device
