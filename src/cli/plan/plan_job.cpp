// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_job.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/plan/plan_batch.h"
#include "cli/plan/plan_limits.h"
#include "cli/plan/plan_source.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "obs/terminal/number_text.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

constexpr int64_t max_gpus = 1 << 20;
constexpr double max_run_tokens = 1e18;

// Sets the stack that prices the layouts, and the dtypes of gradients and master weights.
void take_stack(const Args& args, PlanQuestion& q) {
  if (args.has("--stack")) {
    q.stack = shipped_stack(args.text("--stack"));
  }
  for (const char* option : {"--grad-dtype", "--master-dtype"}) {
    if (!args.has(option)) continue;
    if (!q.stack.is_engine()) {
      throw base::ConfigError(fmt::format(
          "{} is for the stack trireme; --stack {} sets its own dtype", option, q.stack.name));
    }
    const base::DType dtype = base::dtype_from_name(args.text(option));
    if (option == std::string("--grad-dtype")) {
      q.types.grad_dtype = q.types.reduce_dtype = dtype;
    } else {
      q.types.master_dtype = dtype;
    }
  }
  if (!q.stack.is_engine() && args.has("--out")) {
    throw base::ConfigError(fmt::format(
        "--out writes a configuration of Trireme, but --stack {} prices another program: give "
        "one of them",
        q.stack.name));
  }
}

// Sets how rows are spread over experts, and the memory for them.
void take_experts(const Args& args, PlanQuestion& q) {
  for (const char* option : {"--ep", "--etp", "--row-budget", "--expert-imbalance"}) {
    if (args.has(option) && !plan::has_experts(q.job)) {
      throw base::ConfigError(
          fmt::format("{}: model '{}' has no experts", option, q.job.model.name));
    }
  }
  if (args.has("--row-budget")) {
    const double budget = args.number("--row-budget");
    if (!(budget >= 1) || budget > spec::max_row_budget) {
      throw base::ConfigError(fmt::format("--row-budget {}: must be from 1 to {:.0f}",
                                          args.text("--row-budget"), spec::max_row_budget));
    }
    q.types.row_budget = budget;
    if (q.asked) q.asked->row_budget = budget;
  }
  if (args.has("--expert-imbalance")) {
    const double imbalance = args.number("--expert-imbalance");
    if (!(imbalance >= 1) || imbalance > spec::max_row_budget) {
      throw base::ConfigError(
          fmt::format("--expert-imbalance {}: must be from 1 (balanced) to {:.0f}: rows of the "
                      "busiest rank along ep, relative to the mean",
                      args.text("--expert-imbalance"), spec::max_row_budget));
    }
    q.job.expert_imbalance = imbalance;
  }
  q.space.row_budget = q.types.row_budget;
  q.space.expert_capacity = q.types.expert_capacity;
  q.space.overflow = q.types.overflow;
}

// Sets the length of the run and the price of a GPU-hour.
void take_run(const Args& args, PlanQuestion& q) {
  if (q.machine.price_per_hour > 0) q.dollars_per_gpu_hour = q.machine.price_per_hour;
  if (args.has("--price")) {
    const double price = args.number("--price");
    if (!(price >= 0) || price > 1e6) {
      throw base::ConfigError(fmt::format(
          "--price {}: must be from 0 to 1,000,000 dollars per GPU-hour", args.text("--price")));
    }
    if (!args.has("--tokens") && !args.has("--days") && !args.has("--budget")) {
      throw base::ConfigError(
          "--price: the cost is that of a whole run; also give --tokens (or --days or --budget)");
    }
    q.dollars_per_gpu_hour = price;
  }
  if (!args.has("--tokens")) return;
  const double tokens = args.number("--tokens");
  const auto step = static_cast<double>(q.job.tokens());
  if (!(tokens >= step) || tokens > max_run_tokens) {
    throw base::ConfigError(fmt::format(
        "--tokens {}: must be the tokens of the whole run, from the {} of one step to {:.0e}",
        args.text("--tokens"), obs::grouped(q.job.tokens()), max_run_tokens));
  }
  q.run_tokens = tokens;
}

