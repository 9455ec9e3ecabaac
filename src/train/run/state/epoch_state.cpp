// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/epoch_state.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <new>
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
#include "train/run/state/state_reports.h"

namespace trireme::train {
namespace {

bool has(const StateReport& report, int64_t step) {
  return std::ranges::any_of(report.states, [&](const auto& state) { return state.step == step; });
}

// Returns the ranks that have a state after `step` which counts: those with a live one, then those
// with a copy, then those whose copy another rank keeps.
std::vector<int> holders_of(std::span<const StateReport> reports, int64_t step) {
  const bool is_everywhere =
      std::ranges::all_of(reports, [&](const StateReport& report) { return has(report, step); });
  std::array<std::vector<int>, 3> holders;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    size_t best = holders.size();
    for (const HeldState& state : reports[rank].states) {
      if (state.step != step) continue;
      const bool counts = state.kind != HeldState::Kind::sealed_copy || is_everywhere;
      const size_t order = state.kind == HeldState::Kind::live ? 0 : state.keeper < 0 ? 1 : 2;
      if (counts) best = std::min(best, order);
    }
    if (best < holders.size()) holders[best].push_back(static_cast<int>(rank));
  }
  std::vector<int> all;
  for (const std::vector<int>& some : holders) all.insert(all.end(), some.begin(), some.end());
  return all;
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

// Ranks without the state of the point receive it from its sources. Collective.
void receive_missing(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                     const LivePoint& point, std::optional<KeptState>& kept) {
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
  const auto first = static_cast<size_t>(point.sources.front());
  kept->point = rank.gather(kept->point)[first];
  kept->bf16_blocks = list_of(rank.gather(set_of(kept->bf16_blocks))[first]);
  kept->state.step = rank.gather(kept->state.step)[first];
  for (const int source : point.sources) {
    receive_from(source, rank, model, plan, names, kept->state);
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
    case StateSource::kept_copy:
      return "its copy in the memory of another node";
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

bool has_replicas(const spec::ModelSpec& model, const spec::Plan& plan,
                  std::span<const int> nodes) {
  // By tensor and box: the ranks, or nodes, that have it.
  std::map<std::string,
           std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::set<int>>>
      holders;
  const int ranks = static_cast<int>(spec::ranks_of(plan.mesh, spec::dense_axes));
  for (int rank = 0; rank < ranks; ++rank) {
    const int holder = nodes.empty() ? rank : nodes[static_cast<size_t>(rank)];
    for (const auto& boxes : boxes_of(model, plan, rank)) {
      for (const ckpt::TensorPieces& part : boxes) {
        for (const spec::Piece& piece : part.pieces) {
          holders[part.tensor.name][{piece.lo, piece.hi}].insert(holder);
        }
      }
    }
  }
  return std::ranges::all_of(holders, [](const auto& tensor) {
    return std::ranges::all_of(tensor.second,
                               [](const auto& box) { return box.second.size() > 1; });
  });
}

bool has_live_replicas(const spec::ModelSpec& model, const spec::Plan& plan,
                       std::span<const int> nodes) {
  // Several ranks with Muon trust no state after an abort (engine/state/update_gate.h).
  return plan.optimizer.kind != spec::OptimizerKind::muon && has_replicas(model, plan, nodes);
}

namespace {

// Returns the rank that keeps the copy which `rank` needs of a step; -1: it has a state of it.
int keeper_for(const StateReport& report, int64_t step) {
  int keeper = -1;
  for (const HeldState& state : report.states) {
    if (state.step != step) continue;
    if (state.keeper < 0) return -1;
    if (keeper < 0) keeper = state.keeper;
  }
  return keeper;
}

// Where the ranks continue, and the copy of this rank if it has fetched it.
struct Agreement {
  std::optional<LivePoint> point;  // none: the newest checkpoint
  std::optional<FetchedCopy> fetched;
  std::vector<int> fetchers;  // ranks
};

// Ranks fetch the copies that are needed of those that keep them. What cannot be fetched does not
// count: all ranks learn of it, and choose another point. Collective.
Agreement agree(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                const CopiesOfRank& own, std::vector<StateReport>& reports) {
  const std::vector<ckpt::TensorInfo> tensors = saved_tensors(model, plan);
  while (true) {
    Agreement agreed{.point = resume_point(tensors, reports), .fetched = {}, .fetchers = {}};
    if (!agreed.point) return agreed;
    const int64_t step = agreed.point->step;
    std::string why;  // this rank could not fetch its copy
    for (const int source : agreed.point->sources) {
      const int keeper = keeper_for(reports[static_cast<size_t>(source)], step);
      if (keeper < 0) continue;
      agreed.fetchers.push_back(source);
      if (source != rank.number()) continue;
      const ckpt::CopyShape shape = shape_of(copy_layout(model, plan, source), source, own.buffers);
      try {
        agreed.fetched = own.fetch(keeper, shape, step);
      } catch (const comm::PeerLost& error) {
        why = error.what();
      } catch (const std::bad_alloc&) {
        why = fmt::format("this host lacks {} bytes for it", shape.bytes);
      }
      if (why.empty()) continue;
      own.report(
          fmt::format("the copy of step {} that rank {} keeps is not used: {}", step, keeper, why));
    }
    if (agreed.fetchers.empty()) return agreed;
    std::ranges::sort(agreed.fetchers);
    const std::vector<uint8_t> failed = rank.gather(static_cast<uint8_t>(why.empty() ? 0 : 1));
    if (std::ranges::find(failed, uint8_t{1}) == failed.end()) return agreed;
    for (const int fetcher : agreed.fetchers) {
      if (failed[static_cast<size_t>(fetcher)] == 0) continue;
      StateReport& report = reports[static_cast<size_t>(fetcher)];
      const int keeper = keeper_for(report, step);
      std::erase_if(report.states, [&](const HeldState& state) {
        return state.step == step && state.keeper == keeper;
      });
    }
  }
}

}  // namespace

void agree_on_state(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                    const CopiesOfRank& own, std::optional<KeptState>& kept) {
  SharedReports shared = gather_reports(rank, model, plan, own, kept);
  const auto [point, fetched, fetchers] = agree(rank, model, plan, own, shared.all);
  if (!point || (kept && kept->point.step != point->step)) kept.reset();
  if (!point) return;
  const auto copy = std::ranges::find_if(
      shared.copies, [&](const ckpt::FoundCopy& found) { return found.label.step == point->step; });
  const auto state_in = [&](const ckpt::CopyLabel& label, std::span<const std::byte> content) {
    return kept_from(label, content, copy_layout(model, plan, rank.number()),
                     {.model = model, .plan = plan, .rank = rank.number()});
  };
  if (!kept && copy != shared.copies.end()) {
    kept = state_in(copy->label, own.memory->content(copy->buffer));
  } else if (!kept && fetched) {
    kept = state_in(fetched->label, fetched->content);
    kept->source = StateSource::kept_copy;
  }
  receive_missing(rank, model, plan, *point, kept);
  kept->fetched = fetchers;
}

}  // namespace trireme::train
