// SPDX-License-Identifier: Apache-2.0
#include "train/report/expert_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "base/check.h"
#include "spec/experts/expert_rows.h"

namespace trireme::train {
namespace {

struct Largest {
  int64_t index = 0;
  double over_mean = 0;
};

Largest largest_of(std::span<const double> loads) {
  const auto found = std::max_element(loads.begin(), loads.end());
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  const double mean = sum / static_cast<double>(loads.size());
  return {found - loads.begin(), mean > 0 ? *found / mean : 0};
}

double entropy_of(std::span<const double> shares) {
  double sum = 0;
  for (const double share : shares) {
    if (share > 0) sum -= share * std::log(share);
  }
  return shares.size() > 1 ? sum / std::log(static_cast<double>(shares.size())) : 1;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

ExpertFigures expert_figures(const engine::RouterUpdate::LayerStats& of,
                             const spec::ModelSpec& model, const spec::Plan& plan,
                             const spec::Backend& backend) {
  const auto& block = std::get<spec::BlockSpec>(model.layers[static_cast<size_t>(of.layer)]);
  TRIREME_CHECK(block.moe.has_value(), "layer {} has no experts", of.layer);
  const spec::MoeSpec& moe = *block.moe;
  const auto experts = static_cast<size_t>(moe.router.experts);
  const auto value = [&of](int64_t at) {
    return static_cast<double>(of.stats[static_cast<size_t>(at)]);
  };
  std::vector<double> counts(experts), probs(experts);
  const double tokens = value(of.at.tokens());
  double product = 0;
  const double pairs = tokens * static_cast<double>(moe.router.chosen);
  for (size_t e = 0; e < experts; ++e) {
    counts[e] = value(of.at.counts() + static_cast<int64_t>(e));
    probs[e] = ratio(value(of.at.probs() + static_cast<int64_t>(e)), tokens);
    product += ratio(counts[e], pairs) * probs[e];
  }
  const auto ranks = static_cast<size_t>(plan.mesh[spec::Axis::ep]);
  std::vector<double> by_rank(ranks);
  for (size_t e = 0; e < experts; ++e) by_rank[e / (experts / ranks)] += counts[e];
  const Largest expert = largest_of(counts), rank = largest_of(by_rank);
  const spec::ExpertRows rows = spec::expert_rows(moe, spec::local_shape_of(plan), backend);
  double bias = 0;
  for (const float b : of.bias) bias = std::max(bias, std::abs(static_cast<double>(b)));
  return {.block = of.layer - 1,
          .expert_max_over_mean = expert.over_mean,
          .rank_max_over_mean = rank.over_mean,
          .busiest_expert = expert.index,
          .busiest_rank = rank.index,
          .idle_experts = std::count(counts.begin(), counts.end(), 0.0),
          .entropy = entropy_of(probs),
          .dropped = ratio(value(of.at.dropped()), pairs),
          .lost = ratio(value(of.at.lost()), tokens),
          .budget_used = ratio(static_cast<double>(of.fill), static_cast<double>(rows.block)),
          .aux = static_cast<double>(moe.balance.aux) * static_cast<double>(experts) * product,
          .z = static_cast<double>(moe.balance.z) * ratio(value(of.at.lse2()), tokens),
          .largest_bias = bias};
}

std::vector<ExpertFigures> expert_figures(engine::Engine& engine, Rank& rank,
                                          const spec::ModelSpec& model,
                                          const spec::Backend& backend) {
  std::vector<ExpertFigures> own;
  for (const engine::RouterUpdate::LayerStats& layer : engine.router_stats()) {
    own.push_back(expert_figures(layer, model, engine.plan(), backend));
  }
  if (engine.plan().mesh[spec::Axis::pp] == 1) return own;
  // The first rank of every stage has the figures of its layers. A gather is limited in size.
  struct Some {
    int64_t count = 0;
    std::array<ExpertFigures, 4> figures;
  };
  const std::vector<int64_t> counts = rank.gather(static_cast<int64_t>(own.size()));
  const auto most = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<ExpertFigures> all;
  for (size_t first = 0; first < most; first += Some{}.figures.size()) {
    Some mine;
    for (size_t i = first; i < std::min(own.size(), first + mine.figures.size()); ++i) {
      mine.figures[static_cast<size_t>(mine.count++)] = own[i];
    }
    for (const Some& some : rank.gather(mine)) {
      for (int64_t i = 0; i < some.count; ++i) {
        all.push_back(some.figures[static_cast<size_t>(i)]);
      }
    }
  }
  const auto before = [](const ExpertFigures& a, const ExpertFigures& b) {
    return a.block < b.block;
  };
  const auto same = [](const ExpertFigures& a, const ExpertFigures& b) {
    return a.block == b.block;
  };
  std::stable_sort(all.begin(), all.end(), before);
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  return all;
}

std::vector<obs::Metric> ExpertMetrics::metrics() const {
  std::vector<obs::Metric> all;
  for (size_t i = 0; i < names.size(); ++i) all.push_back({names[i], values[i]});
  return all;
}

ExpertMetrics expert_metrics(const std::vector<ExpertFigures>& layers) {
  ExpertMetrics m;
  struct Field {
    const char* name;
    double (*value)(const ExpertFigures&);
    bool is_largest;  // over all layers, otherwise the mean
  };
  constexpr std::array<Field, 11> fields = {{
      {"expert_max_over_mean", [](const ExpertFigures& f) { return f.expert_max_over_mean; }, true},
      {"rank_max_over_mean", [](const ExpertFigures& f) { return f.rank_max_over_mean; }, true},
      {"busiest_expert",
       [](const ExpertFigures& f) { return static_cast<double>(f.busiest_expert); }, true},
      {"idle_experts", [](const ExpertFigures& f) { return static_cast<double>(f.idle_experts); },
       true},
      {"entropy", [](const ExpertFigures& f) { return f.entropy; }, false},
      {"dropped", [](const ExpertFigures& f) { return f.dropped; }, true},
      {"lost", [](const ExpertFigures& f) { return f.lost; }, true},
      {"budget_used", [](const ExpertFigures& f) { return f.budget_used; }, true},
      {"aux_loss", [](const ExpertFigures& f) { return f.aux; }, false},
      {"z_loss", [](const ExpertFigures& f) { return f.z; }, false},
      {"largest_bias", [](const ExpertFigures& f) { return f.largest_bias; }, true},
  }};
  for (const Field& field : fields) {
    double largest = 0, sum = 0;
    for (const ExpertFigures& layer : layers) {
      const double value = field.value(layer);
      largest = std::max(largest, value);
      sum += value;
      m.names.push_back(fmt::format("experts/block_{}/{}", layer.block, field.name));
      m.values.push_back(value);
    }
    if (std::string_view(field.name) == "busiest_expert") continue;
    m.names.push_back(fmt::format("experts/{}", field.name));
    m.values.push_back(
        field.is_largest ? largest : sum / static_cast<double>(std::max<size_t>(1, layers.size())));
  }
  return m;
}

std::string experts_line(const std::vector<ExpertFigures>& layers) {
  if (layers.empty()) return "";
  const ExpertFigures& worst = *std::max_element(
      layers.begin(), layers.end(), [](const ExpertFigures& a, const ExpertFigures& b) {
        return a.expert_max_over_mean < b.expert_max_over_mean;
      });
  std::string text = fmt::format("experts   busiest: block {} expert {} has {:.2f} x the mean rows",
                                 worst.block, worst.busiest_expert, worst.expert_max_over_mean);
  double ranks = 0, dropped = 0, fill = 0;
  int64_t idle = 0;
  const ExpertFigures* slowest = &worst;
  for (const ExpertFigures& layer : layers) {
    if (layer.rank_max_over_mean > ranks) slowest = &layer;
    ranks = std::max(ranks, layer.rank_max_over_mean);
    dropped = std::max(dropped, layer.dropped);
    fill = std::max(fill, layer.budget_used);
    idle += layer.idle_experts;
  }
  if (ranks > 1) {
    text += fmt::format("; ep rank {} has {:.2f} x in block {}, where expert {} is the busiest",
                        slowest->busiest_rank, ranks, slowest->block, slowest->busiest_expert);
  }
  if (ranks > 1) text += fmt::format("; {:.0f} % of the row budget used", 100 * fill);
  if (idle > 0) text += fmt::format("; {} without rows", idle);
  if (dropped > 0) text += fmt::format("; {:.2f} % of pairs dropped", 100 * dropped);
  return text;
}

}  // namespace trireme::train
