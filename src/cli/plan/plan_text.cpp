// SPDX-License-Identifier: Apache-2.0
// Formats the report of the planner as text: one function per section, in the order of the page.
#include <algorithm>

#include "cli/plan/plan_report.h"
#include "cli/plan/plan_words.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

using plan::Term;

constexpr size_t max_rejected_shown = 6;

std::string line(const std::string& label, const std::string& text) {
  return fmt::format("{:10}{}\n", label, text);
}

// The first line has the label.
std::string lines(const std::string& label, const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += line(all.empty() ? label : "", text);
  return all;
}

std::string percent_text(double seconds, double reference) {
  return fmt::format("{:+.1f} %", 100 * (seconds / reference - 1));
}

// "89.5 of 79.1 GiB a GPU"
std::string memory_use(const PlanQuestion& q, const PlannedLayout& p, double limit) {
  return fmt::format("{} a {}", memory_share_text(static_cast<double>(p.bytes), limit),
                     gpu_word(q.machine));
}

std::string headline(const PlanQuestion& q, const PlannedLayout& p) {
  return fmt::format("{:.4g} s a step (+-{:.0f} %), {} tokens/s, MFU {:.1f} %, HFU {:.1f} %; {}",
                     p.seconds(), 100 * p.proposal.band.time, obs::grouped(p.rates.tokens, 0),
                     100 * p.rates.mfu, 100 * p.rates.hfu,
                     memory_use(q, p, q.machine.processor.memory_bytes));
}

std::string run_section(const PlanQuestion& q, const PlannedLayout& p) {
  if (!p.run) return {};
  return line("run", fmt::format("{} tokens in {} steps of {}: {}{}", amount_text(p.run->tokens),
                                 obs::grouped(p.run->steps),
                                 amount_text(static_cast<double>(q.job.tokens())), run_text(*p.run),
                                 price_text(*p.run)));
}

// One line per layout, with its time relative to `reference`.
std::string candidates(const std::string& label, const std::vector<PlannedLayout>& list,
                       double reference) {
  std::vector<std::string> texts;
  for (const PlannedLayout& p : list) {
    texts.push_back(fmt::format("{:>8}  {:>9.4g} s  {:>9}  {}{}{}",
                                percent_text(p.seconds(), reference), p.seconds(),
                                memory_text(static_cast<double>(p.bytes)),
                                p.fits ? "" : "does not fit: ", named_layout(p.proposal.layout),
                                p.run ? "; " + run_text(*p.run) : ""));
  }
  return lines(label, texts);
}

std::string experts_section(const PlanQuestion& q) {
  const spec::MoeSpec* moe = spec::moe_of(q.job.model);
  if (moe == nullptr) return {};
  const double imbalance = q.job.expert_imbalance;
  return line("experts",
              fmt::format("{} of width {}, {} a token{}; {}", obs::grouped(moe->router.experts),
                          obs::grouped(moe->ffn), moe->router.chosen,
                          moe->shared_ffn > 0 ? fmt::format(", shared ones of width {}",
                                                            obs::grouped(moe->shared_ffn))
                                              : "",
                          imbalance == 1 ? "loads of ranks balanced (--expert-imbalance prices "
                                           "uneven ones)"
                                         : fmt::format("the busiest rank along ep has {} times the "
                                                       "mean of rows",
                                                       imbalance)));
}

// "8 of 64 experts a rank; memory for 1.5 times the rows of equally busy experts"
std::string expert_ranks_section(const PlanQuestion& q, const PlannedLayout& p) {
  const spec::MoeSpec* moe = spec::moe_of(q.job.model);
  const spec::Layout& l = p.proposal.layout;
  if (moe == nullptr) return {};
  std::string text =
      fmt::format("{} of {} experts a rank", obs::grouped(moe->router.experts / l.ep),
                  obs::grouped(moe->router.experts));
  if (l.etp > 1) text += fmt::format(", each on {} ranks", l.etp);
  if (q.stack.is_engine() && l.ep * l.etp > 1) {
    text += fmt::format(
        "; row budget {}: memory and transfers for {} times the rows of equally "
        "busy experts",
        l.row_budget, l.row_budget);
  }
  return line("experts", text);
}

