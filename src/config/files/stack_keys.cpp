// SPDX-License-Identifier: Apache-2.0
#include "config/files/stack_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "config/files/machine_keys.h"
#include "config/files/sourced_file.h"
#include "config/key_list.h"

namespace trireme::config {
namespace {

constexpr double micro_second = 1e-6, gigabyte = 1e9;

constexpr std::array<std::string_view, static_cast<size_t>(spec::SelectiveRecompute::count)>
    selective_names = {"engine", "attention", "activation", "products"};

void list_compute(spec::Stack& s, KeyList& k) {
  const Range factor{.low = 0.1, .high = 100};
  const Range bytes{.low = 0, .high = 1000};
  k.section("compute");
  k.boolean("flash", s.flash, "attention stores no matrix of scores in memory");
  k.boolean("flash2", s.flash2, "attention is FlashAttention-2, not the vendor's kernels");
  k.number("score_bytes_forward", s.score_bytes_forward, bytes,
           "without flash: bytes moved per score in the forward pass");
  k.number("score_bytes_backward", s.score_bytes_backward, bytes, "the same for the backward pass");
  k.number("gemm", s.gemm, factor, "time of matrix products, relative to the machine's");
  k.number("attention", s.attention, factor, "time of flash attention, relative to the machine's");
  k.number("streaming", s.streaming, factor,
           "bytes that memory-bound operations move, relative to Trireme's");
  k.number("head_streaming", s.head_streaming, factor, "the same for embedding, head and loss");
  k.number("host_microseconds", s.host_seconds, {.low = 0, .high = 1e6},
           "host time to launch one kernel; 0: CUDA graphs");
  k.number("kernels", s.kernels, factor, "number of kernels, relative to Trireme's");
}

void list_policies(spec::Stack& s, std::string& selective, KeyList& k) {
  const Range bytes{.low = 1, .high = 8};
  k.section("policies");
  k.boolean("full_recompute_is_whole", s.full_recompute_is_whole,
            "full recompute repeats the whole forward pass with its collectives");
  k.choice("selective", selective, {selective_names.begin(), selective_names.end()},
           "what selective recompute repeats: the core of attention, the activation function, "
           "everything except attention and every second matrix product, or as Trireme's engine");
  k.boolean("even_cut", s.even_cut, "pipeline stages have equal numbers of blocks");
  k.number("grad_bytes", s.grad_bytes, bytes, "bytes of a stored gradient element");
  k.number("reduce_bytes", s.reduce_bytes, bytes, "bytes of a gradient element in sums over dp");
  k.number("gather_bytes", s.gather_bytes, bytes, "bytes of a parameter that is gathered over dp");
  k.number("weight_bytes", s.weight_bytes, {.low = 0, .high = 8},
           "bytes of a weight element; 0: weights are cast from their masters when they are used");
  k.number("optimizer_bytes", s.optimizer_bytes, {.low = 0, .high = 64},
           "bytes stored per parameter beside weight and gradient");
  k.boolean("reduces_each", s.reduces_each,
            "sharded gradients are summed over dp after each micro-batch");
  k.boolean("two_level_dispatch", s.two_level_dispatch,
            "rows for experts cross the network once for each node that has experts of the token, "
            "and are copied inside the node; otherwise once for each expert");
}

void list_overlap(spec::Stack& s, KeyList& k) {
  const Range share{.low = 0, .high = 1};
  k.section("overlap");
  k.number("tp", s.tp_overlap, share, "part of the tp collectives that is hidden");
  k.number("dp", s.dp_overlap, share, "part of the sums over dp that can be hidden");
  k.number("pp", s.pp_overlap, share, "part of the messages between stages that is hidden");
  k.number("cp", s.cp_overlap, share, "part of attention that cp transfers can hide under");
  k.number("ep", s.ep_overlap, share, "part of the expert exchanges that is hidden");
  k.number("zero3", s.zero3_overlap, share, "part of the transfers of ZeRO-3 that can be hidden");
  k.number("data_rate", s.data_rate, {.low = 0, .high = 1, .low_excluded = true},
           "rate of collectives over dp, relative to the machine's links");
  k.number("contention", s.contention, share,
           "fraction of a hidden transfer's time that it adds to the compute that hides it");
}

void list_memory(spec::ProgramMemory& m, KeyList& k) {
  const Range bytes{.low = 0, .high = 1000};
  k.section("memory");
  k.number("norm_bytes", m.norm_bytes, bytes,
           "bytes stored per element of a norm: input, output and copies in fp32");
  k.number("mask_bytes", m.mask_bytes, bytes,
           "bytes stored per element of a dropout mask, two per block");
  k.number("gated_bytes", m.gated_bytes, bytes,
           "bytes stored per element of the width of a gated feed-forward");
  k.number("plain_bytes", m.plain_bytes, bytes, "the same for one without gate");
  k.number("score_bytes", m.score_bytes, bytes, "bytes stored per attention score, without flash");
  k.boolean("expands_kv", m.expands_kv, "keys and values are stored once for every query head");
  k.boolean("keeps_gathered", m.keeps_gathered,
            "with sequence parallelism, inputs of matrix products are stored gathered");
  k.number("logit_bytes", m.logit_bytes, bytes, "bytes per logit, at the peak of the loss");
  k.number("gathered_blocks", m.gathered_blocks, {.low = 0, .high = 1000},
           "ZeRO-3: blocks whose gathered parameters exist beside those of the largest layer");
  k.number("reduced_layers", m.reduced_layers, {.low = 0, .high = 1000},
           "ZeRO-2 and 3: layers whose unsharded gradients exist in the type of the reduction");
  k.number("fragmentation", m.fragmentation, {.low = 1, .high = 10},
           "memory that the allocator reserves, relative to the memory in use");
  k.boolean("keeps_pools", m.keeps_pools,
            "the allocator does not reuse memory of the loss in blocks, nor the reverse");
  k.number("extra_gigabytes", m.extra_bytes, {.low = 0, .high = 1000},
           "buffers of communication libraries");
}

std::vector<Key> list(spec::Stack& s, int64_t& format, std::string& selective) {
  KeyList k;
  k.number("format", format, {.low = stack_format, .high = stack_format},
           "version of the file format; other versions are refused");
  k.require();
  k.text("name", s.name, "name of the stack; empty: the name of the file");
  k.text("what", s.what, "one line: the programs that it describes");
  k.require();
  k.text("source", s.source, "source of every number that has none in [sources]");
  k.boolean("engine", s.engine,
            "memory is laid out as in Trireme's engine; [memory] is then not allowed");
  list_compute(s, k);
  list_policies(s, selective, k);
  list_overlap(s, k);
  k.section("step");
  k.number("optimizer", s.optimizer, {.low = 0.1, .high = 100},
           "time of the update, relative to Trireme's");
  k.number("seconds", s.step_seconds, {.low = 0, .high = 1000},
           "additional time of every step: data, logs");
  k.number("jitter", s.jitter, {.low = 0, .high = 1},
           "j: the slowest of n ranks takes 1 + j sqrt(2 ln n)");
  list_memory(s.memory, k);
  return k.take();
}

}  // namespace

StackKeys::StackKeys(const spec::Stack& stack)
    : stack_(stack), selective_(selective_names[static_cast<size_t>(stack.selective)]) {
  stack_.host_seconds /= micro_second;
  stack_.memory.extra_bytes /= gigabyte;
  keys_ = list(stack_, format_, selective_);
  add_sources(keys_, stack_.sources);
}

spec::Stack StackKeys::stack() const {
  spec::Stack result = stack_;
  result.host_seconds *= micro_second;
  result.memory.extra_bytes *= gigabyte;
  const auto* found = std::ranges::find(selective_names, selective_);
  TRIREME_CHECK(found != selective_names.end(), "selective = {}", selective_);
  result.selective = static_cast<spec::SelectiveRecompute>(found - selective_names.begin());
  std::erase_if(result.sources, [](const auto& one) { return one.second.empty(); });
  return result;
}

}  // namespace trireme::config
