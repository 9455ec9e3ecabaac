// SPDX-License-Identifier: Apache-2.0
#include "obs/files/rank_columns.h"

namespace trireme::obs {

std::string_view name_of(RankColumn column) {
  static constexpr std::array<std::string_view, rank_columns> names = {"steps",
                                                                       "step_seconds",
                                                                       "max_step_seconds",
                                                                       "compute_seconds",
                                                                       "gap_seconds",
                                                                       "data_seconds",
                                                                       "save_seconds",
                                                                       "wait_tp_seconds",
                                                                       "wait_cp_seconds",
                                                                       "wait_ep_seconds",
                                                                       "wait_data_seconds",
                                                                       "wait_pp_seconds",
                                                                       "wait_closing_seconds",
                                                                       "wait_input_seconds",
                                                                       "late_tp_seconds",
                                                                       "late_cp_seconds",
                                                                       "late_ep_seconds",
                                                                       "late_data_seconds",
                                                                       "late_pp_seconds",
                                                                       "late_closing_seconds",
                                                                       "work",
                                                                       "memory_bytes",
                                                                       "memory_limit_bytes",
                                                                       "host_bytes",
                                                                       "cpu_share",
                                                                       "clock_hz",
                                                                       "max_clock_hz",
                                                                       "power_watts",
                                                                       "temperature_celsius",
                                                                       "ecc_errors",
                                                                       "throttle_reasons",
                                                                       "sm_share",
                                                                       "tensor_share",
                                                                       "nvlink_bytes_per_second",
                                                                       "pcie_bytes_per_second"};
  return names.at(static_cast<size_t>(column));
}

}  // namespace trireme::obs
