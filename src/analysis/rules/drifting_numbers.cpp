// SPDX-License-Identifier: Apache-2.0
// Blocks whose 8-bit numbers drift, by the alarms of the run (docs/precision.md), and which are
// still in 8 bits.
#include <fmt/format.h>

#include <map>

#include "analysis/rules/rule.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

// Returns a block, or the blocks, that an event is about.
std::vector<int64_t> blocks_of(const base::Json& data) {
  std::vector<int64_t> blocks;
  if (data.contains("block") && data["block"].is_number_integer()) {
    blocks.push_back(data["block"].get<int64_t>());
  }
  if (!data.contains("blocks") || !data["blocks"].is_array()) return blocks;
  for (const base::Json& block : data["blocks"]) {
    if (block.is_number_integer()) blocks.push_back(block.get<int64_t>());
  }
  return blocks;
}

}  // namespace

Findings find_drifting_numbers(const Facts& facts) {
  std::map<int64_t, const obs::Event*> alarms;  // by block, without those in bf16 now
  for (const obs::Event& event : facts.run.events) {
    if (event.attempt != facts.run.attempt || event.kind != obs::EventKind::numerics) continue;
    if (!event.data.contains("what") || !event.data["what"].is_string()) continue;
    const auto what = event.data["what"].get<std::string>();
    for (const int64_t block : blocks_of(event.data)) {
      if (what == "alarm") alarms.try_emplace(block, &event);
      if (what == "fallback") alarms.erase(block);
    }
  }
  Findings found;
  for (const auto& [block, event] : alarms) {
    found.push_back({.cause = Cause::drifting_numbers,
                     .title = fmt::format("the 8-bit numbers of blocks.{} drift since step {}",
                                          block, obs::grouped(event->step)),
                     .first_step = event->step,
                     .evidence = {event->text},
                     .advice = fmt::format("before the loss shows it, resume with "
                                           "precision.fallback = \"bf16\", or with {} in "
                                           "precision.bf16_blocks (docs/precision.md)",
                                           block)});
  }
  return found;
}

}  // namespace trireme::analysis
