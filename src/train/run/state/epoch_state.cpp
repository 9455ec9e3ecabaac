// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/epoch_state.h"

#include <algorithm>
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

namespace trireme::train {
namespace {

// Returns the ranks that together have the tensors after `step`; none: they lack a box.
std::optional<std::vector<int>> sources_of(std::span<const ckpt::TensorInfo> tensors,
                                           std::span<const StateReport> reports, int64_t step) {
  std::map<std::string, std::vector<std::vector<spec::Piece>>> boxes;  // by rank
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].step != step) continue;
    for (const ckpt::TensorPieces& held : reports[rank].boxes) {
      auto& by_rank = boxes[held.tensor.name];
      by_rank.resize(reports.size());
      by_rank[rank].insert(by_rank[rank].end(), held.pieces.begin(), held.pieces.end());
    }
  }
  std::set<int> sources;
  for (const ckpt::TensorInfo& tensor : tensors) {
    const spec::Piece whole{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0};
    try {
      for (const spec::Copy& copy : spec::reshard(boxes[tensor.name], {whole})) {
        sources.insert(copy.source);
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

// All ranks know what each of them has, and compute the same point. Collective.
std::optional<LivePoint> shared_point(Rank& rank, const spec::ModelSpec& model,
                                      const spec::Plan& plan, int64_t own_step) {
  std::vector<StateReport> reports;
  for (const int64_t step : rank.gather(own_step)) {
    StateReport& report = reports.emplace_back();
    if (step < 0) continue;
    report.step = step;
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
    case StateSource::own_copy:
      return "its own copy";
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
    if (report.step) steps.insert(*report.step);
  }
  for (const int64_t step : steps) {
    if (auto sources = sources_of(tensors, reports, step)) {
      return LivePoint{.step = step, .sources = std::move(*sources)};
    }
  }
  return {};
}

void agree_on_state(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                    std::optional<KeptState>& kept) {
  const auto live = shared_point(rank, model, plan, kept ? kept->point.step : -1);
  if (!live || (kept && kept->point.step != live->step)) kept.reset();
  if (!live) return;
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
  const auto first = static_cast<size_t>(live->sources.front());
  kept->point = rank.gather(kept->point)[first];
  kept->bf16_blocks = list_of(rank.gather(set_of(kept->bf16_blocks))[first]);
  kept->state.step = rank.gather(kept->state.step)[first];
  for (const int source : live->sources) {
    receive_from(source, rank, model, plan, names, kept->state);
  }
}

}  // namespace trireme::train
