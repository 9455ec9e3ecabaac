// SPDX-License-Identifier: Apache-2.0
// Columns of ranks.bin: what every rank reports about the steps since the last record. Times are
// means per step, in seconds of this rank's clock; no value depends on clocks that agree.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::obs {

enum class RankColumn : uint8_t {
  steps,             // that were measured
  step_seconds,      // from the end of the step before to the end of the step
  max_step_seconds,  // the longest of them
  compute_seconds,   // on the compute stream, without waits
  gap_seconds,       // the device had no work: the host was late
  data_seconds,      // the host waited for a batch
  save_seconds,      // the host or the device waited for a checkpoint
  // Compute waited for ranks along these axes, transfer included.
  wait_tp,
  wait_cp,
  wait_ep,
  wait_data,
  wait_pp,
  wait_closing,
  wait_input,  // compute waited for the upload of a batch
  // max over the group of its wait, minus this rank's wait: the last to arrive waits least.
  late_tp,
  late_cp,
  late_ep,
  late_data,
  late_pp,
  late_closing,
  work,  // computed by this rank relative to the mean of its stage: tokens and pairs
  memory_bytes,
  memory_limit_bytes,  // of the device
  host_bytes,          // resident memory of the process
  cpu_share,           // processor time of the process over wall time times its threads of compute
  // NaN without NVML:
  clock_hz,
  max_clock_hz,
  power_watts,
  temperature_celsius,
  ecc_errors,
  throttle_reasons,
  sm_share,
  tensor_share,
  nvlink_bytes_per_second,
  pcie_bytes_per_second,
  count
};
constexpr size_t rank_columns = static_cast<size_t>(RankColumn::count);
std::string_view name_of(RankColumn);  // "compute_seconds"

// What one rank contributes to a record.
struct RankSample {
  std::array<float, rank_columns> values{};
  float& operator[](RankColumn column) { return values[static_cast<size_t>(column)]; }
  float operator[](RankColumn column) const { return values[static_cast<size_t>(column)]; }
};

}  // namespace trireme::obs
