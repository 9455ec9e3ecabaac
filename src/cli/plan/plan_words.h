// SPDX-License-Identifier: Apache-2.0
// Formats numbers and names for `trireme plan`.
#pragma once

#include <string>

#include "plan/job.h"
#include "plan/price/run_cost.h"
#include "spec/machine.h"

namespace trireme::cli {

// 90194313216 -> "84.0 GiB", as nvidia-smi counts; below 0.1 GiB "12.5 MiB".
std::string memory_text(double bytes);
// "89.5 of 79.1 GiB"
std::string memory_share_text(double bytes, double limit);
// 70553706496 -> "70.6 B"; 4194304 -> "4.19 M"; below 100,000 as it is: "65,536".
std::string amount_text(double count);
// "20.8 days"; below two days in hours, below two hours in minutes.
std::string days_text(double days);
// "1.28 M$", "12,800 $" or "4.20 $".
std::string money_text(double dollars);
// "20.8 days, 512,000 GPU-hours, 1.28 M$"; without the cost if no price is known.
std::string run_text(const plan::RunCost&);
// " at 2.50 $/GPU-hour", or an empty text if no price is known.
std::string price_text(const plan::RunCost&);

// "GPU", or "rank" for a machine without GPUs.
std::string gpu_word(const spec::Machine&);
// "1,024 GPUs", "1 rank"
std::string gpus_text(const spec::Machine&, int64_t count);
// The layout in words, with its common name if it is pure DDP, FSDP or HSDP.
std::string named_layout(const spec::Layout&);

}  // namespace trireme::cli
