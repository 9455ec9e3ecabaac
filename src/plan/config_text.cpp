// SPDX-License-Identifier: Apache-2.0
#include "plan/config_text.h"

#include <fmt/format.h>

#include <sstream>

namespace trireme::plan {
namespace {

// As TOML has it between quotes.
std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string config_text(const Job& job, const Layout& l, const ConfigChoice& choice) {
  std::string text;
  std::istringstream lines(choice.comment);
  for (std::string line; std::getline(lines, line);) text += fmt::format("# {}\n", line);
  text += fmt::format("[model]\nname = \"{}\"\n\n", quoted(choice.model));
  text += fmt::format(
      "[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\ndtype = \"{}\"\n{}"
      "dataset_path = \"\"  # to be filled in, or given as --training.dataset_path=PATH\n\n",
      l.micro_batch, job.global_batch, job.seq_len,
      l.precision == Precision::fp32 ? "fp32" : "bf16",
      choice.bf16_grads ? "grad_dtype = \"bf16\"\n" : "");
  if (choice.half_masters) text += "[optimizer]\nmaster_dtype = \"u16\"\n\n";
  text += fmt::format("[activation_checkpoint]\nmode = \"{}\"\n\n", spec::name_of(l.recompute));
  text += fmt::format(
      "[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n",
      l.zero > 0 ? 1 : l.dp, l.zero > 0 ? l.dp : 1);
  if (l.zero > 0) text += fmt::format("zero_stage = {}\n", l.zero);
  if (choice.bf16_sums) text += "reduce_dtype = \"bf16\"\n";
  text += fmt::format("tensor_parallel_degree = {}\n", l.tp);
  if (l.tp > 1) text += fmt::format("sequence_parallel = {}\n", l.sequence_parallel);
  text += fmt::format("pipeline_parallel_degree = {}\n", l.pp);
  if (l.pp > 1) {
    text += fmt::format("pipeline_parallel_schedule = \"{}\"\n", name_of(l.pipe));
    if (l.pipe == Pipe::interleaved)
      text += fmt::format("pipeline_parallel_chunks = {}\n", l.chunks);
  }
  return text;
}

}  // namespace trireme::plan
