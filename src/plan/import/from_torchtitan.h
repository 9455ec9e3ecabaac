// SPDX-License-Identifier: Apache-2.0
// Reads a run of TorchTitan from its TOML file. These keys are read:
//   model                  name (llama3), flavor (debugmodel, 8B, 70B, 405B), converters
//   training               local_batch_size (older: batch_size), global_batch_size, seq_len,
//                          mixed_precision_param, dtype, enable_cpu_offload, compile
//   parallelism            data_parallel_replicate_degree, data_parallel_shard_degree,
//                          fsdp_reshard_after_forward, tensor_parallel_degree,
//                          enable_async_tensor_parallel, context_parallel_degree,
//                          context_parallel_rotate_method, context_parallel_load_balancer,
//                          expert_parallel_degree, pipeline_parallel_degree,
//                          pipeline_parallel_schedule, pipeline_parallel_layers_per_stage,
//                          pipeline_parallel_microbatch_size
//   activation_checkpoint  mode, selective_ac_option
//   optimizer              name, early_step_in_backward
//   compile                enable
//   float8                 enable_float8_linear (older), enable_fsdp_float8_all_gather
// Older files have degrees in [training] and [experimental]; they are read there, too. Absent keys
// have TorchTitan's defaults. Sections for logs, checkpoints, learning rate and validation do not
// matter; Described::ignored lists every other key.
#pragma once

#include <cstdint>
#include <string>

#include "plan/import/described.h"

namespace trireme::plan {

// `file` is the text's name in messages. `gpus` is torchrun's number of processes; if it is 0
// (unknown), the file must have data_parallel_shard_degree. Throws ConfigError that names every key
// that is wrong or contradicts another, or the model if its sizes are unknown.
Described from_torchtitan(const std::string& text, const std::string& file, int64_t gpus,
                          const FindStack&);

}  // namespace trireme::plan
