// SPDX-License-Identifier: Apache-2.0
#include "plan/import/config_layout.h"

#include "config/layout.h"

namespace trireme::plan {

Job job_of(const config::Config& config) {
  Job job;
  job.model = spec::make_model(config.dims);
  static_cast<spec::Workload&>(job) = config::workload_of(config);
  job.backend = spec::cuda_backend(config.system.determinism != "fast");
  job.fixed_order = config.comm.fixed_order;
  return job;
}

Layout layout_of(const config::Config& config) { return config::settled_layout(config); }

}  // namespace trireme::plan
