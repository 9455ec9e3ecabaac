// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/loss_age.h"

#include <algorithm>

namespace trireme::agent {

double loss_age(const comm::Verdict& verdict, std::span<const comm::RankReport> reports,
                double detect_s) {
  double age = 0;
  for (const int rank : verdict.ranks) {
    if (rank < 0 || rank >= std::ssize(reports)) continue;
    const comm::RankReport& report = reports[static_cast<size_t>(rank)];
    if (!report.ended.empty() || !report.position) continue;
    const bool is_silent = report.silent_s > detect_s / 2;
    const bool is_still = !is_silent && report.position->motion;
    age = std::max(age, report.silent_s + (is_still ? report.position->motion->still_s : 0));
  }
  return age;
}

}  // namespace trireme::agent
