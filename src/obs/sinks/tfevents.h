// SPDX-License-Identifier: Apache-2.0
// The format of a TensorBoard event file. A record is
//   u64 length | u32 masked crc of the length | data | u32 masked crc of the data
// in little-endian order, and its data is a protobuf message of a handful of fields:
//   Event {1: double wall_time, 2: int64 step, 3: string file_version | 5: Summary | 7: SessionLog}
//   Summary {1: repeated Value},  Value {1: string tag, 2: float simple_value}
//   SessionLog {1: enum status}, START is 1
// As in proto3, zeros are omitted, except the value itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "obs/sinks/metric_sink.h"

namespace trireme::obs {

// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
// Rotated and shifted, so that a checksum of data that contains checksums stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

// Returns the first event of every file.
std::string version_event(double wall_seconds);
// Returns the event that purges `step` and later steps from older files.
std::string session_start_event(double wall_seconds, int64_t step);
// Returns one event with all metrics of a step.
std::string scalar_event(double wall_seconds, int64_t step, std::span<const Metric> metrics);

std::string framed(std::string_view data);

}  // namespace trireme::obs
