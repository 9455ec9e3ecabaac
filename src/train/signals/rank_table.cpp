// SPDX-License-Identifier: Apache-2.0
#include "train/signals/rank_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/text/json.h"
#include "comm/mesh.h"
#include "spec/parallel/mesh_view.h"

namespace trireme::train {
namespace {

using obs::RankColumn;
using spec::Axis;

struct Lateness {
  RankColumn wait, late;
  std::vector<Axis> axes;
};

// The groups in which ranks wait for each other, as engine/state makes them.
std::vector<Lateness> groups_of(const spec::Sizes& mesh) {
  const spec::MeshView& data = spec::mesh_view(spec::ParamView::dense);
  std::vector<Axis> data_axes = data.replicate;
  data_axes.insert(data_axes.end(), data.shard.begin(), data.shard.end());
  std::vector<Lateness> groups = {{RankColumn::wait_tp, RankColumn::late_tp, {Axis::tp}},
                                  {RankColumn::wait_cp, RankColumn::late_cp, {Axis::cp}},
                                  {RankColumn::wait_data, RankColumn::late_data, data_axes},
                                  {RankColumn::wait_pp, RankColumn::late_pp, {Axis::pp}},
                                  {RankColumn::wait_closing,
                                   RankColumn::late_closing,
                                   {spec::dense_axes.begin(), spec::dense_axes.end()}}};
  if (spec::has_expert_axes(mesh)) {
    groups.push_back({RankColumn::wait_ep, RankColumn::late_ep, {Axis::ep, Axis::etp}});
  }
  return groups;
}

void set_name(std::span<char> to, const std::string& name) {
  const size_t size = std::min(name.size(), to.size() - 1);
  std::memcpy(to.data(), name.data(), size);
}

}  // namespace

void complete_samples(const spec::Sizes& mesh, std::span<obs::RankSample> samples) {
  TRIREME_CHECK(std::ssize(samples) == spec::ranks_of(mesh, spec::dense_axes),
                "{} samples of {} ranks", samples.size(), spec::ranks_of(mesh, spec::dense_axes));
  for (const Lateness& group : groups_of(mesh)) {
    for (int rank = 0; rank < static_cast<int>(samples.size()); ++rank) {
      const spec::Coord coord = spec::coord_of(mesh, rank);
      const bool is_first =
          std::ranges::all_of(group.axes, [&coord](const Axis axis) { return coord[axis] == 0; });
      if (!is_first) continue;  // each group once
      const std::vector<int> members = comm::members(mesh, rank, group.axes);
      float longest = 0;
      for (const int member : members) {
        longest = std::max(longest, samples[static_cast<size_t>(member)][group.wait]);
      }
      for (const int member : members) {
        obs::RankSample& sample = samples[static_cast<size_t>(member)];
        sample[group.late] = members.size() == 1 ? 0 : longest - sample[group.wait];
      }
    }
  }
  std::vector<double> sums(static_cast<size_t>(mesh[Axis::pp]));
  const auto stage_of = [&mesh](size_t rank) {
    return static_cast<size_t>(spec::coord_of(mesh, static_cast<int>(rank))[Axis::pp]);
  };
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    sums[stage_of(rank)] += static_cast<double>(samples[rank][RankColumn::work]);
  }
  const double stage_ranks = static_cast<double>(samples.size()) / mesh[Axis::pp];
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const double mean = sums[stage_of(rank)] / stage_ranks;
    float& work = samples[rank][RankColumn::work];
    work = mean > 0 ? static_cast<float>(static_cast<double>(work) / mean) : 1;
  }
}

std::string node_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

RankPlace rank_place(const std::string& node, const std::string& device) {
  RankPlace place;
  set_name(place.node, node);
  set_name(place.device, device);
  return place;
}

obs::TableShape rank_table_shape(const spec::Sizes& mesh, std::span<const RankPlace> places) {
  obs::TableShape shape{.table = "ranks", .rows = {}, .columns = {}, .about = "{}"};
  base::Json nodes = base::Json::array(), devices = base::Json::array(),
             coords = base::Json::array();
  for (size_t rank = 0; rank < places.size(); ++rank) {
    shape.rows.push_back(fmt::format("rank {}", rank));
    nodes.push_back(places[rank].node);
    devices.push_back(places[rank].device);
    const spec::Coord coord = spec::coord_of(mesh, static_cast<int>(rank));
    base::Json axes = base::Json::object();
    for (const Axis axis : spec::dense_axes) axes[std::string(spec::name_of(axis))] = coord[axis];
    if (spec::has_expert_axes(mesh)) {
      axes["ep"] = coord[Axis::ep];
      axes["etp"] = coord[Axis::etp];
    }
    coords.push_back(std::move(axes));
  }
  for (size_t c = 0; c < obs::rank_columns; ++c) {
    shape.columns.emplace_back(obs::name_of(static_cast<RankColumn>(c)));
  }
  // A name may be cut within a character.
  shape.about = base::Json{{"nodes", nodes}, {"devices", devices}, {"coords", coords}}.dump(
      -1, ' ', false, base::Json::error_handler_t::replace);
  return shape;
}

std::vector<float> rank_table_values(std::span<const obs::RankSample> samples) {
  std::vector<float> values;
  values.reserve(samples.size() * obs::rank_columns);
  for (const obs::RankSample& sample : samples) {
    values.insert(values.end(), sample.values.begin(), sample.values.end());
  }
  return values;
}

}  // namespace trireme::train
