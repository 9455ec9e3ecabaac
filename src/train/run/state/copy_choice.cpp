// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/copy_choice.h"

#include "base/error.h"
#include "train/numerics/numerics_watch.h"
#include "train/run/state/epoch_state.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

// Returns why this process cannot keep copies; empty: it can.
std::string obstacle(const RankStart& start) {
  if (start.ranks == 1) return "the run has one rank, so no other process continues without it";
  if (start.process_ranks > 1) return "its ranks are threads of one process, which end together";
  if (start.memory_fd < 0) return "no launcher holds memory for this rank (TRIREME_MEMORY_FD)";
  if (!start.next_epoch) return "its processes do not continue when one of them ends";
  return "";
}

// Plain data parallelism updates a step during the next one. An abort may close the gates of some
// of these updates and not of others, on every replica: all of them then have the state of no step
// (engine/state/update_gate.h).
bool may_tear_replicas(const spec::Plan& plan) { return !plan.zero.optim; }

}  // namespace

CopyChoice choose_copies(const config::Config& c, const RankStart& start,
                         const spec::ModelSpec& model, const spec::Plan& plan,
                         std::span<const int> nodes) {
  const std::string& wanted = c.elastic.peer;
  if (wanted == "false") return {};
  if (const std::string problem = obstacle(start); !problem.empty()) {
    if (wanted == "auto") return {};
    throw base::ConfigError(
        fmt::format("elastic.peer = \"true\": copies of the state cannot be kept in memory: {}; "
                    "start the run with `trireme launch`, or leave the key out",
                    problem));
  }
  if (plan.recipe.fp8 && fallback_from_name(c.precision.fallback) == Fallback::bf16) {
    const std::string why =
        "precision.fallback = \"bf16\" decides by what it has seen, which copies do not contain";
    if (wanted == "auto") return {.why_not = why};
    throw base::ConfigError(
        fmt::format("elastic.peer = \"true\": {}; use fallback = \"warn\", or "
                    "leave the key out",
                    why));
  }
  CopyChoice choice{.may_exist = true};
  if (wanted == "auto" && !may_tear_replicas(plan) && has_live_replicas(model, plan, nodes)) {
    choice.why_not =
        fmt::format("every part of the state is on several {}", nodes.empty() ? "ranks" : "nodes");
    return choice;
  }
  choice.is_on = true;
  if (nodes.empty() || start.peer_memory_fd < 0) return choice;
  choice.is_sent = !has_replicas(model, plan, nodes);
  if (!choice.is_sent) choice.why_not_sent = "every part of the state is on several nodes";
  return choice;
}

}  // namespace trireme::train
