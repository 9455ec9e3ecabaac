// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/run/imported_config.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "config/document.h"
#include "config/files/model_file.h"
#include "config/files/stack_file.h"
#include "plan/import/config_layout.h"
#include "plan/import/from_hf.h"
#include "plan/import/from_megatron.h"
#include "plan/import/from_torchtitan.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

void take_config(const Args& args, PlanQuestion& q) {
  const config::Config asked = config::load(
      args.text("config"), {.overrides = args.overrides(), .model_folders = model_folders()});
  const config::Config config = config::solved(asked, 0);
  q.job = plan::job_of(config);
  q.model = config.model.name;
  q.asked = plan::layout_of(config);
  q.is_dtype_open = config.precision.recipe == "auto";
  q.gpus = q.asked->ranks();
  q.types = *q.asked;
  // A layout in bf16 has none.
  q.types.bf16_first = static_cast<int>(config.precision.bf16_first);
  q.types.bf16_last = static_cast<int>(config.precision.bf16_last);
  q.types.bf16_blocks.assign(config.precision.bf16_blocks.begin(),
                             config.precision.bf16_blocks.end());
}

void take_described(const plan::Described& d, PlanQuestion& q) {
  q.job = d.job;
  q.asked = d.layout;
  q.own_stack = d.stack;
  q.gpus = d.gpus;
  q.assumed = d.assumed;
  q.assumed.insert(q.assumed.end(), d.assumed_speed.begin(), d.assumed_speed.end());
  q.ignored = d.ignored;
  if (d.gpus == 0 && q.asked) q.gpus = q.asked->ranks();
}

// Throws ConfigError if there are several sources of the job.
void check_sources(const Args& args) {
  std::vector<std::string> given;
  for (const char* name :
       {"config", "--model", "--from-hf", "--from-megatron", "--from-torchtitan"}) {
    if (args.has(name)) given.emplace_back(name == std::string("config") ? args.text(name) : name);
  }
  if (given.size() > 1) {
    throw base::ConfigError(
        fmt::format("{} each name the job to plan: give one of them", fmt::join(given, " and ")));
  }
  if (!args.overrides().empty() && !args.has("config")) {
    throw base::ConfigError(fmt::format(
        "{}: changes a configuration, but no configuration is given", args.overrides().front()));
  }
}

}  // namespace

plan::Stack shipped_stack(const std::string& name) {
  return config::stack_from_file(name, stack_folders());
}

void take_source(const Args& args, PlanQuestion& q) {
  check_sources(args);
  const int64_t gpus = args.has("--gpus") ? args.integer("--gpus") : 0;
  const int64_t seq_len = args.has("--seq-len") ? args.integer("--seq-len") : 0;
  if (args.has("--from-megatron")) {
    take_described(
        plan::from_megatron(megatron_text(args.text("--from-megatron")), gpus, shipped_stack), q);
  } else if (args.has("--from-torchtitan")) {
    const fs::path file = args.text("--from-torchtitan");
    take_described(
        plan::from_torchtitan(config::read_text(file), file.string(), gpus, shipped_stack), q);
  } else if (args.has("--from-hf")) {
    take_described(plan::from_hf_file(args.text("--from-hf"), seq_len), q);
    q.model = args.text("--from-hf");
    q.own_stack.reset();
  } else if (args.has("config")) {
    take_config(args, q);
  } else if (args.has("--model")) {
    q.model = args.text("--model");
    const spec::ModelDims dims = config::model_from_file(q.model, model_folders());
    q.job.model = spec::make_model(dims);
    q.job.seq_len = std::min<int64_t>(dims.max_seq, 8192);
  } else {
    throw base::ConfigError(
        "nothing to plan: give a configuration, --model, --from-hf, --from-megatron or "
        "--from-torchtitan; or, to learn which size of model fits a time or a budget, --days or "
        "--budget with --machine and --gpus");
  }
}

}  // namespace trireme::cli
