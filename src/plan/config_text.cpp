// SPDX-License-Identifier: Apache-2.0
#include "plan/config_text.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
#include "base/json.h"

namespace trireme::plan {
namespace {

constexpr char delete_character = '\x7f';

// A basic string of TOML, with its quotes. JSON escapes the same characters in the same way, but
// for one that it allows.
std::string quoted(const std::string& text) {
  std::string result;
  try {
    for (const char c : base::Json(text).dump()) {
      if (c == delete_character) {
        result += "\\u007f";
      } else {
        result += c;
      }
    }
  } catch (const base::Json::exception&) {
    throw base::ConfigError(
        fmt::format("{}: not UTF-8, and a TOML file cannot hold it; give the file another name",
                    base::Json(text).dump(-1, ' ', true, base::Json::error_handler_t::replace)));
  }
  return result;
}

// A comment of TOML has no control characters but tabs.
std::string commented(const std::string& line) {
  const std::string valid =
      base::Json::parse(base::Json(line).dump(-1, ' ', true, base::Json::error_handler_t::replace));
  std::string result = "# ";
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = (byte < ' ' && c != '\t') || c == delete_character;
    result += is_control ? '?' : c;
  }
  return result + "\n";
}

}  // namespace

std::string config_text(const Job& job, const Layout& l, const ConfigChoice& choice) {
  std::string text;
  std::istringstream lines(choice.comment);
  for (std::string line; std::getline(lines, line);) text += commented(line);
  text += fmt::format("[model]\nname = {}\n\n", quoted(choice.model));
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
  if (!job.backend.deterministic) text += "\n[system]\ndeterminism = \"fast\"\n";
  return text;
}

}  // namespace trireme::plan
