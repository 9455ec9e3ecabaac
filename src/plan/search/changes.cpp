// SPDX-License-Identifier: Apache-2.0
#include "plan/search/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"

namespace trireme::plan {
namespace {

constexpr int64_t max_tried_gpus = int64_t{1} << 20;
constexpr const char *masters_option = "--master-dtype u16", *grads_option = "--grad-dtype bf16";

SearchOptions with_masters(SearchOptions options) {
  options.space.master_dtype = base::DType::u16;
  return options;
}

SearchOptions with_grads(SearchOptions options) {
  options.space.grad_dtype = options.space.reduce_dtype = base::DType::bf16;
  return options;
}

// Tries changed questions one after another, and collects those that have an answer.
class Trials {
 public:
  Trials(const Job& job, const spec::Machine& machine, const Stack& stack,
         const SearchOptions& options, const PlanProgress& progress)
      : job_(job), machine_(machine), stack_(stack), options_(options), progress_(progress) {
    const auto& precisions = options.space.precision;
    if (!stack.is_engine() || std::ranges::find(precisions, Precision::bf16) == precisions.end()) {
      return;
    }
    if (options.space.master_dtype == base::DType::f32) shorter_name_ = masters_option;
    if (options.space.grad_dtype == base::DType::f32) {
      shorter_name_ += fmt::format("{}{}", shorter_name_.empty() ? "" : " ", grads_option);
    }
    if (!shorter_name_.empty()) shorter_ = with_grads(with_masters(options));
  }

  // Records the change under name(layout found), and returns whether it helps.
  template <typename Name>
  bool try_named(const SearchOptions& options, Name name) {
    auto found = first_that_fits(options);
    if (!found) return false;
    const std::string what = name(found->layout);
    changes_.push_back({what, std::move(*found)});
    return true;
  }
  bool try_this(const SearchOptions& options, const std::string& what) {
    return try_named(options, [&](const Layout&) { return what; });
  }

  void try_without_limits();
  void try_all_memory();
  void try_shorter_types();
  void try_more_gpus();
  void try_context();
  void try_unaudited();
  std::vector<Change> take() { return std::move(changes_); }

 private:
  std::optional<Proposal> first_that_fits(const SearchOptions& options) const {
    Finalists finalists(job_, machine_, stack_, options, progress_);
    try {
      (void)finalists.search_and_confirm(Effort::quick);
    } catch (const base::ConfigError&) {
      return {};  // the space is empty
    }
    const Choice choice = finalists.choice();
    if (choice.best == nullptr) return {};
    return *choice.best;
  }

