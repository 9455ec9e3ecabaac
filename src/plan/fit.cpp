// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trireme::plan {
namespace {

using Runs = std::vector<PublishedRun>;

Knob of_stack(const std::string& stack, const char* name, double Stack::*field, double low,
              double high) {
  return {stack + "." + name, low, high, [stack, field](PublishedRun& run) -> double* {
            return run.stack.name == stack ? &(run.stack.*field) : nullptr;
          }};
}

std::vector<Knob> make_knobs() {
  std::vector<Knob> all;
  for (const std::string stack : {"megatron-2021", "megatron-2022", "fsdp", "megatron-core"}) {
    all.push_back(of_stack(stack, "gemm", &Stack::gemm, 0.85, 1.4));
    all.push_back(of_stack(stack, "streaming", &Stack::streaming, 1, 5));
  }
  for (const std::string stack : {"megatron-2021", "fsdp", "megatron-core"}) {
    all.push_back(of_stack(stack, "head_streaming", &Stack::head_streaming, 1, 8));
    all.push_back(of_stack(stack, "host_seconds", &Stack::host_seconds, 1e-6, 1.5e-4));
    all.push_back(of_stack(stack, "step_seconds", &Stack::step_seconds, 0, 0.2));
    all.push_back(of_stack(stack, "optimizer", &Stack::optimizer, 0.8, 5));
    all.push_back(of_stack(stack, "jitter", &Stack::jitter, 0, 0.05));
  }
  all.push_back(of_stack("deepspeed-2021", "data_rate", &Stack::data_rate, 0.02, 1));
  all.push_back(of_stack("fsdp", "contention", &Stack::contention, 0, 1));
  all.push_back(of_stack("fsdp", "attention", &Stack::attention, 0.7, 2));
  return all;
}

double error_of(const Runs& runs) {
  double sum = 0;
  int count = 0;
  for (const PublishedRun& run : runs) {
    if (!run.reason.empty() || run.seconds <= 0) continue;
    const double predicted = Pricer(run.job, run.machine, run.stack).price(run.layout).seconds;
    sum += std::abs(predicted / run.seconds - 1);
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

void set(const Knob& knob, Runs& runs, double value) {
  for (PublishedRun& run : runs) {
    if (double* field = knob.field(run)) *field = value;
  }
}

// Steps up and down in parts of the range that halve until nothing is gained any more.
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
        one.before = one.after = *field;
        ++one.runs;
      }
    }
    fitted.push_back(one);
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
        fitted[i].after = improved(knobs()[i], users, fitted[i].after, step, error);
        set(knobs()[i], train, fitted[i].after);
      }
    }
  }
  for (size_t i = 0; i < fitted.size(); ++i) {
    if (fitted[i].runs > 0) set(knobs()[i], apply, fitted[i].after);
  }
  return fitted;
}

namespace {

// Runs of `group` with constants fitted to all others.
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
