// SPDX-License-Identifier: Apache-2.0
#include "analysis/diagnosis.h"

namespace trireme::analysis {
namespace {

base::Json or_null(const std::optional<double>& value) {
  return value ? base::Json(*value) : base::Json(nullptr);
}

base::Json json_of(const Waterfall& fall) {
  base::Json terms = base::Json::array();
  for (const WaterfallTerm& term : fall.terms) {
    terms.push_back({{"id", term.id},
                     {"label", term.label},
                     {"predicted", or_null(term.predicted)},
                     {"measured", term.measured}});
  }
  return {{"is_measured", fall.is_measured},
          {"first_step", fall.first_step},
          {"last_step", fall.last_step},
          {"predicted_seconds", or_null(fall.predicted_seconds)},
          {"measured_seconds", fall.measured_seconds},
          {"residual", fall.residual},
          {"terms", std::move(terms)}};
}

}  // namespace

base::Json to_json(const std::vector<Finding>& findings) {
  base::Json list = base::Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"cause", name_of(finding.cause)},
                    {"title", finding.title},
                    {"share", finding.share},
                    {"rank", finding.rank},
                    {"stage", finding.stage},
                    {"first_step", finding.first_step},
                    {"evidence", finding.evidence},
                    {"advice", finding.advice}});
  }
  return list;
}

base::Json to_json(const Diagnosis& diagnosis) {
  return {{"state", name_of(diagnosis.state)},       {"lamp", diagnosis.lamp},
          {"sentence", diagnosis.sentence},          {"outcome", to_json(diagnosis.outcome)},
          {"findings", to_json(diagnosis.findings)}, {"waterfall", json_of(diagnosis.waterfall)}};
}

}  // namespace trireme::analysis
