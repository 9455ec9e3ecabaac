// SPDX-License-Identifier: Apache-2.0
// Makes the job of verify() from a configuration.
#include "config/layout.h"
#include "train/setup/setup.h"
#include "train/verify/verify.h"

namespace trireme::train {

VerifyJob make_verify_job(const config::Config& asked) {
  const config::Config c = settled(asked);
  VerifyJob job;
  job.dims = c.dims;
  job.work = config::workload_of(c);
  job.layout = config::layout_of(c);
  job.engine = make_engine_options(c);
  job.system = c.system;
  return job;
}

}  // namespace trireme::train
