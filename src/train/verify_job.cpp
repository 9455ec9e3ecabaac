// SPDX-License-Identifier: Apache-2.0
// From a configuration to what verify() takes.
#include "train/setup.h"
#include "train/verify.h"

namespace trireme::train {

VerifyJob make_verify_job(const config::Config& c) {
  const std::string& mode = c.activation_checkpoint.mode;
  VerifyJob job;
  job.dims = c.dims;
  job.one_rank = {
      .microbatch_sequences = c.training.local_batch_size,
      .seq_len = c.training.seq_len,
      .microbatches = static_cast<int>(c.training.global_batch_size / c.training.local_batch_size),
      .recipe = spec::recipe_from_name(c.training.dtype),
      .recompute = mode == "full"        ? spec::Recompute::full
                   : mode == "selective" ? spec::Recompute::selective
                                         : spec::Recompute::none,
      .head_chunk_rows = c.training.head_chunk_rows,
      .document_mask = c.training.document_mask};
  job.one_rank.recipe.grad = base::dtype_from_name(c.training.grad_dtype);
  const int shards = static_cast<int>(c.parallelism.data_parallel_shard_degree);
  job.split = {.dp = static_cast<int>(c.parallelism.data_parallel_replicate_degree),
               .zero = shards,
               .tp = static_cast<int>(c.parallelism.tensor_parallel_degree),
               .residency = {shards > 1, shards > 1, shards > 1}};
  job.engine = make_engine_options(c);
  job.system = c.system;
  return job;
}

}  // namespace trireme::train