std::string question_section(const PlanReport& r) {
  const PlanQuestion& q = r.question;
  const auto parameters = static_cast<double>(spec::parameter_count(q.job.model));
  const auto active = static_cast<double>(spec::active_parameter_count(q.job.model));
  std::string text = fmt::format(
      "{} ({} parameters{}) on {} x {} in domains of {}: {} sequences of {} tokens a step{}{}",
      q.job.model.name, amount_text(parameters),
      active < parameters ? fmt::format(", {} active", amount_text(active)) : "",
      obs::grouped(q.gpus), q.machine.name, q.machine.domain.size, obs::grouped(q.job.global_batch),
      obs::grouped(q.job.seq_len),
      plan::grad_bytes(q.stack, q.types) < 4 ? ", gradients in bf16" : "",
      plan::master_of(q.stack, q.types) == base::DType::u16 ? ", master weights in u16" : "");
  text = line("question", text) + experts_section(q);
  for (const std::string& setting : q.assumed) text += line("assumed", setting);
  for (const std::string& setting : q.ignored) text += line("ignored", setting);
  return text;
}

// One line if the fixed order takes so long that a user may want to know.
std::string fixed_order_section(const PlanQuestion& q, const PlannedLayout& planned) {
  constexpr double least = 0.001;  // of the step
  const double seconds = fixed_order_seconds(q, planned).value_or(0);
  if (seconds < least * planned.seconds()) return {};
  return line("", fmt::format("sums over ranks in the fixed order take {:.3g} s ({:.1f} %) of it; "
                              "comm.fixed_order = false gives other bits without that",
                              seconds, 100 * seconds / planned.seconds()));
}

std::string time_section(const PlanQuestion& q, const PlannedLayout& planned) {
  const plan::Price& price = planned.price;
  std::string text = line("time", "of the slowest rank, in seconds a step");
  for (size_t i = 0; i < price.seconds_of.size(); ++i) {
    const double seconds = price.seconds_of[i];
    if (seconds <= 0) continue;
    text +=
        line("", fmt::format("{:10} {:>10.4g} {:>5.1f} %  {}", plan::name_of(static_cast<Term>(i)),
                             seconds, 100 * seconds / price.seconds,
                             plan::meaning_of(static_cast<Term>(i))));
  }
  return text +
         line("", fmt::format("{:10} {:>10.4g}{}", "sum", price.seconds,
                              price.seconds != planned.proposal.price.seconds
                                  ? "; bubble and messages are simulated"
                                  : "")) +
         fixed_order_section(q, planned);
}

std::string memory_section(const PlannedLayout& planned) {
  std::string text = line("memory", "of the rank with the highest total");
  for (const MemoryItem& item : planned.items) {
    if (item.bytes == 0) continue;
    text += line("", fmt::format("{:12} {:>10}  {}", item.name,
                                 memory_text(static_cast<double>(item.bytes)), item.meaning));
  }
  text +=
      line("", fmt::format("{:12} {:>10}", "sum", memory_text(static_cast<double>(planned.bytes))));
  if (!planned.phases) return text;
  return text +
         line("phases",
              fmt::format(
                  "start, load and step {} on the device, all allocated before the first step; "
                  "save {} of host memory, copies that outlive a process {} (elastic.peer), with "
                  "several nodes {} for those of another rank, batches and signals of steps {}",
                  memory_text(static_cast<double>(planned.phases->step)),
                  memory_text(static_cast<double>(planned.phases->save_host)),
                  memory_text(static_cast<double>(planned.phases->copies_host)),
                  memory_text(static_cast<double>(planned.phases->kept_host)),
                  memory_text(static_cast<double>(planned.phases->buffers_host))));
}

std::string warning_section(const PlannedLayout& p, const PlannedLayout* shown_elsewhere) {
  std::string text;
  for (const std::string& warning : p.proposal.band.warnings) {
    if (shown_elsewhere != nullptr &&
        std::ranges::find(shown_elsewhere->proposal.band.warnings, warning) !=
            shown_elsewhere->proposal.band.warnings.end()) {
      continue;
    }
    text += line("warning", warning);
  }
  return text;
}

