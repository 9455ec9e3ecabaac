// SPDX-License-Identifier: Apache-2.0
// Machine: the performance of a cluster's parts, as numbers from which the planner prices plans. A
// machine is a file (machines/*.toml, read by config/files/machine_file.h) in which every number
// names its source.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trireme::spec {

// One GPU, or the cores of one CPU rank.
struct Processor {
  std::string name;
  double memory_bytes = 0;    // available to a program
  double reserved_bytes = 0;  // the part of it that libraries use: context, kernels, buffers

  // Dense peaks, as the vendor states them. 0: not supported.
  double fp32_flops = 0, bf16_flops = 0, fp8_flops = 0, fp4_flops = 0;
  double bytes_per_second = 0;       // of its memory
  double host_bytes_per_second = 0;  // to host memory, each way
  int64_t units = 1;                 // multiprocessors, over which tiles of a product are spread

  // Matrix products: the fraction of the peak that large products reach (power limits it), and the
  // steps of k that take as long as the start and the end of a tile.
  double gemm_reach = 0.7, fp8_reach = 0.6, fp4_reach = 0.5;
  // Products in 8 bits relative to fp8_reach, which is that of programs as a whole: with fast sums,
  // with sums that are split along k, with scales of 128 values of a row and 128 x 128 of a weight,
  // and with scales of rows on both sides. The defaults are those of an H200.
  double fp8_fast = 1.06, fp8_split = 0.95, fp8_block = 0.86, fp8_rows = 0.67;
  double gemm_ramp = 100;
  double accumulate_factor = 1;  // relative time of a product that adds to its output

  // Attention (flash): the fraction of the bf16 peak at head size 128 and long sequences; a
  // sequence of attention_ramp tokens reaches half of it; a head of size d reaches
  // (d / 128)^attention_head of it.
  double attention_forward = 0.5, attention_backward = 0.4;
  double attention_ramp = 400, attention_head = 0.3;
  double flash2_factor = 1;  // relative time of FlashAttention-2
  // The additional time of a deterministic backward, as a fraction of the time to move the
  // gradients of all scores once: cuDNN's writes them and reads them back.
  double attention_fixed_order = 0.7;
  // Trireme's backward for Hopper GPUs runs here: where it is the fastest (spec/facts/backend.h), a
  // fixed order takes no additional time.
  bool hopper_attention = false;

  // Memory-bound operations: the fraction of bytes_per_second that they reach, and the minimum time
  // of a kernel.
  double memory_reach = 0.85;
  double launch_seconds = 3e-6;
};

struct LinkRate {
  double bytes_per_second = 0;  // of one GPU, each way
  double latency = 0;           // seconds, of one step of a collective
};

// GPUs that are connected by fast links (NVLink).
struct Domain {
  int64_t size = 8;
  LinkRate link;
  double reach = 0.8;                // the fraction of the link that large collectives reach
  bool in_switch_reduction = false;  // the switch computes sums: half the traffic of a ring
};

// The network between domains.
struct Network {
  LinkRate link;  // of one GPU: its share of the node's adapters; 0: there is one domain
  double reach = 0.8;
  double oversubscription = 1;     // of links above the first switch; 1: none
  int64_t nodes_below_switch = 0;  // nodes that share a first switch; 0: all
  bool in_network_reduction = false;
};

// Mean absolute relative errors of the fit of the constants, by kind of operation. 0: not fitted.
struct Residuals {
  double gemm = 0, attention = 0, streaming = 0, collective = 0;
  double step = 0;  // of whole steps
};

struct Machine {
  std::string name;
  std::string source;  // of numbers without an entry in `sources`
  Processor processor;
  Domain domain;
  Network network;
  // Time of a step's operations, relative to the sum of their times when run alone.
  double step_factor = 1;
  double jitter = 0;          // relative deviation of a rank's time from step to step
  double price_per_hour = 0;  // of one GPU, in dollars; 0: unknown
  // Relative error of predictions that were compared with runs on this machine; 0: not compared.
  double time_error = 0, memory_error = 0;
  Residuals residuals;
  std::map<std::string, std::string> sources;  // by key, as "processor.bf16_tflops"
};

}  // namespace trireme::spec
