// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/epoch_state.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "comm/mesh.h"
#include "spec/parallel/shard.h"
#include "train/checkpointing/saved_state.h"
#include "train/numerics/numerics_watch.h"
#include "train/run/state/copied_state.h"

namespace trireme::train {
namespace {

bool has(const StateReport& report, int64_t step) {
  return std::ranges::any_of(report.states, [&](const auto& state) { return state.step == step; });
}

// Returns the ranks that have a state after `step` which counts, those with a live one first.
std::vector<int> holders_of(std::span<const StateReport> reports, int64_t step) {
  const bool is_everywhere =
      std::ranges::all_of(reports, [&](const StateReport& report) { return has(report, step); });
  std::vector<int> live, copies;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    bool is_live = false, is_copy = false;
    for (const HeldState& state : reports[rank].states) {
      if (state.step != step) continue;
      is_live = is_live || state.kind == HeldState::Kind::live;
      is_copy = is_copy || state.kind == HeldState::Kind::held_copy || is_everywhere;
    }
    if (is_live) {
      live.push_back(static_cast<int>(rank));
    } else if (is_copy) {
      copies.push_back(static_cast<int>(rank));
    }
  }
  live.insert(live.end(), copies.begin(), copies.end());
  return live;
}

// Returns the ranks that together have the tensors after `step`; none: they lack a box.
std::optional<std::vector<int>> sources_of(std::span<const ckpt::TensorInfo> tensors,
                                           std::span<const StateReport> reports, int64_t step) {
  const std::vector<int> holders = holders_of(reports, step);
  std::map<std::string, std::vector<std::vector<spec::Piece>>> boxes;  // by place among holders
  for (size_t place = 0; place < holders.size(); ++place) {
    for (const ckpt::TensorPieces& held : reports[static_cast<size_t>(holders[place])].boxes) {
      auto& by_place = boxes[held.tensor.name];
      by_place.resize(holders.size());
      by_place[place].insert(by_place[place].end(), held.pieces.begin(), held.pieces.end());
    }
  }
  std::set<int> sources;
  for (const ckpt::TensorInfo& tensor : tensors) {
    const spec::Piece whole{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0};
    try {
      for (const spec::Copy& copy : spec::reshard(boxes[tensor.name], {whole})) {
        sources.insert(holders[static_cast<size_t>(copy.source)]);
      }
    } catch (const base::ConfigError&) {  // a box has no holder
      return {};
    }
  }
  return std::vector<int>(sources.begin(), sources.end());
}

// Returns the boxes that a rank has under the plan: those of each range of its state.
std::vector<std::vector<ckpt::TensorPieces>> boxes_of(const spec::ModelSpec& model,
                                                      const spec::Plan& plan, int rank) {
  std::vector<std::vector<ckpt::TensorPieces>> boxes;
  for (const auto& range : state_ranges(model, plan, rank)) {
    boxes.push_back(pieces_of(range, model, plan, comm::coord_of(plan.mesh, rank)));
  }
  return boxes;
}

// What a rank has, as ranks send it to each other.
struct SentReport {
  static constexpr int64_t none = -1;
  int64_t live = none;
  std::array<int64_t, ckpt::max_copy_buffers> copies{none, none, none};
  std::array<bool, ckpt::max_copy_buffers> are_held{};
  std::array<char, 40> run{};  // of the copies
};

// The copies of a rank whose content is intact.
std::vector<ckpt::FoundCopy> verified(const CopiesOfRank& own) {
  std::vector<ckpt::FoundCopy> good;
  if (own.memory == nullptr) return good;
  for (const ckpt::FoundCopy& copy : own.memory->copies()) {
    if (own.memory->verify(copy.buffer)) {
      good.push_back(copy);
    } else {
      own.report(
          fmt::format("the copy in memory of step {} is damaged: its bytes do not have the hash "
                      "that it was sealed with; it is not used",
                      copy.label.step));
    }
  }
  return good;
}

SentReport report_of(const std::optional<KeptState>& kept,
                     const std::vector<ckpt::FoundCopy>& copies) {
  SentReport report{.live = kept ? kept->point.step : SentReport::none};
  if (!copies.empty()) report.run = copies.front().label.run;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].label.run != report.run) continue;
    report.copies[i] = copies[i].label.step;
    report.are_held[i] = copies[i].is_held;
  }
  return report;
}

// Copies of another run than that of the first rank with copies do not count.
std::vector<HeldState> states_of(const SentReport& sent, const std::array<char, 40>& run) {
  std::vector<HeldState> states;
  if (sent.live != SentReport::none) states.push_back({.step = sent.live});
  for (size_t i = 0; i < sent.copies.size(); ++i) {
    if (sent.copies[i] == SentReport::none || sent.run != run) continue;
    states.push_back(
        {.step = sent.copies[i],
         .kind = sent.are_held[i] ? HeldState::Kind::held_copy : HeldState::Kind::sealed_copy});
  }
  return states;
}

