// SPDX-License-Identifier: Apache-2.0
// Numbers and names as `trireme plan` prints them.
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
// "20.8 days, 512,000 GPU-hours, 1.28 M$"; without money where there is none.
std::string run_text(const plan::RunCost&);
// " at 2.50 $/GPU-hour", or nothing.
std::string price_text(const plan::RunCost&);

// "GPU"; of a machine that has none, "rank".
std::string processor_word(const spec::Machine&);
// "1,024 GPUs", "1 rank"
std::string gpus_text(const spec::Machine&, int64_t count);
// The layout in words, and what people call it where it is DDP or FSDP and nothing else.
std::string named_layout(const spec::Layout&);

}  // namespace trireme::cli
