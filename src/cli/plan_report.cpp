// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.h"

#include <algorithm>

#include "obs/number_text.h"
#include "train/checkpointer.h"
#include "train/throughput.h"

namespace trireme::cli {
namespace {

using plan::Item;
using plan::Proposal;
using plan::Term;

double peak_of(const spec::Processor& p, plan::Precision precision) {
  switch (precision) {
    case plan::Precision::fp32:
      return p.fp32_flops;
    case plan::Precision::fp8:
      return p.fp8_flops;
    case plan::Precision::fp4:
      return p.fp4_flops;
    default:
      return p.bf16_flops;
  }
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes / 1e9); }

std::string memory_line(const PlanQuestion& q, const Proposal& p) {
  return fmt::format("{} of {} a processor", gigabytes(p.confirmed.bytes),
                     gigabytes(q.machine.processor.memory_bytes));
}

std::string headline(const PlanQuestion& q, const Proposal& p) {
  const PlanRates rates = plan_rates(q, p);
  return fmt::format("{:.4g} s a step (+-{:.0f} %), {} tokens/s, MFU {:.1f} %, HFU {:.1f} %; {}",
                     p.confirmed.seconds, 100 * p.band.time, obs::grouped(rates.tokens, 0),
                     100 * rates.mfu, 100 * rates.hfu, memory_line(q, p));
}

void add_terms(std::string& text, const Proposal& p) {
  text += "time      of the rank that is last, in seconds a step\n";
  for (size_t i = 0; i < p.price.seconds_of.size(); ++i) {
    const double seconds = p.price.seconds_of[i];
    if (seconds <= 0) continue;
    text += fmt::format("          {:10} {:>10.4g} {:>5.1f} %  {}\n",
                        plan::name_of(static_cast<Term>(i)), seconds,
                        100 * seconds / p.price.seconds, plan::meaning_of(static_cast<Term>(i)));
  }
  text += fmt::format("          {:10} {:>10.4g}", "sum", p.price.seconds);
  text += p.layout.pp > 1 && p.confirmed.has_plan
              ? fmt::format("; with the pipeline simulated {:.4g}\n", p.confirmed.seconds)
              : "\n";
}

void add_memory(std::string& text, const PlanQuestion& q, const Proposal& p) {
  text += "memory    of the rank that needs the most\n";
  const auto row = [&text](std::string_view name, double bytes) {
    if (bytes > 0) text += fmt::format("          {:12} {:>10}\n", name, gigabytes(bytes));
  };
  if (p.confirmed.has_plan) {
    // To the byte, as the engine takes it.
    const spec::MemoryTable& m = p.confirmed.plan.predicted.largest();
    row("weights", static_cast<double>(m.params));
    row("gradients", static_cast<double>(m.grads));
    row("optimizer", static_cast<double>(m.optim));
    row("activations", static_cast<double>(m.stash()));
    row("scratch", static_cast<double>(m.scratch));
    row("transfers", static_cast<double>(m.comm));
    row("batches", static_cast<double>(m.staging));
    row("libraries", q.machine.processor.reserved_bytes);
  } else {
    for (size_t i = 0; i < p.price.bytes_of.size(); ++i) {
      row(plan::name_of(static_cast<Item>(i)), p.price.bytes_of[i]);
    }
  }
}

void add_candidates(std::string& text, const char* label, const std::vector<plan::Candidate>& list,
                    double best, size_t most) {
  for (size_t i = 0; i < std::min(most, list.size()); ++i) {
    const plan::Candidate& c = list[i];
    text += fmt::format("{:10}{:+6.1f} %  {:>9.4g} s  {:>8}  {}\n", i == 0 ? label : "",
                        100 * (c.price.seconds / best - 1), c.price.seconds,
                        gigabytes(c.price.bytes), plan::words(c.layout));
  }
}

void add_proposal(std::string& text, const char* label, const PlanQuestion& q, const Proposal& p) {
  text += fmt::format("{:10}{}\n", label, plan::words(p.layout));
  if (!fits(q, p)) {
    text += fmt::format("          does not fit: {:.1f} of {}\n", p.confirmed.bytes / 1e9,
                        gigabytes(q.machine.processor.memory_bytes));
  }
  text += fmt::format("          {}\n", headline(q, p));
  if (!p.confirmed.problem.empty()) {
    text += fmt::format("          the engine does not run it: {}\n", p.confirmed.problem);
  }
}

}  // namespace