std::string asked_section(const PlanReport& r, bool is_long) {
  if (!r.asked) return {};
  std::string text = layout_text(r.question, "yours", *r.asked);
  text += warning_section(*r.asked, r.best ? &*r.best : nullptr);
  if (is_long) text += time_section(r.question, *r.asked) + memory_section(*r.asked);
  return text + candidates("better", r.better, r.asked->seconds());
}

std::string batch_section(const PlanQuestion& q) {
  if (q.job.critical_batch_tokens <= 0) return {};
  return line(
      "batch",
      fmt::format(
          "{} tokens: {:.0f} % of the progress per token of a small batch, with a critical batch "
          "of {} tokens",
          amount_text(static_cast<double>(q.job.tokens())), 100 * plan::batch_efficiency(q.job),
          amount_text(q.job.critical_batch_tokens)));
}

std::string passed_over_section(const PlanReport& r) {
  std::vector<std::string> texts;
  for (const PlannedLayout& p : r.passed_over) {
    const double gain = 100 * (1 - p.seconds() / r.best->seconds());
    texts.push_back(fmt::format(
        "by {}: {:.4g} s, {}: {}", gain < 0.05 ? "less than 0.1 %" : fmt::format("{:.1f} %", gain),
        p.seconds(), memory_text(static_cast<double>(p.bytes)), named_layout(p.proposal.layout)));
  }
  if (!texts.empty()) {
    texts.push_back(fmt::format("the answer is the simplest layout within {:.1f} % of it",
                                100 * r.answer.tolerance));
  }
  return lines("fastest", texts);
}

// States why a recipe of fewer bits that was allowed is not the answer.
std::string declined_text(const PlanReport& r, const PlannedPrecision& own) {
  const double gain = 1 - own.best->seconds() / r.best->seconds();
  const std::string_view name = spec::name_of(own.precision);
  if (gain <= 0) {
    return fmt::format("{} does not pay: its products save less time than quantising costs", name);
  }
  return fmt::format("{} gains {:.1f} %; up to {:.1f} % the answer is the simpler recipe", name,
                     100 * gain, 100 * r.answer.tolerance);
}

std::string precisions_section(const PlanReport& r) {
  std::vector<std::string> texts, declined;
  const spec::Precision answer = r.best->proposal.layout.precision;
  for (const PlannedPrecision& own : r.precisions) {
    const std::string_view name = spec::name_of(own.precision);
    if (!own.best) {
      texts.push_back(fmt::format("{:11}  no layout: {}", name, own.reason));
      continue;
    }
    texts.push_back(fmt::format("{:11} {:>8}  {:>9.4g} s  {:>9}  {}", name,
                                percent_text(own.best->seconds(), r.best->seconds()),
                                own.best->seconds(),
                                memory_text(static_cast<double>(own.best->bytes)),
                                named_layout(own.best->proposal.layout)));
    if (spec::is_fp8(own.precision) && !spec::is_fp8(answer)) {
      declined.push_back(declined_text(r, own));
    }
  }
  texts.insert(texts.end(), declined.begin(), declined.end());
  return lines("recipes", texts);
}

std::string textbook_section(const PlanReport& r) {
  std::vector<std::string> texts;
  for (const plan::TextbookStep& step : r.answer.textbook.steps) {
    texts.push_back(fmt::format("{}: {}", step.what, step.why));
  }
  if (r.textbook) {
    texts.push_back(fmt::format("{}{:.4g} s a step, {}",
                                r.textbook->fits ? "" : "does not fit: ", r.textbook->seconds(),
                                percent_text(r.textbook->seconds(), r.best->seconds())));
    for (const std::string& departure : departures_of(r)) texts.push_back("here: " + departure);
  }
  return lines("textbook", texts);
}

std::string fewer_section(const PlanReport& r) {
  std::vector<std::string> texts;
  for (const PlannedLayout& p : r.smaller) {
    texts.push_back(fmt::format("{}: {:.4g} s, {:.0f} % of the throughput a {}: {}{}",
                                gpus_text(r.question.machine, p.proposal.layout.ranks()),
                                p.seconds(), 100 * throughput_share(r, p),
                                gpu_word(r.question.machine), named_layout(p.proposal.layout),
                                p.run ? "; " + run_text(*p.run) : ""));
  }
  if (texts.empty()) return {};
  return fmt::format("with fewer {}s\n", gpu_word(r.question.machine)) + lines("", texts);
}

