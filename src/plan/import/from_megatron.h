// SPDX-License-Identifier: Apache-2.0
// Reads a run of Megatron-LM from its command line or script. These flags are read:
//   model       --num-layers* --hidden-size* --num-attention-heads* --seq-length* --ffn-hidden-size
//               --group-query-attention --num-query-groups --kv-channels --max-position-embeddings
//               --vocab-size --padded-vocab-size --make-vocab-size-divisible-by --tokenizer-type
//               --swiglu --squared-relu --untie-embeddings-and-output-weights --normalization
//               --norm-epsilon --disable-bias-linear --add-qkv-bias --qk-layernorm
//               --position-embedding-type --use-rotary-position-embeddings --no-position-embedding
//               --rotary-base --use-rope-scaling --rope-scaling-factor
//   experts     --num-experts --moe-router-topk --moe-ffn-hidden-size --moe-layer-freq
//               --moe-shared-expert-intermediate-size --expert-tensor-parallel-size
//               --moe-router-num-groups --moe-router-group-topk --moe-token-dispatcher-type
//   layout      --tensor-model-parallel-size --pipeline-model-parallel-size
//               --num-layers-per-virtual-pipeline-stage --num-virtual-stages-per-pipeline-rank
//               --pipeline-model-parallel-layout --decoder-first-pipeline-num-layers
//               --decoder-last-pipeline-num-layers --account-for-embedding-in-pipeline-split
//               --account-for-loss-in-pipeline-split --context-parallel-size
//               --cp-comm-type --hierarchical-context-parallel-sizes
//               --expert-model-parallel-size --sequence-parallel
//               --use-tp-pp-dp-mapping --use-distributed-optimizer --use-torch-fsdp2
//               --use-custom-fsdp --use-megatron-fsdp --data-parallel-sharding-strategy
//   batch       --micro-batch-size* --global-batch-size --rampup-batch-size
//   memory      --recompute-granularity --recompute-activations --recompute-method
//               --recompute-num-layers --recompute-modules --checkpoint-activations
//               --activations-checkpoint-method
//   numbers     --bf16 --fp16 --fp8-format --fp8-hybrid --fp8-e4m3 --fp4-format
//               --grad-reduce-in-bf16
//   overlap     --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
//               --overlap-moe-expert-parallel-comm
//   kernels     --transformer-impl --use-legacy-models --use-flash-attn --attention-backend
//               --DDP-impl
//   others      --optimizer --hidden-dropout --attention-dropout
//   GPUs        --nnodes --nproc-per-node --world-size of torchrun
// Flags with a star are required. Flags for learning rate, data, logs and checkpoints do not
// matter; Described::ignored lists every other flag.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/import/described.h"

namespace trireme::plan {

// `text` has flags, or is a script with flags (plan/import/command_words.h). `gpus` overrides the
// number in the text; 0: unknown. Throws ConfigError that names every flag that is missing,
// malformed, contradicts another or makes a model that is not modelled.
Described from_megatron(std::string_view text, int64_t gpus, const FindStack&);

}  // namespace trireme::plan
