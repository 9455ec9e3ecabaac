// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "ckpt/memory/kept_copies.h"
#include "cli/plan/plan_words.h"
#include "config/config.h"
#include "train/checkpointing/checkpointer.h"
#include "train/report/throughput.h"
#include "train/run/state/copied_state.h"
#include "train/setup/host/host_buffers.h"

namespace trireme::cli {
namespace {

using plan::Item;
using plan::Proposal;

double peak_of(const spec::Processor& p, spec::Precision precision) {
  switch (precision) {
    case spec::Precision::fp32:
      return p.fp32_flops;
    case spec::Precision::fp8:
    case spec::Precision::fp8_block:
    case spec::Precision::fp8_delayed:
      return p.fp8_flops;
    case spec::Precision::fp4:
      return p.fp4_flops;
    default:
      return p.bf16_flops;
  }
}

PlanRates rates_of(const PlanQuestion& q, const Proposal& p) {
  PlanRates rates;
  const double seconds = p.confirmed.seconds;
  rates.tokens = static_cast<double>(q.job.tokens()) / seconds;
  const double peak =
      peak_of(q.machine.processor, p.layout.precision) * static_cast<double>(p.layout.ranks());
  const double flops = train::formula_flops_per_token(q.job.model, q.job.seq_len) *
                       static_cast<double>(q.job.tokens());
  if (peak > 0) rates.mfu = flops / seconds / peak;
  rates.hfu = rates.mfu * p.price.hardware_flops / p.price.model_flops;
  return rates;
}

int64_t whole_bytes(double bytes) { return std::llround(bytes); }

const char* meaning_of(Item item) {
  switch (item) {
    case Item::weights:
      return "parameters";
    case Item::gradients:
      return "accumulated over the micro-batches";
    case Item::optimizer:
      return "master weights and moments";
    case Item::activations:
      return "saved in forward for backward";
    case Item::working:
      return "scratch memory of operations";
    case Item::transfers:
      return "communication buffers";
    default:
      return "context and libraries";
  }
}

std::vector<MemoryItem> items_of(const PlanQuestion& q, const Proposal& p) {
  std::vector<MemoryItem> items;
  const auto add = [&](Item item, int64_t bytes) {
    items.push_back({std::string(plan::name_of(item)), meaning_of(item), bytes});
  };
  if (!p.is_engine_plan) {
    for (size_t i = 0; i < p.price.bytes_of.size(); ++i) {
      add(static_cast<Item>(i), whole_bytes(p.price.bytes_of[i]));
    }
    return items;
  }
  const spec::MemoryTable& m = p.confirmed.plan.predicted.largest();
  add(Item::weights, m.params);
  add(Item::gradients, m.grads);
  add(Item::optimizer, m.optim);
  add(Item::activations, m.stash());
  add(Item::working, m.scratch);
  add(Item::transfers, m.comm);
  items.push_back({"batches", "tokens of the next micro-batches", m.staging});
  add(Item::reserved, whole_bytes(q.machine.processor.reserved_bytes));
  return items;
}

// All device memory is allocated before the first step; a checkpoint is loaded through host memory.
PlanPhases phases_of(const PlanQuestion& q, const Proposal& p, int64_t bytes) {
  PlanPhases phases{.start = bytes,
                    .load = bytes,
                    .step = bytes,
                    .buffers_host = train::host_buffer_bytes(p.confirmed.plan)};
  // The first rank of each stage: ranks differ most along pp.
  const int ranks_of_stage = p.layout.tp * p.layout.cp * p.layout.data_ranks();
  for (int stage = 0; stage < p.layout.pp; ++stage) {
    phases.save_host = std::max(phases.save_host,
                                train::Checkpointer::memory_bytes(q.job.model, p.confirmed.plan,
                                                                  stage * ranks_of_stage, false));
    const int rank = stage * ranks_of_stage;
    const train::CopyLayout copy = train::copy_layout(q.job.model, p.confirmed.plan, rank);
    const auto buffers = static_cast<int>(config::Elastic{}.peer_buffers);
    phases.copies_host = std::max(phases.copies_host, train::copies_bytes(copy, rank, buffers));
    const ckpt::CopyShape shape = train::shape_of(copy, rank, buffers);
    phases.kept_host =
        std::max(phases.kept_host, ckpt::KeptCopies::memory_bytes(std::span(&shape, 1)));
  }
  return phases;
}

std::optional<plan::RunCost> run_of(const PlanQuestion& q, const Proposal& p) {
  if (!q.run_tokens) return {};
  return plan::run_cost({.tokens = *q.run_tokens,
                         .step_tokens = q.job.tokens(),
                         .step_seconds = p.confirmed.seconds,
                         .gpus = p.layout.ranks(),
                         .dollars_per_gpu_hour = q.dollars_per_gpu_hour});
}

}  // namespace

PlannedLayout planned_layout(const PlanQuestion& q, const Proposal& p) {
  PlannedLayout planned;
  planned.proposal = p;
  planned.price = plan::confirmed_price(p.price, p.confirmed);
  planned.rates = rates_of(q, p);
  planned.items = items_of(q, p);
  for (const MemoryItem& item : planned.items) planned.bytes += item.bytes;
  planned.fits = static_cast<double>(planned.bytes) <= q.machine.processor.memory_bytes;
  if (p.is_engine_plan) planned.phases = phases_of(q, p, planned.bytes);
  planned.run = run_of(q, p);
  return planned;
}

PlanReport plan_report(const PlanQuestion& q, plan::Answer answer,
                       const std::optional<Proposal>& asked, const std::vector<Proposal>& better) {
  PlanReport report;
  report.question = q;
  const auto one = [&q](const std::optional<Proposal>& p) -> std::optional<PlannedLayout> {
    if (!p) return {};
    return planned_layout(q, *p);
  };
  const auto all = [&q](const std::vector<Proposal>& list) {
    std::vector<PlannedLayout> planned;
    for (const Proposal& p : list) planned.push_back(planned_layout(q, p));
    return planned;
  };
  report.asked = one(asked);
  report.better = all(better);
  report.best = one(answer.best);
  report.nearest = one(answer.nearest);
  report.textbook = one(answer.textbook_proposal);
  report.passed_over = all(answer.passed_over);
  report.others = all(answer.others);
  for (const plan::Smaller& s : answer.smaller) {
    report.smaller.push_back(planned_layout(q, s.best));
  }
  for (const plan::Change& c : answer.changes) {
    report.changes.push_back({c.what, planned_layout(q, c.proposal)});
  }
  for (const plan::OfPrecision& own : answer.precisions) {
    report.precisions.push_back({own.precision, one(own.best), own.reason});
  }
  report.answer = std::move(answer);
  return report;
}

std::optional<double> fixed_order_seconds(const PlanQuestion& q, const PlannedLayout& p) {
  if (!plan::sums_in_fixed_order(q.job, q.stack)) return {};
  plan::Job other = q.job;
  other.fixed_order = false;
  const plan::Layout& layout = p.proposal.layout;
  return plan::Pricer(q.job, q.machine, q.stack).price(layout).seconds -
         plan::Pricer(other, q.machine, q.stack).price(layout).seconds;
}

int64_t bytes_of(const PlannedLayout& p, std::string_view item) {
  const auto at = std::ranges::find(p.items, item, &MemoryItem::name);
  return at == p.items.end() ? 0 : at->bytes;
}

double throughput_share(const PlanReport& r, const PlannedLayout& p) {
  const auto gpus = [](const PlannedLayout& l) {
    return static_cast<double>(l.proposal.layout.ranks());
  };
  return r.best->seconds() * gpus(*r.best) / (p.seconds() * gpus(p));
}

std::vector<std::string> departures_of(const PlanReport& r) {
  return plan::departures(r.textbook->proposal.layout, r.textbook->price, r.best->proposal.layout,
                          r.best->price);
}

std::string change_text(const PlannedChange& change) {
  const PlannedLayout& p = change.layout;
  return fmt::format("{}: {:.4g} s a step, {}: {}{}", change.what, p.seconds(),
                     memory_text(static_cast<double>(p.bytes)), named_layout(p.proposal.layout),
                     p.run ? "; " + run_text(*p.run) : "");
}

std::string rejection_text(const PlanQuestion& q, const plan::Rejected& r) {
  if (r.missing_bytes <= 0) return r.reason;
  const double room = q.machine.processor.memory_bytes * q.memory_fraction;
  return fmt::format("memory: at least {} of {}", memory_text(room + r.missing_bytes),
                     memory_text(room));
}

}  // namespace trireme::cli
