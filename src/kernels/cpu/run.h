// SPDX-License-Identifier: Apache-2.0
// How a CPU op runs: its body is queued on the stream with a copy of the arguments, and submits
// tasks to the device's thread pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/system/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::kernels::cpu {

// Queues body(pool, args).
template <typename Args, typename Body>
void run_on(Stream& stream, const Args& args, Body body) {
  auto* cpu_stream = dynamic_cast<device::CpuStream*>(&stream);
  TRIREME_CHECK(cpu_stream != nullptr, "stream '{}' does not belong to a CPU device",
                stream.name());
  cpu_stream->enqueue([args, body, &pool = cpu_stream->pool()] { body(pool, args); });
}

// Returns at least `count` floats of thread-local memory, one allocation for each Tag. The contents
// are those of earlier use; a later call with the same Tag on this thread may move them.
template <typename Tag>
float* thread_floats(int64_t count) {
  thread_local std::vector<float> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(static_cast<size_t>(count));
  return memory.data();
}

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Elements of one task, if a task is a piece of a matrix: large against the cost of submitting it,
// small enough for a few threads to end together.
constexpr int64_t task_elements = 16384;

// Calls body(row) for every row, in tasks of neighbouring rows.
template <typename Body>
void for_each_row(base::ThreadPool& pool, int64_t rows, int64_t cols, const Body& body) {
  const int64_t rows_per_task = std::max<int64_t>(1, task_elements / std::max<int64_t>(1, cols));
  pool.for_each(divide_up(rows, rows_per_task), [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) body(row);
  });
}

}  // namespace trireme::kernels::cpu
