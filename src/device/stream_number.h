// SPDX-License-Identifier: Apache-2.0
// Numbers in host memory by which a stream shows how far it is. Any thread reads them without a
// call of the driver: such a call may wait for a thread that waits for room in a stream's queue,
// for as long as the device stands still.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/device.h"

namespace trireme::device {

// Whether the functions below can be called with the stream.
bool can_set_numbers(const Stream& stream);
// Sets the number when the stream has done all work that was queued before. The number is in a
// HostBuffer of the stream's device. REQUIRES: the stream is not being captured.
void set_in_order(Stream& stream, int64_t* number, int64_t value);
// Adds 1 then, at every launch of a graph. REQUIRES: the stream is being captured.
void add_in_order(Stream& stream, int64_t* number);

inline int64_t read_number(int64_t* number) {
  return std::atomic_ref<int64_t>(*number).load(std::memory_order_relaxed);
}

// ---- of back ends: return false if the stream is none of theirs
bool is_gpu_stream(const Stream& stream);
bool set_on_gpu(Stream& stream, int64_t* number, int64_t value);
bool add_on_gpu(Stream& stream, int64_t* number);

}  // namespace trireme::device