std::string best_section(const PlanReport& r) {
  return layout_text(r.question, "answer", *r.best) + passed_over_section(r) +
         precisions_section(r) + batch_section(r.question) +
         expert_ranks_section(r.question, *r.best) + warning_section(*r.best, nullptr) +
         time_section(r.question, *r.best) + memory_section(*r.best) + textbook_section(r) +
         candidates("others", r.others, r.best->seconds()) + fewer_section(r);
}

std::string nothing_fits_section(const PlanReport& r) {
  const PlanQuestion& q = r.question;
  const double room = q.machine.processor.memory_bytes * q.memory_fraction;
  std::string text;
  if (r.nearest && r.nearest->proposal.confirmed.problem.empty()) {
    text = line("answer", fmt::format("does not fit: {} with the layout that needs the least: {}",
                                      memory_use(q, *r.nearest, room),
                                      named_layout(r.nearest->proposal.layout)));
  } else {
    text = line("answer", fmt::format("does not fit: no layout needs at most {} a {}",
                                      memory_text(room), gpu_word(q.machine)));
  }
  if (r.answer.state) {
    const plan::StateNeed& need = *r.answer.state;
    const auto gpus = static_cast<double>(q.gpus);
    const std::string each = q.gpus == 1
                                 ? ""
                                 : fmt::format(", {} on each of {}", memory_text(need.bytes / gpus),
                                               gpus_text(q.machine, q.gpus));
    text += line("state", fmt::format("weights, gradients and optimizer need {} ({} bytes for each "
                                      "of {} parameters){}; at least "
                                      "{} can hold them",
                                      memory_text(need.bytes), need.bytes_per_parameter,
                                      amount_text(need.parameters), each,
                                      gpus_text(q.machine, need.min_gpus)));
  }
  std::vector<std::string> texts;
  for (const PlannedChange& change : r.changes) texts.push_back(change_text(change));
  if (texts.empty()) texts.emplace_back("no change that was tried makes it fit");
  return text + lines("change", texts);
}

std::string rejected_section(const PlanReport& r, bool is_long) {
  std::vector<std::string> texts;
  const std::vector<plan::Rejected>& all = r.answer.search.rejected;
  for (const plan::Rejected& one : all) {
    if (!is_long && texts.size() == max_rejected_shown) {
      texts.push_back(
          fmt::format("and {} more; give --long to list them", all.size() - texts.size()));
      break;
    }
    texts.push_back(fmt::format(
        "tp {} pp {}{}{}: {}", one.tp, one.pp, one.cp > 1 ? fmt::format(" cp {}", one.cp) : "",
        one.ep > 1 ? fmt::format(" ep {}", one.ep) : "", rejection_text(r.question, one)));
  }
  return lines("rejected", texts);
}

std::string search_section(const plan::SearchResult& found) {
  return line(
      "search",
      fmt::format("{} layouts: {} priced, {} of them too large, {} ruled out; {:.2f} s",
                  obs::grouped(found.layouts), obs::grouped(found.priced),
                  obs::grouped(found.too_large), obs::grouped(found.pruned), found.seconds));
}

}  // namespace

std::string layout_text(const PlanQuestion& q, const std::string& label, const PlannedLayout& p) {
  std::string text =
      line(label, p.fits ? named_layout(p.proposal.layout)
                         : fmt::format("does not fit: {}: {}",
                                       memory_use(q, p, q.machine.processor.memory_bytes),
                                       named_layout(p.proposal.layout)));
  text += line("", headline(q, p));
  if (!p.proposal.confirmed.problem.empty()) {
    text += line("", "the engine cannot run it: " + p.proposal.confirmed.problem);
  }
  return text + run_section(q, p);
}

std::string answer_text(const PlanReport& r, bool is_long) {
  return question_section(r) + asked_section(r, is_long) +
         (r.best ? best_section(r) : nothing_fits_section(r)) + rejected_section(r, is_long) +
         search_section(r.answer.search);
}

}  // namespace trireme::cli
