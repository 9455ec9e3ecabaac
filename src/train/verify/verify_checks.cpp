// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include "base/text/count_text.h"
#include "obs/terminal/number_text.h"
#include "train/verify/verify_hints.h"
#include "train/verify/verify_routing.h"

namespace trireme::train {
namespace {

double relative(double value, double wanted) {
  if (value == wanted) return 0;
  const double error = std::abs(value - wanted) / std::abs(wanted);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// The worst of an error over steps and ranks.
struct WorstError {
  double error = 0;
  int rank = 0;
  size_t at = 0;  // step, or parameter

  void take(double candidate, int of_rank, size_t of) {
    if (candidate > error) *this = {candidate, of_rank, of};
  }
};

VerifyCheck completes(const CheckedRun& run) {
  const bool ok = run.layout.failure.empty();
  return {.name = "completes",
          .ok = ok,
          .detail = ok ? fmt::format("{} steps on {}", verify_steps,
                                     base::count_text(std::ssize(run.layout.ranks), "rank"))
                       : run.layout.failure,
          .hint = ok ? "" : "a rank threw, or waited for another until the deadline passed"};
}

// Returns the position of each sample among those of the one rank.
std::map<std::string, int> numbers_of(const std::vector<std::string>& samples) {
  std::map<std::string, int> numbers;
  for (const std::string& sample : samples) {
    numbers.emplace(sample, static_cast<int>(numbers.size()));
  }
  return numbers;
}

std::string sample_problem(const CheckedRun& run, size_t step) {
  const std::map<std::string, int> numbers = numbers_of(run.reference.samples[step]);
  std::map<int, const RankResult*> first_of;  // by data rank
  std::map<int, int> taken_by;                // data rank, by sample
  for (const RankResult& rank : run.layout.ranks) {
    const int at = spec::data_rank(run.plan.mesh, rank.table.coord);
    const auto [first, is_first] = first_of.emplace(at, &rank);
    if (!is_first) {
      if (first->second->samples[step] == rank.samples[step]) continue;
      return fmt::format("step {}: ranks {} and {} share one model and see different samples", step,
                         first->second->table.rank, rank.table.rank);
    }
    for (const std::string& sample : rank.samples[step]) {
      const auto number = numbers.find(sample);
      if (number == numbers.end()) {
        return fmt::format("step {}: rank {} sees a sample that is not of this step", step,
                           rank.table.rank);
      }
      const auto [other, is_new] = taken_by.emplace(number->second, at);
      if (is_new) continue;
      return fmt::format("step {}: sample {} reaches rank {} and rank {}", step, number->second,
                         first_of.at(other->second)->table.rank, rank.table.rank);
    }
  }
  if (taken_by.size() != numbers.size()) {
    return fmt::format("step {}: {} of {} samples reach no rank", step,
                       numbers.size() - taken_by.size(), numbers.size());
  }
  for (const RankResult& rank : run.layout.ranks) {
    const engine::StepReport &found = rank.steps[step], &wanted = run.reference.steps[step];
    if (found.same_samples && found.sample_hash == wanted.sample_hash) continue;
    return fmt::format("step {}: rank {} received other samples in the closing sums", step,
                       rank.table.rank);
  }
  return "";
}

VerifyCheck samples(const CheckedRun& run) {
  VerifyCheck check{.name = "samples", .ok = true};
  for (size_t step = 0; step < run.reference.samples.size() && check.ok; ++step) {
    check.detail = sample_problem(run, step);
    check.ok = check.detail.empty();
  }
  if (check.ok) {
    check.detail =
        fmt::format("{} a step, disjoint over {} data ranks{}",
                    run.reference.samples.front().size(), spec::data_ranks(run.plan.mesh),
                    run.layout.ranks.size() > static_cast<size_t>(spec::data_ranks(run.plan.mesh))
                        ? ", equal along cp, tp and pp"
                        : "");
  } else {
    check.hint = "the map from rank and micro-batch to samples (spec::global_microbatch)";
  }
  return check;
}

VerifyCheck initial_weights(const CheckedRun& run) {
  WorstError worst;
  for (const RankResult& rank : run.layout.ranks) {
    for (size_t i = 0; i < rank.params.size(); ++i) {
      worst.take(rank.params[i].initial, rank.table.rank, i);
    }
  }
  VerifyCheck check{.name = "initial weights", .ok = worst.error == 0, .error = worst.error};
  check.detail = check.ok ? "the bits of one rank"
                          : fmt::format("'{}' differs on rank {} by {:.3g}",
                                        run.reference.names[worst.at], worst.rank, worst.error);
  if (!check.ok) check.hint = "the ranks' seeds, or how parameters are cut (spec::pieces)";
  return check;
}

// A check of one value of every step, on every rank.
struct StepsCheck {
  VerifyCheck check;
  bool begins_wrong = false;  // at the first step
};

StepsCheck of_steps(const CheckedRun& run, const char* name, double bound,
                    const std::function<double(const engine::StepReport&)>& value) {
  WorstError worst;
  StepsCheck result;
  for (const RankResult& rank : run.layout.ranks) {
    for (size_t step = 0; step < rank.steps.size(); ++step) {
      const double error = relative(value(rank.steps[step]), value(run.reference.steps[step]));
      worst.take(error, rank.table.rank, step);
      if (step == 0 && error > bound) result.begins_wrong = true;
    }
  }
  const auto& steps = run.layout.ranks[static_cast<size_t>(worst.rank)].steps;
  result.check = {.name = name, .ok = worst.error <= bound, .error = worst.error, .bound = bound};
  result.check.detail =
      worst.error == 0
          ? "as on one rank, at every step"
          : fmt::format("{:.9g} on rank {} at step {}, one rank {:.9g}", value(steps[worst.at]),
                        worst.rank, worst.at, value(run.reference.steps[worst.at]));
  return result;
}

VerifyCheck of_params(const CheckedRun& run, const char* name, double bound,
                      double Deviation::*error) {
  WorstError worst;
  std::set<size_t> wrong;
  for (const RankResult& rank : run.layout.ranks) {
    for (size_t i = 0; i < rank.params.size(); ++i) {
      worst.take(rank.params[i].*error, rank.table.rank, i);
      if (!(rank.params[i].*error <= bound)) wrong.insert(i);
    }
  }
  VerifyCheck check{.name = name, .ok = wrong.empty(), .error = worst.error, .bound = bound};
  check.detail = fmt::format("worst: '{}' on rank {}", run.reference.names[worst.at], worst.rank);
  if (!check.ok) {
    check.detail +=
        fmt::format("; {} of {} parameters wrong", wrong.size(), run.reference.names.size());
  }
  return check;
}

VerifyCheck bits(const CheckedRun& run) {
  VerifyCheck check{.name = "bits", .ok = true};
  for (const RankResult& rank : run.layout.ranks) {
    for (size_t i = 0; i < rank.params.size() && check.ok; ++i) {
      if (rank.params[i].same_bits) continue;
      check.ok = false;
      check.detail = fmt::format("'{}' on rank {} has other bits than on one rank",
                                 run.reference.names[i], rank.table.rank);
      check.hint = "the order of sums (spec/parallel/sum_tree.h), or the cause of another failure";
    }
  }
  if (check.ok) {
    check.detail = fmt::format("gradients and weights as on one rank at logical_dp {}",
                               run.plan.layout.logical_dp);
  }
  return check;
}

VerifyCheck bytes_sent(const CheckedRun& run) {
  VerifyCheck check{.name = "bytes on the wire", .ok = true};
  int64_t sum = 0;
  for (const RankResult& rank : run.layout.ranks) {
    for (const TrafficKind& kind : step_traffic_kinds()) {
      const int64_t predicted = rank.table.predicted_bytes.*kind.bytes,
                    counted = rank.table.counted_bytes.*kind.bytes;
      sum += counted;
      if (predicted == counted || !check.ok) continue;
      check.ok = false;
      check.detail = fmt::format("rank {}, {}: {} predicted, {} counted", rank.table.rank,
                                 kind.name, obs::grouped(predicted), obs::grouped(counted));
      check.hint = "an extra or a missing collective (spec::predict_traffic)";
    }
  }
  if (check.ok) {
    check.detail =
        fmt::format("{} by all ranks in {} steps, as predicted", obs::grouped(sum), verify_steps);
  }
  return check;
}

VerifyCheck memory(const CheckedRun& run) {
  VerifyCheck check{.name = "memory", .ok = true};
  int64_t max_bytes = 0;
  for (const RankResult& rank : run.layout.ranks) {
    const spec::MemoryTable &predicted = rank.table.predicted_memory,
                            &measured = rank.table.measured_memory;
    max_bytes = std::max(max_bytes, measured.total());
    if ((measured == predicted && rank.ledger_peak == predicted.total()) || !check.ok) continue;
    check.ok = false;
    check.detail = fmt::format("rank {}: {} predicted, {} measured, {} allocated", rank.table.rank,
                               obs::grouped(predicted.total()), obs::grouped(measured.total()),
                               obs::grouped(rank.ledger_peak));
    check.hint = "an allocation that is not predicted (spec::predict_memory)";
  }
  if (check.ok) {
    check.detail = fmt::format("{} at most on a rank, to the byte", obs::grouped(max_bytes));
  }
  return check;
}

}  // namespace

VerifyBounds bounds_of(const spec::Plan& plan, const spec::Backend& backend) {
  // These axes change the order of sums.
  using enum spec::Axis;
  const bool is_cut = plan.mesh[tp] * plan.mesh[cp] * plan.mesh[ep] * plan.mesh[etp] > 1;
  const bool is_exact = plan.recipe.storage == base::DType::f32 &&
                        plan.recipe.grad == base::DType::f32 &&
                        plan.layout.reduce_dtype == base::DType::f32;
  VerifyBounds bounds = is_exact          ? VerifyBounds{1e-5, 1e-5, 1e-5, 1e-5}
                        : plan.recipe.fp8 ? VerifyBounds{5e-3, 1e-1, 5e-1, 5e-1}
                                          : VerifyBounds{1e-3, 2e-2, 1e-1, 1e-1};
  bounds.same_bits = !is_cut && backend.deterministic;
  return bounds;
}

std::vector<VerifyCheck> checks_of(const CheckedRun& run) {
  std::vector<VerifyCheck> checks = {completes(run)};
  if (checks.front().ok) {
    StepsCheck tokens = of_steps(run, "tokens", 0, [](const engine::StepReport& s) {
      return static_cast<double>(s.tokens);
    });
    StepsCheck loss = of_steps(run, "loss", run.bounds.loss,
                               [](const engine::StepReport& s) { return s.mean_loss; });
    StepsCheck norm =
        of_steps(run, "gradient norm", run.bounds.norm,
                 [](const engine::StepReport& s) { return static_cast<double>(s.grad_norm); });
    VerifyCheck grads = of_params(run, "gradients", run.bounds.grads, &Deviation::grad);
    VerifyCheck weights = of_params(run, "weights", run.bounds.weights, &Deviation::weights);
    if (!tokens.check.ok) {
      tokens.check.hint = "step sums: tokens counted on each rank, added once over data ranks";
    }
    if (!loss.check.ok) loss.check.hint = loss_hint(run, loss.begins_wrong);
    if (!grads.ok) grads.hint = gradient_hint(run);
    if (!norm.check.ok) norm.check.hint = norm_hint(norm.begins_wrong);
    if (!weights.ok) weights.hint = "the optimizer's shard of each rank, and how it is published";

    checks.push_back(samples(run));
    checks.push_back(initial_weights(run));
    checks.push_back(tokens.check);
    if (loss.begins_wrong) checks.push_back(loss.check);
    const std::optional<RoutingCheck> routing = routing_of(run);
    if (routing && routing->begins_wrong) checks.push_back(routing->check);
    checks.push_back(grads);
    if (norm.begins_wrong) checks.push_back(norm.check);
    checks.push_back(weights);
    if (routing && !routing->begins_wrong) checks.push_back(routing->check);
    if (!loss.begins_wrong) checks.push_back(loss.check);
    if (!norm.begins_wrong) checks.push_back(norm.check);
    if (run.bounds.same_bits) checks.push_back(bits(run));
    checks.push_back(bytes_sent(run));
    checks.push_back(memory(run));
  }
  for (VerifyCheck& check : checks) check.recipe = run.plan.recipe.name;
  return checks;
}

}  // namespace trireme::train
