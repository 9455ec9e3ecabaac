// SPDX-License-Identifier: Apache-2.0
#include "train/record/steps/recent_steps.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using base::Json;
using engine::StepSignals;

Json json_of(int64_t step, const StepSignals& s) {
  return Json::array({step, s.mean_loss, s.loss_min, s.loss_median, s.loss_max, s.grad_norm,
                      s.clip_limit, s.learning_rate, s.update_norm, s.loss_scale, s.next_loss_scale,
                      s.was_skipped, s.was_clipped, s.tokens, s.masked, s.padding,
                      s.layer_grad_norms});
}

// JSON has neither of infinity and NaN; a null stands for them.
template <class Number>
void read(const Json& json, Number& number) {
  number = json.is_null() ? std::numeric_limits<Number>::quiet_NaN() : json.get<Number>();
}

StepSignals signals_from(const Json& list) {
  StepSignals s;
  size_t at = 1;
  for (double* value : {&s.mean_loss, &s.loss_min, &s.loss_median, &s.loss_max}) {
    read(list.at(at++), *value);
  }
  for (float* value : {&s.grad_norm, &s.clip_limit, &s.learning_rate, &s.update_norm, &s.loss_scale,
                       &s.next_loss_scale}) {
    read(list.at(at++), *value);
  }
  for (bool* value : {&s.was_skipped, &s.was_clipped}) list.at(at++).get_to(*value);
  for (int64_t* value : {&s.tokens, &s.masked, &s.padding}) list.at(at++).get_to(*value);
  for (const Json& norm : list.at(at)) read(norm, s.layer_grad_norms.emplace_back());
  return s;
}

}  // namespace

void RecentSteps::add(int64_t step, const StepSignals& signals) {
  steps_.insert_or_assign(step, signals);
  if (steps_.size() > max_steps) steps_.erase(steps_.begin());
}

std::string RecentSteps::text(int64_t first, int64_t last) const {
  Json list = Json::array();
  for (auto at = steps_.lower_bound(first); at != steps_.end() && at->first <= last; ++at) {
    list.push_back(json_of(at->first, at->second));
  }
  return list.dump();
}

StepSignals signals_of_state(const kernels::StepState& state) {
  return {.mean_loss = state.mean_loss,
          .loss_min = state.mean_loss,
          .loss_median = state.mean_loss,
          .loss_max = state.mean_loss,
          .grad_norm = state.grad_norm,
          .clip_limit = state.clip_limit,
          .learning_rate = state.learning_rate,
          .loss_scale = state.step_scale,
          .next_loss_scale = state.step_scale > 0 ? state.loss_scale : 0,
          .was_skipped = state.skip != 0,
          .was_clipped = state.skip == 0 && state.grad_norm > state.clip_limit,
          .tokens = state.tokens,
          .layer_grad_norms = {}};
}

std::map<int64_t, StepSignals> steps_in(const std::string& text) {
  std::map<int64_t, StepSignals> steps;
  for (const Json& one : Json::parse(text)) {
    steps[one.at(0).get<int64_t>()] = signals_from(one);
  }
  return steps;
}

int64_t last_recorded_step(const std::filesystem::path& run_folder) {
  constexpr std::streamoff max_tail = 256 << 10;  // many lines
  std::ifstream file(run_folder / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - max_tail));
  const std::string tail((std::istreambuf_iterator<char>(file)), {});
  for (size_t end = tail.rfind('\n'); end != std::string::npos && end > 0;) {
    const size_t before = tail.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    const Json line = Json::parse(tail.substr(begin, end - begin), nullptr, false);
    if (line.is_object() && line.contains("loss_metrics/global_avg_loss")) {
      return line.value("step", int64_t{0});
    }
    end = before;
  }
  return 0;
}

}  // namespace trireme::train
