// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/numerics_watch.h"

#include <algorithm>

#include "base/text/json.h"

namespace trireme::train {

std::optional<Fallback> fallback_from_name(std::string_view name) {
  if (name == "off") return Fallback::off;
  if (name == "warn") return Fallback::warn;
  if (name == "bf16") return Fallback::bf16;
  return {};
}

BlockSet set_of(std::span<const int> blocks) {
  BlockSet set;
  for (const int block : blocks) set.set(static_cast<size_t>(block));
  return set;
}

std::vector<int> list_of(const BlockSet& set) {
  std::vector<int> blocks;
  for (size_t block = 0; block < set.size(); ++block) {
    if (set.test(block)) blocks.push_back(static_cast<int>(block));
  }
  return blocks;
}

// A block stays in bf16 twice as long each time.
bool NumericsWatch::is_over(const Fallen& of, int64_t step) const {
  constexpr int64_t max_doublings = 20;
  return options_.return_steps > 0 &&
         step - of.step >= options_.return_steps << std::min(of.times - 1, max_doublings);
}

NumericsWatch::Decision NumericsWatch::add(int64_t step, std::span<const LayerFigures> layers) {
  if (options_.fallback == Fallback::off) return {};
  Decision decision{.alarms = alarm_.add(step, layers), .to_bf16 = {}, .to_fp8 = {}};
  if (options_.fallback != Fallback::bf16 || is_refused_) return decision;
  for (const DriftFinding& finding : decision.alarms) {
    const int block = finding.layer - 1;
    Fallen& of =
        fallen_.try_emplace(block, Fallen{.is_out = false, .step = 0, .times = 0}).first->second;
    of = {.is_out = true, .step = step, .times = of.times + 1};
    alarm_.forget(finding.layer);
    decision.to_bf16.push_back(block);
  }
  for (auto& [block, of] : fallen_) {
    if (!of.is_out || !is_over(of, step)) continue;
    of.is_out = false;
    decision.to_fp8.push_back(block);
  }
  return decision;
}

void NumericsWatch::refuse(const Decision& decision) {
  for (const int block : decision.to_bf16) fallen_.at(block).is_out = false;
  for (const int block : decision.to_fp8) fallen_.at(block).is_out = true;
  is_refused_ = true;
}

std::vector<int> NumericsWatch::fallen() const {
  std::vector<int> blocks;
  for (const auto& [block, of] : fallen_) {
    if (of.is_out) blocks.push_back(block);
  }
  return blocks;
}

void NumericsWatch::release(std::span<const int> blocks) {
  for (const int block : blocks) fallen_.erase(block);
}

void NumericsWatch::assume_fallen(std::span<const int> blocks, int64_t step) {
  for (const int block : blocks) fallen_[block] = {.is_out = true, .step = step, .times = 1};
}

base::Json NumericsWatch::to_json() const {
  base::Json blocks = base::Json::array();
  for (const auto& [block, of] : fallen_) {
    blocks.push_back(
        {{"block", block}, {"in_bf16", of.is_out}, {"step", of.step}, {"times", of.times}});
  }
  return {{"fallen_back", blocks}, {"refused", is_refused_}, {"alarm", alarm_.to_json()}};
}

NumericsWatch NumericsWatch::from_json(const base::Json& json, const Options& options) {
  NumericsWatch watch(options);
  watch.is_refused_ = json.at("refused").get<bool>();
  for (const base::Json& saved : json.at("fallen_back")) {
    watch.fallen_[saved.at("block").get<int>()] = {.is_out = saved.at("in_bf16").get<bool>(),
                                                   .step = saved.at("step").get<int64_t>(),
                                                   .times = saved.at("times").get<int64_t>()};
  }
  watch.alarm_ = DriftAlarm::from_json(json.at("alarm"));
  return watch;
}

}  // namespace trireme::train