// A recipe of the layout in question is searched beside bf16.
void take_recipe(const Args& args, PlanQuestion& q) {
  if (args.has("--precision") || !q.asked || !q.stack.is_engine()) return;
  const spec::Precision own = q.asked->precision;
  if (own == spec::Precision::fp16) q.space.precision = {own};
  if (spec::is_fp8(own)) q.space.precision = {spec::Precision::bf16, own};
}

}  // namespace

spec::Layout asked_layout(const PlanQuestion& q, const std::string& text) {
  spec::Layout l = spec::layout_from_text(text, q.gpus);
  const spec::Layout fresh;
  const auto take = [&](base::DType spec::Layout::*type) {
    if (l.*type == fresh.*type && l.precision != spec::Precision::fp32) l.*type = q.types.*type;
  };
  take(&spec::Layout::grad_dtype);
  take(&spec::Layout::master_dtype);
  take(&spec::Layout::reduce_dtype);
  if (l.row_budget == fresh.row_budget) l.row_budget = q.types.row_budget;
  if (l.bf16_first == fresh.bf16_first) l.bf16_first = q.types.bf16_first;
  if (l.bf16_last == fresh.bf16_last) l.bf16_last = q.types.bf16_last;
  if (l.bf16_blocks.empty()) l.bf16_blocks = q.types.bf16_blocks;
  if (l.deterministic) l.deterministic = q.space.deterministic;
  return l;
}

std::optional<int64_t> asked_gpus(const Args& args) {
  if (!args.has("--gpus")) return {};
  const int64_t gpus = args.integer("--gpus");
  if (gpus < 1 || gpus > max_gpus) {
    throw base::ConfigError(fmt::format("--gpus {}: from 1 to {}", args.text("--gpus"), max_gpus));
  }
  return gpus;
}

PlanQuestion plan_question(const Args& args, int64_t gpus) {
  PlanQuestion q;
  const std::optional<int64_t> asked = asked_gpus(args);
  take_source(args, q);
  take_seq_len(args, q);
  take_batch(args, q);
  if (asked) q.gpus = *asked;
  if (gpus > 0) q.gpus = gpus;
  complete_question(args, q);
  return q;
}

void complete_question(const Args& args, PlanQuestion& q) {
  std::string missing;
  const auto need = [&missing](bool is_there, const char* what) {
    if (!is_there) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", what);
  };
  need(q.gpus > 0, "--gpus N");
  need(q.job.global_batch > 0, "--batch SEQUENCES or --batch-tokens N");
  need(args.has("--machine"), "--machine NAME");
  if (!missing.empty()) {
    throw base::ConfigError(fmt::format("not enough to plan with: give {}. Machines: {}", missing,
                                        fmt::join(config::machine_names(machine_folders()), ", ")));
  }
  check_sizes(q.job);
  if (q.gpus > max_gpus) {
    throw base::ConfigError(fmt::format("{} GPUs: at most {}", q.gpus, max_gpus));
  }
  q.machine = config::machine_from_file(args.text("--machine"), machine_folders());
  take_run(args, q);
  take_stack(args, q);
  q.space = plan_limits(args, q.job, q.gpus, !q.stack.is_engine());
  take_experts(args, q);
  q.memory_fraction = args.number("--memory-fraction");
  if (!(q.memory_fraction > 0) || q.memory_fraction > 1) {
    throw base::ConfigError(
        fmt::format("--memory-fraction {}: must be above 0 and at most 1", q.memory_fraction));
  }
  const bool is_fast = args.has("--determinism") ? args.text("--determinism") == "fast"
                                                 : !q.job.backend.deterministic;
  q.job.backend = plan::backend_for(q.machine, !is_fast);
  q.space.grad_dtype = q.types.grad_dtype;
  q.space.master_dtype = q.types.master_dtype;
  q.space.reduce_dtype = q.types.reduce_dtype;
  q.space.deterministic = !is_fast;
  q.space.bf16_first = q.types.bf16_first;
  q.space.bf16_last = q.types.bf16_last;
  q.space.bf16_blocks = q.types.bf16_blocks;
  if (args.has("--layout")) q.asked = asked_layout(q, args.text("--layout"));
  take_recipe(args, q);
  if (q.machine.processor.bf16_flops <= q.machine.processor.fp32_flops &&
      !args.has("--precision")) {
    q.space.precision = {spec::Precision::fp32};
    if (q.is_dtype_open && !args.has("--layout")) q.asked->precision = spec::Precision::fp32;
  }
}

}  // namespace trireme::cli