bool fits(const PlanQuestion& q, const Proposal& p) {
  return p.confirmed.bytes <= q.machine.processor.memory_bytes;
}

PlanRates plan_rates(const PlanQuestion& q, const Proposal& p) {
  PlanRates rates;
  const double seconds = p.confirmed.seconds;
  rates.tokens = static_cast<double>(q.job.tokens()) / seconds;
  const double peak =
      peak_of(q.machine.processor, p.layout.precision) * static_cast<double>(p.layout.processors());
  const double flops = q.job.experts ? p.price.model_flops
                                     : train::formula_flops_per_token(q.job.model, q.job.seq_len) *
                                           static_cast<double>(q.job.tokens());
  if (peak > 0) rates.mfu = flops / seconds / peak;
  rates.hfu = rates.mfu * p.price.hardware_flops / p.price.model_flops;
  return rates;
}

PlanPhases plan_phases(const PlanQuestion& q, const Proposal& p) {
  const spec::Plan& plan = p.confirmed.plan;
  const spec::MemoryTable& m = plan.predicted.largest();
  PlanPhases phases;
  const double libraries = q.machine.processor.reserved_bytes;
  // All memory is taken before the first step; a checkpoint is read through host memory.
  phases.start = static_cast<double>(m.total()) + libraries;
  phases.load = phases.start;
  phases.step = phases.start;
  // The first rank of each stage; ranks along pp are furthest apart.
  const int ranks_of_stage = p.layout.tp * p.layout.cp * p.layout.dp;
  for (int stage = 0; stage < p.layout.pp; ++stage) {
    const int64_t bytes =
        train::Checkpointer::memory_bytes(q.job.model, plan, stage * ranks_of_stage, false);
    phases.save_host = std::max(phases.save_host, static_cast<double>(bytes));
  }
  return phases;
}

