// SPDX-License-Identifier: Apache-2.0
#include "plan/stack.h"

#include <algorithm>

namespace trireme::plan {
namespace {

std::vector<Stack> make_stacks() {
  std::vector<Stack> all;
  // On one GPU measured; what overlaps on several is assumed to be as in FSDP.
  Stack trireme{.name = "trireme", .what = "this program"};
  trireme.dp_overlap = 0.9;
  trireme.contention = 0.294;
  trireme.jitter = 0.005;
  trireme.zero3_overlap = 0.9;
  trireme.pp_overlap = 1;
  trireme.cp_overlap = 0.9;
  trireme.reduces_each = true;
  all.push_back(trireme);

  Stack megatron2021{.name = "megatron-2021",
                     .what =
                         "Megatron-LM of 2021 and 2022, Megatron-DeepSpeed: fp16, scores in "
                         "memory, kernels one by one"};
  megatron2021.flash = false;
  megatron2021.streaming = 2.05;
  megatron2021.head_streaming = 1.19;
  megatron2021.host_seconds = 4.56e-05;
  megatron2021.kernels = 2.5;
  megatron2021.full_recompute_is_whole = true;
  megatron2021.selective_is_attention = true;
  megatron2021.even_cut = true;
  megatron2021.grad_bytes = 2;
  megatron2021.reduce_bytes = 2;
  megatron2021.optimizer = 0.8;
  megatron2021.step_seconds = 0.00875;
  megatron2021.gemm = 1.03;
  megatron2021.jitter = 0.0131;
  all.push_back(megatron2021);

  Stack megatron2022 = megatron2021;
  megatron2022.name = "megatron-2022";
  megatron2022.what = "Megatron-LM of 2022, with sequence parallelism and selective recompute";
  megatron2022.gemm = 1.02;
  megatron2022.streaming = 1;
  all.push_back(megatron2022);

  Stack deepspeed = megatron2021;
  deepspeed.name = "deepspeed-2021";
  deepspeed.what = "DeepSpeed ZeRO-3 of 2021 without model parallelism";
  deepspeed.data_rate = 0.176;
  deepspeed.reduces_each = true;
  all.push_back(deepspeed);

  Stack fsdp{.name = "fsdp",
             .what = "PyTorch FSDP with flash attention, eager (llm-foundry, TorchTitan)"};
  fsdp.streaming = 5;
  fsdp.head_streaming = 3.94;
  fsdp.host_seconds = 6e-6;
  fsdp.kernels = 2.5;
  fsdp.full_recompute_is_whole = true;
  fsdp.reduces_each = true;
  fsdp.dp_overlap = 0.9;
  fsdp.zero3_overlap = 0.9;
  fsdp.contention = 0.294;
  fsdp.optimizer = 4.63;
  fsdp.flash2 = true;
  fsdp.gemm = 1.1;
  fsdp.step_seconds = 0.0425;
  fsdp.jitter = 0;
  fsdp.attention = 1.76;
  all.push_back(fsdp);

  Stack megatron{.name = "megatron-core",
                 .what = "Megatron-Core with Transformer Engine (NeMo, Megatron-Bridge)"};
  megatron.streaming = 2.77;
  megatron.head_streaming = 6;
  megatron.full_recompute_is_whole = true;
  megatron.selective_is_attention = true;
  megatron.even_cut = true;
  megatron.reduces_each = false;
  megatron.dp_overlap = 0.9;
  megatron.zero3_overlap = 0.9;
  megatron.pp_overlap = 0.8;
  megatron.tp_overlap = 0.8;
  megatron.cp_overlap = 0.9;
  megatron.optimizer = 0.8;
  megatron.gemm = 1.12;
  megatron.step_seconds = 0.0988;
  megatron.jitter = 0;
  megatron.ep_overlap = 0;
  all.push_back(megatron);

  Stack llmc{.name = "llm.c", .what = "llm.c: bf16 weights and gradients, CUDA kernels of its own"};
  llmc.grad_bytes = 2;
  llmc.reduce_bytes = 2;
  llmc.streaming = 1.2;
  all.push_back(llmc);
  return all;
}

}  // namespace

const std::vector<Stack>& stacks() {
  static const std::vector<Stack> all = make_stacks();
  return all;
}

void keep_grads(Stack& stack, base::DType grad, base::DType reduce) {
  stack.grad_bytes = static_cast<double>(base::size_of(grad));
  stack.reduce_bytes = std::min(stack.grad_bytes, static_cast<double>(base::size_of(reduce)));
}

void keep_master(Stack& stack, base::DType master) {
  constexpr double moments = 2 * 4;
  stack.optimizer_bytes = moments + static_cast<double>(base::size_of(master));
}

base::DType master_of(const Stack& stack, Precision precision) {
  const bool has_halves = stack.optimizer_bytes < trireme_stack().optimizer_bytes;
  return stack.is_engine() && has_halves && precision != Precision::fp32 ? base::DType::u16
                                                                         : base::DType::f32;
}

spec::Recipe recipe_of(const Stack& stack, Precision precision) {
  spec::Recipe recipe = spec::recipe_from_name(precision == Precision::fp32 ? "fp32" : "bf16");
  const bool may_be_half = stack.is_engine() || precision != Precision::fp32;
  if (stack.grad_bytes < 4 && may_be_half) recipe.grad = base::DType::bf16;
  return recipe;
}

const Stack& trireme_stack() { return stacks().front(); }

const Stack* find_stack(std::string_view name) {
  const auto found = std::find_if(stacks().begin(), stacks().end(),
                                  [name](const Stack& stack) { return stack.name == name; });
  return found == stacks().end() ? nullptr : &*found;
}

}  // namespace trireme::plan
