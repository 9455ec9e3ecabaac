// SPDX-License-Identifier: Apache-2.0
#include "obs/process_start.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "obs/clock.h"

namespace trireme::obs {

double process_start_seconds() {
  std::ifstream in("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  // The second field is the name in parentheses, which may contain any character; the start is
  // field 22, in ticks since boot.
  const size_t name_end = text.rfind(')');
  double ticks = -1;
  if (name_end != std::string::npos) {
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 22; ++field) fields >> skipped;
    if (!(fields >> ticks)) ticks = -1;
  }
  timespec since_boot{};
  const bool is_known = ticks >= 0 && ::clock_gettime(CLOCK_BOOTTIME, &since_boot) == 0;
  // Read right after the clock above: a pause between the two makes the start later, never earlier.
  const double now = wall_seconds();
  if (!is_known) return now;
  const double boot_seconds =
      static_cast<double>(since_boot.tv_sec) + 1e-9 * static_cast<double>(since_boot.tv_nsec);
  // The system rounds down to a tick; the end of the tick is not before the true start.
  const double age = boot_seconds - (ticks + 1) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return now - std::max(age, 0.0);
}

}  // namespace trireme::obs
