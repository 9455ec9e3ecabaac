// SPDX-License-Identifier: Apache-2.0
#include "analysis/predicted_terms.h"

#include <algorithm>

namespace trireme::analysis {
namespace {

// The compute time of the mean stage relative to that of the slowest; 1 if it is not predicted.
double mean_over_slowest(const base::Json& prediction) {
  const auto found = prediction.find("stage_seconds");
  if (found == prediction.end() || !found->is_array() || found->empty()) return 1;
  double sum = 0, slowest = 0;
  for (const base::Json& stage : *found) {
    if (!stage.is_number()) return 1;
    sum += stage.get<double>();
    slowest = std::max(slowest, stage.get<double>());
  }
  return slowest > 0 ? sum / (slowest * static_cast<double>(found->size())) : 1;
}

}  // namespace

std::optional<double> number_in(const base::Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return {};
  return found->get<double>();
}

PredictedTerms::PredictedTerms(const RunRecord& run, double idle_share) {
  const base::Json& prediction = run.prediction;
  model_flops_ = number_in(prediction, "model_flops").value_or(0);
  hardware_flops_ = number_in(prediction, "hardware_flops").value_or(0);
  peak_flops_ = number_in(prediction, "peak_flops").value_or(0);
  const double ranks = number_in(prediction, "ranks").value_or(1);
  devices_ = std::max(1.0, number_in(prediction, "devices").value_or(ranks));
  seconds_ = number_in(prediction, "seconds");
  if (!seconds_ || !prediction.contains("terms") || !prediction.at("terms").is_object()) return;
  const base::Json& terms = prediction.at("terms");
  const auto term = [&](const char* name) { return number_in(terms, name).value_or(0); };
  compute_ =
      term("forward") + term("backward") + term("recompute") + term("ends") + term("optimizer");
  // The plan's terms are those of the slowest stage. A mean rank computes less and waits for it.
  const double of_slowest = *compute_;
  *compute_ *= mean_over_slowest(prediction);
  const ComputeParts parts = parts_of(*compute_, idle_share);
  terms_[parts.is_of_peak ? "useful" : "compute"] = parts.useful;
  terms_["kernels"] = parts.kernels;
  terms_["padding"] = parts.padding;
  terms_["recompute"] = parts.recompute;
  terms_["tp"] = term("tensor");
  terms_["cp"] = term("context");
  terms_["ep"] = term("expert");
  terms_["data"] = term("data");
  terms_["pp"] = term("messages");
  terms_["bubble"] = term("bubble") + of_slowest - *compute_;
  terms_["late"] = term("jitter");
  terms_["host"] = term("host");
  terms_["rest"] = term("rest");
}

std::optional<double> PredictedTerms::at(const std::string& id) const {
  if (!compute_) return {};
  const auto found = terms_.find(id);
  return found == terms_.end() ? 0 : found->second;
}

ComputeParts PredictedTerms::parts_of(double compute, double idle_share) const {
  ComputeParts parts;
  const double at_peak = devices_ * peak_flops_;
  const double extra = std::max(0.0, hardware_flops_ - model_flops_);
  if (at_peak > 0 && model_flops_ > 0) {
    parts.is_of_peak = true;
    parts.useful = (1 - idle_share) * model_flops_ / at_peak;
    parts.padding = idle_share * model_flops_ / at_peak;
    parts.recompute = extra / at_peak;
  } else {
    const double share = hardware_flops_ > 0 ? extra / hardware_flops_ : 0;
    parts.recompute = share * compute;
    parts.padding = idle_share * (compute - parts.recompute);
    parts.useful = compute - parts.recompute - parts.padding;
  }
  parts.kernels = parts.is_of_peak ? compute - parts.useful - parts.padding - parts.recompute : 0;
  return parts;
}

}  // namespace trireme::analysis
