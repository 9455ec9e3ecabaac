// SPDX-License-Identifier: Apache-2.0
// Machine: what a cluster's parts can do, as numbers that the planner prices plans with. A machine
// is a file (machines/*.toml, read by config/files/machine_file.h) in which every number names its
// source.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace trireme::spec {

// One GPU, or the cores of one CPU rank.
struct Processor {
  std::string name;
  double memory_bytes = 0;    // that a program can have
  double reserved_bytes = 0;  // of them, what libraries take: context, kernels, buffers

  // Dense peaks, as the vendor states them. 0: it has no such units.
  double fp32_flops = 0, bf16_flops = 0, fp8_flops = 0, fp4_flops = 0;
  double bytes_per_second = 0;       // of its memory
  double host_bytes_per_second = 0;  // to host memory, each way
  int64_t units = 1;                 // multiprocessors, over which tiles of a product are spread

  // Matrix products: what of the peak is reached where nothing else limits (power does), and by
  // how many steps of k a tile's start and end cost as much as computing.
  double gemm_reach = 0.7, fp8_reach = 0.6, fp4_reach = 0.5;
  double gemm_ramp = 100;
  double accumulate_factor = 1;  // time of a product that adds to what is there

  // Attention (flash): of the bf16 peak at head size 128 and long sequences; a sequence of
  // attention_ramp tokens reaches half of it; a head of size d reaches (d / 128)^attention_head.
  double attention_forward = 0.5, attention_backward = 0.4;
  double attention_ramp = 400, attention_head = 0.3;
  double flash2_factor = 1;  // time of FlashAttention-2 over that
  // A backward whose sums have a fixed order writes the gradients of all scores and reads them
  // back: of the time that one way takes, what the pass takes longer.
  double attention_fixed_order = 0.7;

  // What only moves bytes: of bytes_per_second, and the least that a kernel takes.
  double memory_reach = 0.85;
  double launch_seconds = 3e-6;
};

struct LinkRate {
  double bytes_per_second = 0;  // of one processor, each way
  double latency = 0;           // seconds, of one step of a collective
};

// Processors that reach each other over fast links.
struct Domain {
  int64_t size = 8;
  LinkRate link;
  double reach = 0.8;                // of the link, by large collectives
  bool in_switch_reduction = false;  // sums are made in the switch: half the traffic of a ring
};

// Between domains.
struct Network {
  LinkRate link;  // of one processor: its share of the node's adapters; 0: there is one domain
  double reach = 0.8;
  double oversubscription = 1;     // of links above the first switch; 1: none
  int64_t nodes_below_switch = 0;  // that reach each other without them; 0: all
  bool in_network_reduction = false;
};

// Mean absolute relative error of the times that constants were fitted to, by kind. 0: not fitted.
struct Residuals {
  double gemm = 0, attention = 0, streaming = 0, collective = 0;
  double step = 0;  // of whole steps
};

struct Machine {
  std::string name;
  std::string source;  // of numbers that have none of their own
  Processor processor;
  Domain domain;
  Network network;
  // Time of a whole step's operations over that of each by itself.
  double step_factor = 1;
  double jitter = 0;          // relative deviation of a rank's time from step to step
  double price_per_hour = 0;  // of one GPU, in dollars; 0: not known
  // Relative error of predictions that were compared with runs on this machine; 0: none was.
  double time_error = 0, memory_error = 0;
  Residuals residuals;
  std::map<std::string, std::string> sources;  // by key, as "processor.bf16_tflops"
};

}  // namespace trireme::spec
