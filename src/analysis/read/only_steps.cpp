// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analysis/run_record.h"

namespace trireme::analysis {

RunRecord only_steps(RunRecord run, int64_t first, int64_t last) {
  const auto is_outside = [&](int64_t step) { return step < first || step > last; };
  for (auto& [tag, series] : run.series) {
    Series kept;
    for (size_t i = 0; i < series.steps.size(); ++i) {
      if (is_outside(series.steps[i])) continue;
      kept.steps.push_back(series.steps[i]);
      kept.values.push_back(series.values[i]);
    }
    series = std::move(kept);
  }
  std::erase_if(run.phases, [&](const PhaseSpan& span) {
    return span.first_step < first || span.last_step > last;
  });
  // The record before the first one is kept: it tells where the first one begins, and readers leave
  // the first record out.
  const auto begin = std::find_if(run.ranks.begin(), run.ranks.end(),
                                  [&](const auto& record) { return record.step >= first; });
  if (begin != run.ranks.begin()) {
    run.ranks.erase(run.ranks.begin(), std::prev(begin));
  }
  std::erase_if(run.ranks, [&](const obs::TableRecord& record) { return record.step > last; });
  return run;
}

}  // namespace trireme::analysis
