// SPDX-License-Identifier: Apache-2.0
// A gate in the queue of a stream: work passes it, until it is due to spin for ever. On a GPU it is
// a kernel, which may be in a captured graph; on a CPU it is work of the stream's thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/device.h"

namespace trireme::tests {

// In a HostBuffer of the stream's device, from zeros on. The stream and the host use it at the same
// time.
struct SpinGate {
  int64_t passes;   // written by the stream
  int64_t due;      // written by the host: it spins from this pass on; 0: never
  int64_t spins;    // written by the stream: the pass in which it spins
  int64_t is_open;  // written by the host: it spins no longer
};

// Reads and writes a number of a gate, beside the stream.
inline int64_t gate_number(int64_t& number) {
  return std::atomic_ref<int64_t>(number).load(std::memory_order_relaxed);
}
inline void set_gate_number(int64_t& number, int64_t value) {
  std::atomic_ref<int64_t>(number).store(value, std::memory_order_relaxed);
}

// Queues one pass.
void pass_gate(device::Stream& stream, SpinGate* gate);
// The same, for a stream of a GPU. Returns false if it is none.
bool pass_gate_on_gpu(device::Stream& stream, SpinGate* gate);
// Makes a gate outside of a HostBuffer usable by a stream, for as long as the process lives.
void lock_gate(const device::Stream& stream, SpinGate* gate);

}  // namespace trireme::tests
