// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_rank.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

// Calls visit(option, field) for each option of bench train that sets a field of the layout.
template <typename Visit>
void for_each_layout_option(const Visit& visit) {
  using spec::Layout;
  visit("--micro-batch", &Layout::micro_batch);
  visit("--accumulate", &Layout::accumulation);
  visit("--dtype", &Layout::precision);
  visit("--bf16-first", &Layout::bf16_first);
  visit("--bf16-last", &Layout::bf16_last);
  visit("--grad-dtype", &Layout::grad_dtype);
  visit("--master-dtype", &Layout::master_dtype);
  visit("--recompute", &Layout::recompute);
  visit("--recompute-blocks", &Layout::recompute_blocks);
  visit("--head-chunk", &Layout::head_chunk_rows);
  visit("--ffn-rows", &Layout::ffn_rows);
  visit("--determinism", &Layout::deterministic);
}

// Throws ConfigError if the options are not used together.
void check_together(const Args& args) {
  if (args.has("--as-rank") != args.has("--layout")) {
    throw base::ConfigError(
        fmt::format("{} without {}: both are needed, as --as-rank 5 --layout 'tp=2 pp=4'",
                    args.has("--layout") ? "--layout" : "--as-rank",
                    args.has("--layout") ? "--as-rank" : "--layout"));
  }
  if (args.has("--machine") && !args.has("--as-rank")) {
    throw base::ConfigError(
        "--machine predicts the times of one rank: also give --as-rank and --layout");
  }
}

}  // namespace

std::vector<Option> bench_rank_options() {
  return {{.name = "--as-rank",
           .kind = Kind::integer,
           .help = "Run this rank of --layout, from 0, alone; messages of the other ranks are "
                   "copies within the device"},
          {.name = "--layout",
           .help = "Layout of the job whose rank is run, in the words of `trireme plan --layout`, "
                   "as 'tp=8 sp pp=4 dp=16 zero=1 micro=2 accumulate=8 full'; options given "
                   "beside it set what it leaves open"},
          {.name = "--machine",
           .help = "With --as-rank: machine whose times are predicted beside the measured ones: a "
                   "name in machines/, or a machine file"}};
}

void take_rank(const Args& args, train::StepBenchOptions& options) {
  check_together(args);
  if (!args.has("--as-rank")) return;
  const std::string& text = args.text("--layout");
  spec::Layout given;
  for_each_layout_option([&](const char* option, auto field) {
    if (args.is_given(option)) given.*field = options.layout.*field;
  });
  const spec::Layout layout = spec::layout_from_text(text, 0, given);
  for_each_layout_option([&](const char* option, auto field) {
    if (!args.is_given(option) || layout.*field == given.*field) return;
    throw base::ConfigError(
        fmt::format("{} {}: --layout '{}' sets another value: give one of "
                    "them",
                    option, args.text(option), text));
  });
  train::check_lone_rank(layout, args.integer("--as-rank"));
  options.layout = layout;
  options.as_rank = args.small_integer("--as-rank");
  options.system.determinism = layout.deterministic ? "l1" : "fast";
}

std::optional<train::LoneRankTime> rank_time(const Args& args, const spec::ModelSpec& model,
                                             const train::StepBenchOptions& options) {
  if (!args.has("--machine")) return std::nullopt;
  const spec::Machine machine =
      config::machine_from_file(args.text("--machine"), machine_folders());
  return train::lone_rank_time(model, options.work, options.layout, machine, *options.as_rank);
}

}  // namespace trireme::cli
