// SPDX-License-Identifier: Apache-2.0
// The question of `trireme plan`: a job, a machine and a number of GPUs, from options, a
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
  std::string model;  // the name for a configuration's model.name; empty: there is none
  spec::Machine machine;
  int64_t gpus = 0;
  plan::Stack stack = plan::trireme_stack();  // that prices the layouts
  std::optional<spec::Layout> asked;          // the layout that was given
  spec::Layout types;                         // its dtypes are those of the search
  bool is_dtype_open = false;                 // precision.recipe is auto: the machine decides
  std::optional<plan::Stack> own_stack;       // of the program whose settings were read
  plan::Space space;
  double memory_fraction = 0.95;
  std::optional<double> run_tokens;            // of the whole run; at least one step
  std::optional<double> dollars_per_gpu_hour;  // from --price, or from the machine's file
  std::vector<std::string> assumed, ignored;   // settings of another program
};
// Parses a layout; dtypes and determinism that it does not set are those of the question. Throws
// ConfigError that names the word.
spec::Layout asked_layout(const PlanQuestion&, const std::string& text);

// Reads the question from the options. Throws ConfigError that lists all missing options. With
// `gpus` above 0: for this number of GPUs instead of --gpus.
PlanQuestion plan_question(const Args&, int64_t gpus = 0);
// Reads everything but the job, its batch and its number of GPUs, which the question has.
void complete_question(const Args&, PlanQuestion&);
// Returns --gpus, if it is given and legal.
std::optional<int64_t> asked_gpus(const Args&);
std::vector<Option> plan_question_options();

}  // namespace trireme::cli