std::string answer_text(const PlanQuestion& q, const plan::Answer& answer, const PlanAsked& asked,
                        bool is_long) {
  const auto parameters = static_cast<double>(spec::parameter_count(q.job.model));
  std::string text = fmt::format(
      "question  {}{} on {} x {} in domains of {}: {} sequences of {} tokens a step{}{}\n",
      q.job.model.name, q.job.experts ? "" : fmt::format(" ({:.3g} parameters)", parameters),
      obs::grouped(q.processors), q.machine.name, q.machine.domain.size,
      obs::grouped(q.job.global_batch), obs::grouped(q.job.seq_len),
      q.stack.grad_bytes < 4 ? ", gradients in bf16" : "",
      plan::master_of(q.stack, plan::Precision::bf16) == base::DType::u16
          ? ", master weights in u16"
          : "");
  for (const std::string& line : q.taken) text += fmt::format("taken     {}\n", line);
  for (const std::string& line : q.ignored) text += fmt::format("not seen  {}\n", line);
  if (asked.layout) {
    add_proposal(text, "yours", q, *asked.layout);
    if (is_long) add_terms(text, *asked.layout);
    add_candidates(text, "better", asked.better, asked.layout->price.seconds, 3);
  }
  const plan::SearchResult& found = answer.search;
  if (answer.best) {
    const Proposal& best = *answer.best;
    add_proposal(text, "answer", q, best);
    if (q.job.critical_batch_tokens > 0) {
      text += fmt::format(
          "batch     {} tokens: {:.0f} % of the progress by token of a small batch, by a critical "
          "batch of {}\n",
          obs::grouped(q.job.tokens()), 100 * plan::batch_efficiency(q.job),
          obs::grouped(q.job.critical_batch_tokens, 0));
    }
    for (const std::string& warning : best.band.warnings) {
      text += fmt::format("beware    {}\n", warning);
    }
    add_terms(text, best);
    add_memory(text, q, best);
    if (best.confirmed.has_plan) {
      const PlanPhases phases = plan_phases(q, best);
      text += fmt::format(
          "phases    start, load and step {} on the device, all taken before the first step; save "
          "{} of host memory\n",
          gigabytes(phases.step), gigabytes(phases.save_host));
    }
    const plan::Textbook& recipe = answer.textbook;
    for (size_t i = 0; i < recipe.steps.size(); ++i) {
      text += fmt::format("{:10}{}: {}\n", i == 0 ? "recipe" : "", recipe.steps[i].what,
                          recipe.steps[i].why);
    }
    if (recipe.layout && answer.textbook_price) {
      text += fmt::format("          {:.4g} s a step, {:+.1f} %\n", answer.textbook_price->seconds,
                          100 * (answer.textbook_price->seconds / best.price.seconds - 1));
      for (const std::string& line :
           plan::departures(*recipe.layout, *answer.textbook_price, best.layout, best.price)) {
        text += fmt::format("          here: {}\n", line);
      }
    }
    add_candidates(text, "others", found.alternatives, best.price.seconds, is_long ? 99 : 5);
    for (size_t i = 0; i < answer.smaller.size(); ++i) {
      const plan::Smaller& s = answer.smaller[i];
      text += fmt::format("{:10}{} x: {:.4g} s, {:.0f} % of the throughput by processor: {}\n",
                          i == 0 ? "fewer" : "", s.processors, s.best.price.seconds,
                          100 * best.price.seconds * static_cast<double>(q.processors) /
                              (s.best.price.seconds * static_cast<double>(s.processors)),
                          plan::words(s.best.layout));
    }
  } else {
    text += fmt::format("answer    nothing fits {} of memory\n",
                        gigabytes(q.machine.processor.memory_bytes * q.memory_fraction));
    for (size_t i = 0; i < answer.changes.size(); ++i) {
      text += fmt::format("{:10}{}\n", i == 0 ? "change" : "", answer.changes[i]);
    }
  }
  size_t shown = 0;
  for (const plan::Rejected& r : found.rejected) {
    if (!is_long && shown == 6) {
      text +=
          fmt::format("          and {} more; --long lists them\n", found.rejected.size() - shown);
      break;
    }
    text += fmt::format("{:10}tp {} pp {}{}{}: {}\n", shown == 0 ? "rejected" : "", r.tp, r.pp,
                        r.cp > 1 ? fmt::format(" cp {}", r.cp) : "",
                        r.ep > 1 ? fmt::format(" ep {}", r.ep) : "", r.reason);
    ++shown;
  }
  text += fmt::format(
      "search    {} layouts: {} priced, {} of them too large, {} against a rule; {:.2f} s\n",
      obs::grouped(found.layouts), obs::grouped(found.priced), obs::grouped(found.too_large),
      obs::grouped(found.pruned), found.seconds);
  return text;
}

std::string comparison_text(const PlanQuestion& q, const Proposal& a, const Proposal& b) {
  std::string text;
  add_proposal(text, "A", q, a);
  add_proposal(text, "B", q, b);
  text += fmt::format("{:10}{:>12}{:>12}{:>12}\n", "seconds", "A", "B", "B - A");
  for (size_t i = 0; i < a.price.seconds_of.size(); ++i) {
    const double x = a.price.seconds_of[i], y = b.price.seconds_of[i];
    if (x <= 0 && y <= 0) continue;
    text +=
        fmt::format("{:10}{:>12.4g}{:>12.4g}{:>+12.4g}  {}\n", plan::name_of(static_cast<Term>(i)),
                    x, y, y - x, plan::meaning_of(static_cast<Term>(i)));
  }
  text += fmt::format("{:10}{:>12.4g}{:>12.4g}{:>+12.4g}\n", "sum", a.price.seconds,
                      b.price.seconds, b.price.seconds - a.price.seconds);
  text += fmt::format("{:12}{:>10}{:>12}{:>12}\n", "gigabytes", "A", "B", "B - A");
  for (size_t i = 0; i < a.price.bytes_of.size(); ++i) {
    const double x = a.price.bytes_of[i] / 1e9, y = b.price.bytes_of[i] / 1e9;
    text += fmt::format("{:12}{:>10.2f}{:>12.2f}{:>+12.2f}\n", plan::name_of(static_cast<Item>(i)),
                        x, y, y - x);
  }
  const double ratio = b.price.seconds / a.price.seconds;
  text += fmt::format("{} is {:.1f} % faster\n", ratio > 1 ? "A" : "B",
                      100 * (std::max(ratio, 1 / ratio) - 1));
  return text;
}

}  // namespace trireme::cli
