// SPDX-License-Identifier: Apache-2.0
// What `trireme plan` is asked about: a job, a machine and a number of GPUs, from options, a
// configuration or the settings of another program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/shell/args.h"
#include "plan/search/search.h"
#include "plan/stack.h"

namespace trireme::cli {

struct PlanQuestion {
  plan::Job job;
  std::string model;  // as a configuration names it; empty: it is in none
  spec::Machine machine;
  int64_t gpus = 0;
  plan::Stack stack = plan::trireme_stack();  // that prices, unless another was asked for
  std::optional<spec::Layout> asked;          // the layout that the question came with
  spec::Layout types;                         // whose number formats the search takes
  bool is_dtype_open = false;            // the configuration leaves the precision to the machine
  std::optional<plan::Stack> own_stack;  // of the program that it came from
  plan::Space space;
  double memory_fraction = 0.95;
  std::optional<double> run_tokens;            // of the whole run; at least those of one step
  std::optional<double> dollars_per_gpu_hour;  // as given, or as the machine's file states
  std::vector<std::string> taken, ignored;     // of settings that were read
};
// A layout as it was typed, with the formats and the determinism of the question where it has none
// of its own. Throws ConfigError that names the word.
spec::Layout asked_layout(const PlanQuestion&, const std::string& text);

// Throws ConfigError, all that is missing at once.
PlanQuestion plan_question(const Args&);
std::vector<Option> plan_question_options();

}  // namespace trireme::cli
