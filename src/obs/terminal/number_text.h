// SPDX-License-Identifier: Apache-2.0
// Human-readable numbers, the same in every locale.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::obs {

// 1234567 -> "1,234,567".
std::string grouped(int64_t value);
// With `decimals` digits after the point: (1234.5, 2) -> "1,234.50". Infinities and NaN as fmt
// writes them.
std::string grouped(double value, int decimals);
// 1536 -> "1,536"; from 100,000 on with three digits and a unit: 1536000 -> "1.54M", also "B", "T".
std::string count_text(int64_t value);
// 1610612736 -> "1.50 GiB"; below 1 KiB "312 B".
std::string bytes_text(int64_t bytes);
// 3723 seconds -> "1:02:03"; 62 -> "1:02"; a day and more "1d 02:03:04".
std::string duration_text(double seconds);

}  // namespace trireme::obs
