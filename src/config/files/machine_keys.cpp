// SPDX-License-Identifier: Apache-2.0
#include "config/files/machine_keys.h"

#include "config/files/sourced_file.h"
#include "config/key_list.h"

namespace trireme::config {
namespace {

constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;

// Fields that have another unit in the file, and the size of that unit.
struct Unit {
  double* field;
  double size;
};
std::vector<Unit> units_of(spec::Machine& m) {
  spec::Processor& p = m.processor;
  return {{&p.memory_bytes, giga},
          {&p.reserved_bytes, giga},
          {&p.fp32_flops, tera},
          {&p.bf16_flops, tera},
          {&p.fp8_flops, tera},
          {&p.fp4_flops, tera},
          {&p.bytes_per_second, giga},
          {&p.host_bytes_per_second, giga},
          {&p.launch_seconds, micro},
          {&m.domain.link.bytes_per_second, giga},
          {&m.domain.link.latency, micro},
          {&m.network.link.bytes_per_second, giga},
          {&m.network.link.latency, micro}};
}

void list_processor(spec::Processor& p, KeyList& k) {
  const Range positive{.low = 0, .high = 1e9, .low_excluded = true};
  const Range or_zero{.low = 0, .high = 1e9};
  const Range share{.low = 0, .high = 1, .low_excluded = true};
  k.section("processor");
  k.text("name", p.name, "name of the GPU or CPU, as its vendor writes it");
  k.number("memory_gigabytes", p.memory_bytes, positive, "memory available to a program");
  k.require();
  k.number("reserved_gigabytes", p.reserved_bytes, or_zero,
           "the part of it that libraries use: context, kernels, buffers of collectives");
  k.number("fp32_tflops", p.fp32_flops, or_zero, "dense peak; 0: not supported");
  k.require();
  k.number("bf16_tflops", p.bf16_flops, or_zero, "dense peak; 0: not supported");
  k.require();
  k.number("fp8_tflops", p.fp8_flops, or_zero, "dense peak; 0: not supported");
  k.number("fp4_tflops", p.fp4_flops, or_zero, "dense peak; 0: not supported");
  k.number("gigabytes_per_second", p.bytes_per_second, positive, "bandwidth of its memory");
  k.require();
  k.number("host_gigabytes_per_second", p.host_bytes_per_second, or_zero,
           "bandwidth to host memory, each way; 0: it is the host");
  k.number("units", p.units, {.low = 1, .high = 1e6},
           "multiprocessors or cores, over which tiles of a product are spread");
  k.require();
  k.number("gemm_reach", p.gemm_reach, share,
           "fraction of the peak that large matrix products reach");
  k.require();
  k.number("fp8_reach", p.fp8_reach, share, "the same for the fp8 peak");
  k.number("fp8_fast", p.fp8_fast, positive,
           "rate of fp8 products with fast sums, relative to fp8_reach");
  k.number("fp8_split", p.fp8_split, positive, "the same with sums that are split along k");
  k.number("fp8_block", p.fp8_block, positive,
           "the same with scales of 128 values of a row and of 128 x 128 of a weight");
  k.number("fp8_rows", p.fp8_rows, positive, "the same with scales of 128 values on both sides");
  k.number("fp4_reach", p.fp4_reach, share, "the same for the fp4 peak");
  k.number("gemm_ramp", p.gemm_ramp, {.low = 0, .high = 1e6},
           "steps of k that take as long as the start and end of a tile");
  k.require();
  k.number("accumulate_factor", p.accumulate_factor, {.low = 0.5, .high = 10},
           "time of a product that adds to its output, relative to one that does not");
  k.number("attention_forward", p.attention_forward, share,
           "fraction of the bf16 peak (of fp32 without bf16) that attention reaches with long "
           "sequences and heads of 128");
  k.require();
  k.number("attention_backward", p.attention_backward, share, "the same for the backward pass");
  k.require();
  k.number("attention_ramp", p.attention_ramp, {.low = 0, .high = 1e6},
           "sequence length at which attention reaches half of that");
  k.require();
  k.number("attention_head", p.attention_head, {.low = 0, .high = 4},
           "a head of size d below 128 reaches (d / 128) to this power of it");
  k.require();
  k.number("flash2_factor", p.flash2_factor, {.low = 0.5, .high = 10},
           "time of FlashAttention-2, which other programs use, relative to that");
  k.number(
      "attention_fixed_order", p.attention_fixed_order, {.low = 0, .high = 10},
      "additional time of a deterministic backward pass (system.determinism = l1), relative to "
      "writing the bf16 gradients of all scores once");
  k.boolean("hopper_attention", p.hopper_attention,
            "Trireme's attention backward for Hopper GPUs runs here: attention_fixed_order applies "
            "only to heads above 64 in sequences of more than 4,096 tokens");
  k.number("memory_reach", p.memory_reach, share,
           "fraction of gigabytes_per_second that memory-bound operations reach");
  k.require();
  k.number("launch_microseconds", p.launch_seconds, or_zero, "minimum time of a kernel");
  k.require();
}

void list_links(spec::Machine& m, KeyList& k) {
  const Range positive{.low = 0, .high = 1e6, .low_excluded = true};
  const Range or_zero{.low = 0, .high = 1e6};
  const Range share{.low = 0, .high = 1, .low_excluded = true};
  spec::Domain& d = m.domain;
  k.section("domain");
  k.number("size", d.size, {.low = 1, .high = 1 << 20},
           "GPUs that are connected by fast links (NVLink)");
  k.require();
  k.number("link_gigabytes_per_second", d.link.bytes_per_second, positive,
           "bandwidth of one GPU, each way");
  k.number("latency_microseconds", d.link.latency, or_zero, "time of one step of a collective");
  k.number("reach", d.reach, share, "fraction of the link that large collectives reach");
  k.boolean("in_switch_reduction", d.in_switch_reduction, "the switch computes sums");
  spec::Network& n = m.network;
  k.section("network");
  k.number("link_gigabytes_per_second", n.link.bytes_per_second, positive,
           "bandwidth of one GPU, each way: its share of the node's adapters");
  k.number("latency_microseconds", n.link.latency, or_zero, "time of one step of a collective");
  k.number("reach", n.reach, share, "fraction of the link that large collectives reach");
  k.number("oversubscription", n.oversubscription, {.low = 1, .high = 1000},
           "oversubscription of links above the first switch; 1: none");
  k.number("nodes_below_switch", n.nodes_below_switch, {.low = 0, .high = 1e6},
           "domains that share a first switch; 0: all");
  k.boolean("in_network_reduction", n.in_network_reduction, "the switches compute sums");
}

std::vector<Key> list(spec::Machine& m, int64_t& format) {
  const Range share{.low = 0, .high = 1};
  KeyList k;
  k.number("format", format, {.low = machine_format, .high = machine_format},
           "version of the file format; other versions are refused");
  k.require();
  k.text("name", m.name, "name of the machine; empty: the name of the file");
  k.text("source", m.source, "source of every number that has none in [sources]");
  k.number("step_factor", m.step_factor, {.low = 0.5, .high = 5},
           "time of a step's operations, relative to the sum of their times when run alone");
  k.number("jitter", m.jitter, share, "relative deviation of a rank's time from step to step");
  k.number("price_per_hour", m.price_per_hour, {.low = 0, .high = 1e6},
           "price of one GPU, in dollars, for trireme plan --tokens; 0: unknown");
  k.number("time_error", m.time_error, share,
           "relative error of predicted step times, from runs; 0: not compared");
  k.number("memory_error", m.memory_error, share, "the same for memory");
  list_processor(m.processor, k);
  list_links(m, k);
  const Range error{.low = 0, .high = 10};
  k.section("residuals");
  k.number("gemm", m.residuals.gemm, error,
           "mean absolute relative error of the fit to matrix products");
  k.number("attention", m.residuals.attention, error, "the same for attention");
  k.number("streaming", m.residuals.streaming, error, "the same for memory-bound operations");
  k.number("collective", m.residuals.collective, error, "the same for collectives");
  k.number("step", m.residuals.step, error, "the same for whole steps");
  return k.take();
}

}  // namespace

MachineKeys::MachineKeys(const spec::Machine& machine) : machine_(machine) {
  for (const Unit& unit : units_of(machine_)) *unit.field /= unit.size;
  keys_ = list(machine_, format_);
  add_sources(keys_, machine_.sources);
}

spec::Machine MachineKeys::machine() const {
  spec::Machine result = machine_;
  for (const Unit& unit : units_of(result)) *unit.field *= unit.size;
  std::erase_if(result.sources, [](const auto& one) { return one.second.empty(); });
  return result;
}

}  // namespace trireme::config
