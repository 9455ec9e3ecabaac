// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace trireme::plan {
namespace {

using Runs = std::vector<PublishedRun>;

Knob of_stack(const std::string& stack, const char* name, double Stack::*field, double low,
              double high, double start) {
  return {stack + "." + name, low, high, start, [stack, field](PublishedRun& run) -> double* {
            return run.stack.name == stack ? &(run.stack.*field) : nullptr;
          }};
}

// `names` are names of machines, each between bars.
Knob of_machines(const std::string& names, const char* name, double spec::Processor::*field,
                 double low, double high, double start) {
  return {names + "." + name, low, high, start, [names, field](PublishedRun& run) -> double* {
            return names.find("|" + run.machine.name + "|") != std::string::npos
                       ? &(run.machine.processor.*field)
                       : nullptr;
          }};
}

std::vector<Knob> make_knobs() {
  std::vector<Knob> all;
  for (const std::string stack : {"megatron-2021", "megatron-2022", "fsdp", "megatron-core"}) {
    all.push_back(of_stack(stack, "gemm", &Stack::gemm, 0.9, 1.4, 1));
    all.push_back(of_stack(stack, "streaming", &Stack::streaming, 1, 5, 2));
  }
  for (const std::string stack : {"megatron-2021", "fsdp", "megatron-core"}) {
    all.push_back(of_stack(stack, "head_streaming", &Stack::head_streaming, 1, 6, 3));
    all.push_back(of_stack(stack, "step_seconds", &Stack::step_seconds, 0, 0.2, 0.02));
    all.push_back(of_stack(stack, "optimizer", &Stack::optimizer, 0.8, 5, 1.5));
    all.push_back(of_stack(stack, "jitter", &Stack::jitter, 0, 0.05, 0));
  }
  // Starts at the constant of the stack that it is based on.
  all.push_back(of_stack("zero-bubble", "gemm", &Stack::gemm, 0.9, 1.4, 1.03));
  all.push_back(of_stack("megatron-2021", "host_seconds", &Stack::host_seconds, 1e-6, 1e-4, 6e-6));
  all.push_back(of_stack("megatron-core", "tp_overlap", &Stack::tp_overlap, 0, 0.8, 0.5));
  all.push_back(of_stack("megatron-core", "ep_overlap", &Stack::ep_overlap, 0, 0.8, 0));
  all.push_back(of_stack("deepspeed-2021", "data_rate", &Stack::data_rate, 0.02, 1, 0.2));
  all.push_back(of_stack("fsdp", "contention", &Stack::contention, 0, 1, 0.1));
  all.push_back(of_stack("fsdp", "attention", &Stack::attention, 0.7, 2, 1));
  const std::string hopper = "|h100|h200|", b200 = "|b200|gb200|", b300 = "|b300|gb300|";
  all.push_back(of_machines(hopper, "fp8_reach", &spec::Processor::fp8_reach, 0.4, 0.85, 0.69));
  for (const std::string& names : {b200, b300}) {
    all.push_back(of_machines(names, "fp8_reach", &spec::Processor::fp8_reach, 0.3, 0.85, 0.6));
    all.push_back(of_machines(names, "fp4_reach", &spec::Processor::fp4_reach, 0.2, 0.85, 0.5));
  }
  return all;
}

// Returns the mean error over sources, each weighted by the square root of its number of runs.
double error_of(const Runs& runs) {
  struct Source {
    double sum = 0;
    int count = 0;
  };
  std::map<std::string_view, Source> sources;
  for (const PublishedRun& run : runs) {
    if (!run.reason.empty() || run.seconds <= 0) continue;
    const double predicted = Pricer(run.job, run.machine, run.stack).price(run.layout).seconds;
    Source& source = sources[run.source];
    source.sum += std::abs(predicted / run.seconds - 1);
    ++source.count;
  }
  double sum = 0, weights = 0;
  for (const auto& [name, source] : sources) {
    const double weight = std::sqrt(source.count);
    sum += weight * source.sum / source.count;
    weights += weight;
  }
  return weights == 0 ? 0 : sum / weights;
}

void set(const Knob& knob, Runs& runs, double value) {
  for (PublishedRun& run : runs) {
    if (double* field = knob.field(run)) *field = value;
  }
}

// Moves one constant up and down by `step` of its range as long as the error of `users` falls.
double improved(const Knob& knob, Runs& users, double value, double step, double& error) {
  for (const double direction : {step, -step}) {
    while (true) {
      const double next =
          std::clamp(value + direction * (knob.high - knob.low), knob.low, knob.high);
      if (next == value) break;
      set(knob, users, next);
      const double found = error_of(users);
      if (found >= error * (1 - 1e-6)) break;
      value = next;
      error = found;
    }
    set(knob, users, value);
  }
  return value;
}

// Two constants may compensate each other: if neither alone lowers the error, one moves and the
// other is fitted again. `at` are the values of both.
struct Pair {
  const Knob &leads, &follows;
};
void improve_together(const Pair& pair, Runs& users, std::array<double*, 2> at, double step) {
  double error = error_of(users);
  for (const double direction : {step, -step}) {
    while (true) {
      const Knob& leads = pair.leads;
      const double next =
          std::clamp(*at[0] + direction * (leads.high - leads.low), leads.low, leads.high);
      if (next == *at[0]) break;
      set(leads, users, next);
      double found = error_of(users);
      double follows = *at[1];
      for (const double finer : {step, step / 4, step / 16}) {
        follows = improved(pair.follows, users, follows, finer, found);
      }
      if (found >= error * (1 - 1e-6)) break;
      *at[0] = next;
      *at[1] = follows;
      error = found;
    }
    set(pair.leads, users, *at[0]);
    set(pair.follows, users, *at[1]);
  }
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> all = make_knobs();
  return all;
}

std::vector<Fitted> fit(Runs& train, Runs& apply) {
  std::vector<Fitted> fitted;
  for (const Knob& knob : knobs()) {
    Fitted one{.name = knob.name};
    for (PublishedRun& run : train) {
      if (!run.reason.empty() || run.seconds <= 0) continue;
      if (const double* field = knob.field(run)) {
        one.shipped = *field;
        ++one.runs;
      }
    }
    one.fitted = knob.start;
    fitted.push_back(one);
  }
  for (const Knob& knob : knobs()) {
    set(knob, train, knob.start);
    set(knob, apply, knob.start);
  }
  for (double step = 0.2; step > 0.004; step /= 2) {
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < fitted.size(); ++i) {
        if (fitted[i].runs == 0) continue;
        Runs users;
        for (PublishedRun& run : train) {
          if (run.reason.empty() && run.seconds > 0 && knobs()[i].field(run) != nullptr) {
            users.push_back(run);
          }
        }
        double error = error_of(users);
        fitted[i].fitted = improved(knobs()[i], users, fitted[i].fitted, step, error);
        if (i > 0 && fitted[i].name.ends_with(".streaming")) {  // the knob before it is gemm
          improve_together({knobs()[i], knobs()[i - 1]}, users,
                           {&fitted[i].fitted, &fitted[i - 1].fitted}, step);
          set(knobs()[i - 1], train, fitted[i - 1].fitted);
        }
        set(knobs()[i], train, fitted[i].fitted);
      }
    }
  }
  for (size_t i = 0; i < fitted.size(); ++i) {
    if (fitted[i].runs > 0) set(knobs()[i], apply, fitted[i].fitted);
  }
  return fitted;
}

