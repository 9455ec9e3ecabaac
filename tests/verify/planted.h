// SPDX-License-Identifier: Apache-2.0
// A fault that is planted in a healthy layout, and the check of verify that must fail.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/verify/decorators.h"
#include "tests/verify/verify_rig.h"

namespace trireme::tests {

struct Planted {
  std::string name;
  SmallJob job;
  train::VerifyHooks hooks;
  std::string check;  // that must fail
};
inline void PrintTo(const Planted& fault, std::ostream* out) { *out << fault.name; }

inline train::VerifyHooks one_fault(const comm::Fault& fault) { return with_faults({fault}); }

inline void expect_found(const Planted& fault) {
  const train::VerifyReport report = train::verify(job_of(fault.job), fault.hooks);
  EXPECT_FALSE(report.ok()) << train::to_text(report);
  EXPECT_TRUE(failed(report, fault.check)) << train::to_text(report);
  for (const train::VerifyCheck& check : report.checks) {
    EXPECT_EQ(check.ok, check.hint.empty()) << check.name;
  }
}

}  // namespace trireme::tests