  const Job& job_;
  const spec::Machine& machine_;
  const Stack& stack_;
  const SearchOptions& options_;
  const PlanProgress& progress_;
  std::optional<SearchOptions> shorter_;  // master weights and gradients in the shortest types
  std::string shorter_name_;              // the options that select them
  std::vector<Change> changes_;
};

// Lifts each limit alone, and all of them together if no single one helps.
void Trials::try_without_limits() {
  std::vector<std::string> names;
  bool is_enough = false;
  SearchOptions free = options_;
  const auto lift = [&](const char* option, auto Space::*list, auto value_of) {
    if ((options_.space.*list).empty()) return;
    names.emplace_back(option);
    SearchOptions without = options_;
    (without.space.*list).clear();
    (free.space.*list).clear();
    const auto name = [&](const Layout& l) { return fmt::format("{} {}", option, value_of(l)); };
    if (try_named(without, name)) is_enough = true;
  };
  lift("--recompute", &Space::recompute, [](const Layout& l) { return name_of(l.recompute); });
  lift("--micro-batch", &Space::micro_batch, [](const Layout& l) { return l.micro_batch; });
  lift("--zero", &Space::zero, [](const Layout& l) { return l.zero_stage; });
  lift("--schedule", &Space::pipes, [](const Layout& l) { return schedule::name_of(l.schedule); });
  lift("--chunks", &Space::chunks, [](const Layout& l) { return l.chunks; });
  lift("--tp", &Space::tp, [](const Layout& l) { return l.tp; });
  lift("--pp", &Space::pp, [](const Layout& l) { return l.pp; });
  lift("--ep", &Space::ep, [](const Layout& l) { return l.ep; });
  if (!is_enough && names.size() > 1) {
    try_this(free, fmt::format("without {}", fmt::join(names, " and ")));
  }
  const bool has_bf16 = machine_.processor.bf16_flops > machine_.processor.fp32_flops;
  if (has_bf16 && options_.space.precision == std::vector{Precision::fp32}) {
    SearchOptions shorter = options_;
    shorter.space.precision = {Precision::bf16};
    try_this(shorter, "--precision bf16");
  }
}

void Trials::try_all_memory() {
  if (options_.memory_fraction >= 1) return;
  SearchOptions all = options_;
  all.memory_fraction = 1;
  try_this(all, "--memory-fraction 1");
}

// Shorter masters come first: together with the bf16 weights they hold the same fp32 values.
void Trials::try_shorter_types() {
  if (!shorter_) return;
  const bool new_masters = options_.space.master_dtype == base::DType::f32;
  const bool new_grads = options_.space.grad_dtype == base::DType::f32;
  bool is_enough = false;
  if (new_masters) is_enough = try_this(with_masters(options_), masters_option);
  if (new_grads) is_enough = try_this(with_grads(options_), grads_option) || is_enough;
  if (is_enough || !new_masters || !new_grads) return;
  if (try_this(*shorter_, shorter_name_)) return;
  SearchOptions all = *shorter_;
  all.memory_fraction = 1;
  try_this(all, shorter_name_ + " --memory-fraction 1");
}

// Tries 2, 3, 4, 6, 8, 12, ... times as many GPUs; with shorter types fewer may be enough.
void Trials::try_more_gpus() {
  const int64_t now = options_.gpus;
  const auto enough = [&](const SearchOptions& options) {
    return state_need(job_, machine_, stack_, options).min_gpus;
  };
  bool is_shorter_open = shorter_.has_value();
  for (int64_t unit = 2; now * unit <= max_tried_gpus; unit *= 2) {
    for (const int64_t gpus : {now * unit, now * unit / 2 * 3}) {
      if (gpus > max_tried_gpus) return;
      SearchOptions more = options_;
      more.gpus = gpus;
      const std::string name = fmt::format("{} GPUs", gpus);
      if (gpus >= enough(options_) && try_this(more, name)) return;
      if (is_shorter_open && gpus >= enough(*shorter_)) {
        SearchOptions both = *shorter_;
        both.gpus = gpus;
        is_shorter_open = !try_this(both, fmt::format("{} with {}", name, shorter_name_));
      }
    }
  }
}

// Degrees that neither the question nor the length of its sequences suggests.
void Trials::try_context() {
  if (options_.space.cp.empty()) return;
  SearchOptions any = options_;
  any.space.cp.clear();
  try_named(any, [](const Layout& l) { return fmt::format("--cp {}", l.cp); });
}

void Trials::try_unaudited() {
  if (options_.space.unaudited) return;
  SearchOptions all = options_;
  all.space.unaudited = true;
  try_this(all, "a layout that the engine does not support yet");
}

}  // namespace

std::vector<Change> changes_that_fit(const Job& job, const spec::Machine& machine,
                                     const Stack& stack, const SearchOptions& options,
                                     const PlanProgress& progress) {
  Trials trials(job, machine, stack, options, progress);
  trials.try_without_limits();
  trials.try_shorter_types();
  trials.try_all_memory();
  trials.try_more_gpus();
  trials.try_context();
  trials.try_unaudited();
  return trials.take();
}

StateNeed state_need(const Job& job, const spec::Machine& machine, const Stack& stack,
                     const SearchOptions& options) {
  StateNeed need;
  need.parameters = static_cast<double>(spec::parameter_count(job.model));
  // fp32 weights have no master weights.
  Layout types;
  types.precision = options.space.precision.front();
  types.grad_dtype = options.space.grad_dtype;
  types.master_dtype = options.space.master_dtype;
  // Codes of 8 bits have fp32 masters, so that u16 masters of bf16 weights need less.
  const bool has_codes = spec::is_fp8(types.precision) && types.master_dtype == base::DType::f32;
  const double weight = types.precision == Precision::fp32 ? 4 : has_codes ? 1 : 2;
  need.bytes_per_parameter = weight + grad_bytes(stack, types) + optimizer_bytes(stack, types);
  need.bytes = need.parameters * need.bytes_per_parameter;
  const double room = machine.processor.memory_bytes * options.memory_fraction;
  need.min_gpus = static_cast<int64_t>(std::ceil(need.bytes / room));
  return need;
}

}  // namespace trireme::plan
