// SPDX-License-Identifier: Apache-2.0
#include "plan/config_layout.h"

#include "schedule/catalogue.h"

namespace trireme::plan {

Job job_of(const config::Config& config) {
  Job job;
  job.model = spec::make_model(config.dims);
  job.seq_len = config.training.seq_len;
  job.global_batch = config.training.global_batch_size;
  job.backend = spec::cuda_backend(config.system.determinism != "fast");
  return job;
}

Layout layout_of(const config::Config& config) {
  const config::Parallelism& p = config.parallelism;
  Layout l;
  l.tp = static_cast<int>(p.tensor_parallel_degree);
  l.pp = static_cast<int>(p.pipeline_parallel_degree);
  l.dp = static_cast<int>(p.data_parallel_replicate_degree * p.data_parallel_shard_degree);
  if (p.data_parallel_shard_degree > 1) {
    l.zero = p.zero_stage < 0 ? 3 : static_cast<int>(p.zero_stage);
  }
  // In any spelling.
  const auto named = schedule::find_named(p.pipeline_parallel_schedule);
  const auto pipe = named ? pipe_from(named.value().name) : std::nullopt;
  if (pipe && l.pp > 1 && p.pipeline_parallel_schedule_file.empty()) {
    l.pipe = *pipe;
    l.chunks = fixed_chunks(*pipe);
    if (l.chunks == 0) {
      l.chunks = p.pipeline_parallel_chunks > 0 ? static_cast<int>(p.pipeline_parallel_chunks)
                                                : schedule::usual_chunks;
    }
  }
  l.micro_batch = config.training.local_batch_size;
  l.sequence_parallel = p.sequence_parallel && l.tp > 1;
  l.recompute = recompute_from(config.activation_checkpoint.mode).value_or(spec::Recompute::none);
  l.precision = precision_from(config.training.dtype).value_or(Precision::bf16);
  return l;
}

}  // namespace trireme::plan
