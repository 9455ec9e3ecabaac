// SPDX-License-Identifier: Apache-2.0
#include "plan/import/config_layout.h"

#include "config/layout.h"

namespace trireme::plan {

Job job_of(const config::Config& config) {
  Job job;
  job.model = spec::make_model(config.dims);
  job.seq_len = config.training.seq_len;
  job.global_batch = config.training.global_batch_size;
  job.document_mask = config.training.document_mask;
  job.backend = spec::cuda_backend(config.system.determinism != "fast");
  return job;
}

Layout layout_of(const config::Config& config) { return config::settled_layout(config); }

}  // namespace trireme::plan
