// SPDX-License-Identifier: Apache-2.0
// The measured terms are means over all ranks and over the windows of ranks.bin; the compute stream
// of a rank is in exactly one of them at any time. Waits are split by who is to blame: the rank
// that waits least was the last to arrive, so that its wait is the transfer, and what others wait
// longer is waiting for slow ranks.
#include "analysis/waterfall.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_set>

#include "analysis/pipeline_bubble.h"
#include "analysis/predicted_terms.h"
#include "analysis/rank_view.h"
#include "analysis/statistics.h"

namespace trireme::analysis {
namespace {

using obs::RankColumn;

struct WaitSplit {
  double transfer = 0, late = 0;
};

// The mean over the windows, by steps.
double windows_mean(const RankView& view, size_t rank, RankColumn column) {
  double sum = 0, steps = 0;
  for (size_t window = 0; window < view.windows(); ++window) {
    const double value = view.at(window, rank, column);
    if (std::isnan(value)) continue;
    sum += value * view.window(window).steps;
    steps += view.window(window).steps;
  }
  return steps > 0 ? sum / steps : 0;
}

double ranks_mean(const RankView& view, RankColumn column) {
  double sum = 0;
  for (size_t rank = 0; rank < view.ranks(); ++rank) sum += windows_mean(view, rank, column);
  return sum / static_cast<double>(view.ranks());
}

WaitSplit wait_along(const RankView& view, WaitAxis axis) {
  const RankColumn column = wait_column(axis);
  double late = 0, steps = 0;
  for (size_t window = 0; window < view.windows(); ++window) {
    for (const std::vector<size_t>& group : view.groups(axis)) {
      double least = view.at(window, group.front(), column), sum = 0;
      for (const size_t rank : group) {
        least = std::min(least, view.at(window, rank, column));
        sum += view.at(window, rank, column);
      }
      const double surplus = sum - least * static_cast<double>(group.size());
      if (surplus > 0) late += surplus * view.window(window).steps;
    }
    steps += view.window(window).steps;
  }
  late /= steps * static_cast<double>(view.ranks());
  return {ranks_mean(view, column) - late, late};
}

constexpr obs::Phase step_phases[] = {obs::Phase::useful,    obs::Phase::skipped,
                                      obs::Phase::repeated,  obs::Phase::data_wait,
                                      obs::Phase::straggler, obs::Phase::exposed_save};

// Host seconds per step, from the spans of these steps. A span that begins or ends outside of them
// counts by the share of its steps. Returns 0 if the spans cover less than half of the steps.
double host_step_seconds(const RunRecord& run, int64_t first_step, int64_t last_step) {
  double seconds = 0;
  int64_t steps = 0;
  for (const PhaseSpan& span : run.phases) {
    const int64_t first = std::max(first_step, span.first_step);
    const int64_t last = std::min(last_step, span.last_step);
    if (span.attempt != run.attempt || span.first_step <= 0 || last < first) continue;
    const double share = static_cast<double>(last - first + 1) /
                         static_cast<double>(span.last_step - span.first_step + 1);
    for (const obs::Phase phase : step_phases) {
      seconds += share * span.seconds[static_cast<size_t>(phase)];
    }
    steps += last - first + 1;
  }
  if (2 * steps < last_step - first_step + 1) return 0;
  return seconds / static_cast<double>(steps);
}

// Returns the run with those records of ranks that begin and end where spans of phases do, so that
// both clocks measure the same steps; all records if these have fewer than half of the steps.
RunRecord aligned_records(const RunRecord& run) {
  RunRecord part{.attempt = run.attempt};
  part.events = run.events;
  part.ranks_shape = run.ranks_shape;
  part.ranks = run.ranks;
  std::unordered_set<int64_t> ends;
  for (const PhaseSpan& span : run.phases) {
    if (span.attempt == run.attempt) ends.insert(span.last_step);
  }
  const auto is_end = [&ends](const obs::TableRecord& record) {
    return ends.contains(record.step);
  };
  const auto first = std::find_if(run.ranks.begin(), run.ranks.end(), is_end);
  const auto last = std::find_if(run.ranks.rbegin(), run.ranks.rend(), is_end);
  if (first == run.ranks.end()) return part;
  const int64_t steps = std::prev(last.base())->step - first->step;
  if (2 * steps < run.ranks.back().step - run.ranks.front().step) return part;
  part.ranks.assign(first, last.base());
  return part;
}

double series_mean(const RunRecord& run, const char* tag, const Waterfall& fall) {
  const auto found = run.series.find(tag);
  if (found == run.series.end()) return 0;
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < found->second.steps.size(); ++i) {
    if (found->second.steps[i] < fall.first_step || found->second.steps[i] > fall.last_step) {
      continue;
    }
    if (!std::isfinite(found->second.values[i])) continue;
    sum += found->second.values[i];
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double repeated_share(const RunRecord& run, const Waterfall& fall) {
  double repeated = 0, all = 0;
  for (const PhaseSpan& span : run.phases) {
    if (span.attempt != run.attempt || span.last_step < fall.first_step ||
        span.first_step > fall.last_step) {
      continue;
    }
    const double of_span = span.seconds[static_cast<size_t>(obs::Phase::repeated)];
    repeated += of_span;
    all += of_span + span.seconds[static_cast<size_t>(obs::Phase::useful)] +
           span.seconds[static_cast<size_t>(obs::Phase::straggler)];
  }
  return all > 0 ? repeated / all : 0;
}

}  // namespace

Waterfall waterfall(const RunRecord& run) {
  Waterfall fall;
  const RunRecord aligned = aligned_records(run);
  const RankView view(aligned, 1);
  if (view.windows() == 0) return fall;
  fall.is_measured = true;
  fall.first_step = view.window(0).first_step;
  fall.last_step = view.window(view.windows() - 1).last_step;
  const double device_seconds = ranks_mean(view, RankColumn::step_seconds);
  fall.measured_seconds = host_step_seconds(run, fall.first_step, fall.last_step);
  if (fall.measured_seconds <= 0) fall.measured_seconds = device_seconds;

  // ---- what the compute stream of a mean rank does
  const double compute = ranks_mean(view, RankColumn::compute_seconds);
  const double input = ranks_mean(view, RankColumn::wait_input);
  WaitSplit waits[static_cast<size_t>(WaitAxis::count)];
  double late = 0;
  for (size_t i = 0; i < static_cast<size_t>(WaitAxis::count); ++i) {
    waits[i] = wait_along(view, static_cast<WaitAxis>(i));
    if (static_cast<WaitAxis>(i) != WaitAxis::pp) late += waits[i].late;
  }
  const auto at = [&](WaitAxis axis) -> const WaitSplit& {
    return waits[static_cast<size_t>(axis)];
  };
  // Ranks wait for the schedule at receives, and at the end of the step for the last stage.
  const double bubble_seconds = pipeline_bubble(run, view);
  const double pp_wait = at(WaitAxis::pp).transfer + at(WaitAxis::pp).late;
  const double at_receives = std::min(pp_wait, bubble_seconds);
  const double at_end = std::min(late, bubble_seconds - at_receives);

  const double skipped = std::clamp(series_mean(run, "skipped", fall), 0.0, 1.0);
  const double repeated = std::clamp(repeated_share(run, fall), 0.0, 1.0 - skipped);
  const double kept = 1 - skipped - repeated;
  const double trained = series_mean(run, "tokens/trained", fall);
  const double others =
      series_mean(run, "tokens/masked", fall) + series_mean(run, "tokens/padding", fall);
  const double idle_share = trained + others > 0 ? others / (trained + others) : 0;

  const PredictedTerms predicted(run, idle_share);
  fall.predicted_seconds = predicted.seconds();
  const auto add = [&](const char* id, const char* label, double measured) {
    const std::optional<double> expected = predicted.at(id);
    if (measured == 0 && expected.value_or(0) == 0) return;
    fall.terms.push_back({id, label, expected, measured});
  };
  const ComputeParts parts = predicted.parts_of(compute, idle_share);
  if (parts.is_of_peak) {
    add("useful", "useful FLOPs at peak", kept * parts.useful);
    add("kernels", "kernels below peak", kept * parts.kernels);
  } else {
    add("compute", "compute", kept * parts.useful);
  }
  add("padding", "padding and masked tokens", kept * parts.padding);
  add("recompute", "recompute", kept * parts.recompute);
  add("tp", "tensor parallel, exposed", kept * at(WaitAxis::tp).transfer);
  add("cp", "context parallel, exposed", kept * at(WaitAxis::cp).transfer);
  add("ep", "expert parallel, exposed", kept * at(WaitAxis::ep).transfer);
  add("data", "data parallel, exposed", kept * at(WaitAxis::data).transfer);
  add("pp", "pipeline messages", kept * (pp_wait - at_receives));
  add("bubble", "pipeline bubble", kept * (at_receives + at_end));
  add("closing", "closing of the step", kept * at(WaitAxis::closing).transfer);
  add("late", "waiting for slow ranks", kept * (late - at_end));
  add("input", "upload of batches", kept * input);
  add("data_wait", "waiting for data", kept * ranks_mean(view, RankColumn::data_seconds));
  add("host", "host gaps", kept * ranks_mean(view, RankColumn::gap_seconds));
  add("saves", "checkpoints", kept * ranks_mean(view, RankColumn::save_seconds));
  add("skipped", "skipped steps", skipped * fall.measured_seconds);
  add("repeated", "repeated steps", repeated * fall.measured_seconds);
  add("rest", "data loading and logging", 0);
  fall.residual = fall.measured_seconds;
  for (const WaterfallTerm& term : fall.terms) fall.residual -= term.measured;
  return fall;
}

}  // namespace trireme::analysis
