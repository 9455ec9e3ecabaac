// SPDX-License-Identifier: Apache-2.0
// Stack: the properties of a training program that change the time or memory of a plan: which
// operations it fuses, what it overlaps, how fast its host is, which activations it keeps. A stack
// is a file (stacks/*.toml, read by config/files/stack_file.h) in which every number names its
// source.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trireme::spec {

// What selective recompute recomputes in the backward pass.
enum class SelectiveRecompute : uint8_t {
  engine,      // the slots that src/spec marks as recomputable
  attention,   // the core of attention: scores, softmax and their product with the values
  activation,  // the output of the activation function
  products,    // everything except attention and every second matrix product
  count
};

// The memory of a program other than this engine (plan/memory/program_memory.h). Bytes are per
// element, and count every copy that is alive until the backward pass.
struct ProgramMemory {
  double norm_bytes = 4;        // of a norm: its input, its output, and copies in fp32
  double mask_bytes = 0;        // of a dropout mask after attention and after the feed-forward
  double gated_bytes = 6;       // of the width of a gated feed-forward: gate, value, their product
  double plain_bytes = 4;       // of one without gate: input and output of its activation
  double score_bytes = 5;       // of an attention score, if attention is not flash
  bool expands_kv = false;      // keys and values are kept once for every query head
  bool keeps_gathered = false;  // sequence parallelism: inputs of products are kept gathered
  double logit_bytes = 12;      // of a logit, at the peak of the loss
  // ZeRO-3: blocks whose gathered parameters exist beside those of the largest layer, and layers
  // whose unsharded gradients wait for their reduction, in its type.
  double gathered_blocks = 2, reduced_layers = 1;
  double fragmentation = 1;  // bytes that the allocator reserves, relative to those in use
  bool keeps_pools = false;  // memory of the loss is not reused in blocks, and the reverse
  double extra_bytes = 0;    // buffers of communication libraries
  bool operator==(const ProgramMemory&) const = default;
};

struct Stack {
  std::string name;
  std::string what;     // one line: the programs that it describes
  std::string source;   // of numbers without an entry in `sources`
  bool engine = false;  // memory and layers are those of Trireme's engine (src/spec)

  // ---- compute
  bool flash = true;    // attention without its matrix of scores in memory
  bool flash2 = false;  // FlashAttention-2, not the vendor's kernels
  // Without flash: bytes moved per score, forward and backward.
  double score_bytes_forward = 11, score_bytes_backward = 19;
  double streaming = 1;       // bytes moved by memory-bound operations, relative to the engine's
  double gemm = 1;            // time of matrix products, relative to the machine's
  double attention = 1;       // time of flash attention, relative to the machine's
  double head_streaming = 1;  // as streaming, for head and loss
  // Host time to launch one kernel (0: CUDA graphs), and number of kernels relative to the
  // engine's.
  double host_seconds = 0;
  double kernels = 1;

  // ---- policies
  bool full_recompute_is_whole =
      false;  // full recompute repeats the whole forward with its collectives
  SelectiveRecompute selective = SelectiveRecompute::engine;
  bool even_cut = false;                    // stages have equal numbers of blocks
  double grad_bytes = 4, reduce_bytes = 4;  // of an element: stored, and summed over dp
  double gather_bytes = 2;                  // of an element, when parameters are gathered
  double weight_bytes = 2;                  // of an element; 0: weights are cast from their masters
  bool reduces_each = false;                // sharded gradients are summed after each micro-batch
  // Rows for experts cross the network once for each node that has experts of the token, and are
  // copied inside the node. False: once for each expert.
  bool two_level_dispatch = false;

  // ---- overlap: the part of a transfer that can be hidden under enough compute
  double tp_overlap = 0, dp_overlap = 0, pp_overlap = 0, cp_overlap = 0, ep_overlap = 0;
  double zero3_overlap = 0;
  double data_rate = 1;  // of collectives of dp, relative to the machine's links
  // Compute that overlaps a transfer takes longer by this part of the transfer's time.
  double contention = 0;

  // ---- the rest of a step
  double optimizer = 1;         // time of the update, relative to the engine's
  double optimizer_bytes = 12;  // stored per parameter beside weight and gradient
  double step_seconds = 0;      // of every step: data, logs
  double jitter = 0;            // slowdown on n ranks: 1 + jitter * sqrt(2 ln n)

  ProgramMemory memory;
  std::map<std::string, std::string> sources;  // by key, as "compute.gemm"
  bool operator==(const Stack&) const = default;

  bool is_engine() const { return engine; }
};

}  // namespace trireme::spec