namespace {

// Appends the held-out runs to `out`, with constants fitted to all other runs.
void hold_out(const Runs& all, const std::function<bool(const PublishedRun&)>& is_out, Runs& out) {
  Runs train, apply;
  for (const PublishedRun& run : all) (is_out(run) ? apply : train).push_back(run);
  fit(train, apply);
  out.insert(out.end(), apply.begin(), apply.end());
}

bool is_odd(const std::string& id) {
  uint32_t hash = 2166136261U;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return ((hash >> 16U) & 1U) != 0;
}

}  // namespace

HeldOut leave_one_source_out(const Runs& all, const std::function<void(double)>& progress) {
  std::set<std::string> sources;
  for (const PublishedRun& run : all) {
    if (run.reason.empty()) sources.insert(run.source);
  }
  HeldOut held;
  double done = 0;
  for (const std::string& source : sources) {
    hold_out(
        all, [&](const PublishedRun& run) { return run.source == source; }, held.runs);
    done += 1;
    if (progress) progress(done / static_cast<double>(sources.size()));
  }
  held.rows = validate(held.runs);
  return held;
}

HeldOut hash_split(const Runs& all, const std::function<void(double)>& progress) {
  HeldOut held;
  for (const bool side : {false, true}) {
    hold_out(
        all, [side](const PublishedRun& run) { return is_odd(run.id) == side; }, held.runs);
    if (progress) progress(side ? 1 : 0.5);
  }
  held.rows = validate(held.runs);
  return held;
}

}  // namespace trireme::plan