// All ranks know what each of them has, and compute the same point. Those of this rank's copies
// that do not count are removed. Collective.
std::optional<LivePoint> shared_point(Rank& rank, const spec::ModelSpec& model,
                                      const spec::Plan& plan, const std::optional<KeptState>& kept,
                                      std::vector<ckpt::FoundCopy>& copies) {
  const SentReport own = report_of(kept, copies);
  const std::vector<SentReport> sent = rank.gather(own);
  const auto with_copies = std::ranges::find_if(
      sent, [](const SentReport& report) { return report.copies != SentReport{}.copies; });
  const std::array<char, 40> run = with_copies == sent.end() ? own.run : with_copies->run;
  std::erase_if(copies, [&run](const ckpt::FoundCopy& copy) { return copy.label.run != run; });
  std::vector<StateReport> reports;
  for (const SentReport& of_rank : sent) {
    StateReport& report = reports.emplace_back();
    report.states = states_of(of_rank, run);
    if (report.states.empty()) continue;
    for (auto& boxes : boxes_of(model, plan, static_cast<int>(reports.size()) - 1)) {
      std::ranges::move(boxes, std::back_inserter(report.boxes));
    }
  }
  return resume_point(saved_tensors(model, plan), reports);
}

// Sends the state of rank `source` to all ranks. Appends the parts that have a tensor of `names` to
// `state`, on ranks that want some. Collective.
void receive_from(int source, Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                  const std::set<std::string>& names, EngineState& state) {
  const std::vector<engine::Engine::StateRange> ranges = state_ranges(model, plan, source);
  const bool sends = rank.number() == source;
  TRIREME_CHECK(!sends || state.parts.size() == ranges.size(), "{} parts of state for {}",
                state.parts.size(), ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    EngineState::Part received;
    std::vector<float>& values = sends ? state.parts[i].values : received.values;
    values.resize(static_cast<size_t>(ranges[i].range.end - ranges[i].range.begin));
    rank.broadcast(std::as_writable_bytes(std::span(values)), source);
    if (sends || names.empty()) continue;
    received.tensors = pieces_of(ranges[i], model, plan, comm::coord_of(plan.mesh, source));
    const bool is_wanted = std::ranges::any_of(
        received.tensors, [&](const auto& part) { return names.contains(part.tensor.name); });
    if (is_wanted) state.parts.push_back(std::move(received));
  }
}

}  // namespace

const char* name_of(StateSource source) {
  switch (source) {
    case StateSource::none:
      return "the first step";
    case StateSource::live:
      return "its own live state";
    case StateSource::memory_copy:
      return "its own copy in memory";
    case StateSource::peer:
      return "the memory of other ranks";
    case StateSource::generation:
      return "the newest checkpoint";
  }
  TRIREME_CHECK(false, "state source {}", static_cast<int>(source));
}

std::optional<LivePoint> resume_point(std::span<const ckpt::TensorInfo> tensors,
                                      std::span<const StateReport> reports) {
  std::set<int64_t, std::greater<>> steps;
  for (const StateReport& report : reports) {
    for (const HeldState& state : report.states) steps.insert(state.step);
  }
  for (const int64_t step : steps) {
    if (auto sources = sources_of(tensors, reports, step)) {
      return LivePoint{.step = step, .sources = std::move(*sources)};
    }
  }
  return {};
}

bool has_live_replicas(const spec::ModelSpec& model, const spec::Plan& plan) {
  // Several ranks with Muon trust no state after an abort (engine/state/update_gate.h).
  if (plan.optimizer.kind == spec::OptimizerKind::muon) return false;
  std::map<std::string, std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, int>>
      holders;
  const int ranks = static_cast<int>(spec::ranks_of(plan.mesh, spec::dense_axes));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& boxes : boxes_of(model, plan, rank)) {
      for (const ckpt::TensorPieces& part : boxes) {
        for (const spec::Piece& piece : part.pieces) {
          ++holders[part.tensor.name][{piece.lo, piece.hi}];
        }
      }
    }
  }
  return std::ranges::all_of(holders, [](const auto& tensor) {
    return std::ranges::all_of(tensor.second, [](const auto& box) { return box.second > 1; });
  });
}

void agree_on_state(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                    const CopiesOfRank& own, std::optional<KeptState>& kept) {
  std::vector<ckpt::FoundCopy> copies = verified(own);
  const auto point = shared_point(rank, model, plan, kept, copies);
  if (!point || (kept && kept->point.step != point->step)) kept.reset();
  if (!point) return;
  const auto copy = std::ranges::find_if(
      copies, [&](const ckpt::FoundCopy& found) { return found.label.step == point->step; });
  if (!kept && copy != copies.end()) {
    kept = kept_from(*own.memory, *copy, copy_layout(model, plan, rank.number()), model, plan);
  }
  const bool receives = !kept;
  const std::vector<uint8_t> all = rank.gather(static_cast<uint8_t>(receives ? 1 : 0));
  if (std::ranges::find(all, uint8_t{1}) == all.end()) return;
  std::set<std::string> names;  // of the tensors that this rank lacks
  if (receives) {
    kept.emplace().source = StateSource::peer;
    for (const auto& boxes : boxes_of(model, plan, rank.number())) {
      for (const ckpt::TensorPieces& part : boxes) names.insert(part.tensor.name);
    }
  }
  const auto first = static_cast<size_t>(point->sources.front());
  kept->point = rank.gather(kept->point)[first];
  kept->bf16_blocks = list_of(rank.gather(set_of(kept->bf16_blocks))[first]);
  kept->state.step = rank.gather(kept->state.step)[first];
  for (const int source : point->sources) {
    receive_from(source, rank, model, plan, names, kept->state);
  }
}

}  // namespace trireme::train
