// SPDX-License-Identifier: Apache-2.0
// `trireme plan --days` and `--budget`: which size of model, on how many tokens, some GPUs can
// train in a time or for a sum of money. Every row is priced by the planner's search for its model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "cli/plan/plan_report.h"
#include "cli/shell/args.h"

namespace trireme::cli {

// A model trained for the whole time.
struct SizeRow {
  std::string name;
  std::string what;  // "compute-optimal", "over-trained 5 x"
  std::optional<spec::ModelDims> shape;
  PlanQuestion question;                 // of this row; run_tokens has its tokens
  std::optional<PlannedLayout> planned;  // the answer, or the layout that needs the least memory
  bool fits = false;
  std::string reason;  // why it cannot be trained so; empty if it can

  int64_t parameters() const { return spec::parameter_count(question.job.model); }
  double tokens() const { return question.run_tokens.value_or(0); }
  double tokens_per_parameter() const { return tokens() / static_cast<double>(parameters()); }
};

struct SizesReport {
  PlanQuestion question;  // without a job
  double days = 0;
  std::optional<double> budget;  // in dollars
  // One list for shapes that were made for a ratio of tokens to parameters, one for the models of
  // configs/models.
  std::vector<SizeRow> sizes, models;

  bool has_answer() const;
  // Returns what the answer assumes beside the options, as sentences.
  std::vector<std::string> assumptions() const;
};

// Does the question have no model, or no tokens? Throws ConfigError for contradicting options.
bool asks_sizes(const Args&);
SizesReport plan_sizes(const Args&, const plan::PlanProgress&);
std::string sizes_text(const SizesReport&);
base::Json sizes_json(const SizesReport&);

}  // namespace trireme::cli
