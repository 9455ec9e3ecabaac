// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

using LayerStats = engine::RouterUpdate::LayerStats;

constexpr const char* counts_hint =
    "choices: the router's logits and bias, or rows that a rank routes twice or not at all. If the "
    "counts differ by a few pairs, two scores may be equal but for rounding: try another "
    "debug.seed";
constexpr const char* bias_hint =
    "the update of the router's bias: counts of all ranks, at the end of a step";

// A range of RouterStats, or the bias.
struct Part {
  const char* name;
  std::span<const float> found, wanted;
  bool is_exact;
  const char* hint;
};

std::vector<Part> parts_of(const LayerStats& found, const LayerStats& wanted) {
  const auto range = [&](const char* name, int64_t begin, int64_t size, bool is_exact,
                         const char* hint) {
    const auto at = static_cast<size_t>(begin), n = static_cast<size_t>(size);
    return Part{name, std::span(found.stats).subspan(at, n), std::span(wanted.stats).subspan(at, n),
                is_exact, hint};
  };
  const spec::RouterStats& at = wanted.at;
  constexpr const char* drops = "pairs without a row (route_rows), and their sums over ranks";
  constexpr const char* scores = "the router's scores, or their sums over ranks";
  return {range("tokens", at.tokens(), 1, true,
                "rows that each rank routes, and the sum of statistics over ranks"),
          range("counts", at.counts(), at.experts, true, counts_hint),
          range("dropped pairs", at.dropped(), 1, true, drops),
          range("lost tokens", at.lost(), 1, true, drops),
          range("overflow", at.overflow(), 1, true, drops),
          range("scores", at.probs(), at.experts, false, scores),
          range("squares of lse", at.lse2(), 1, false, scores),
          {"bias", found.bias, wanted.bias, true, bias_hint}};
}

// Returns |a - b| / |b|; infinity if it is not finite or the sizes differ.
double distance(std::span<const float> a, std::span<const float> b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return infinity;
  double squares = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    squares += difference * difference;
    size += double{b[i]} * double{b[i]};
  }
  if (squares == 0) return 0;
  const double error = std::sqrt(squares / size);
  return std::isfinite(error) ? error : infinity;
}

std::string difference_text(const Part& part) {
  size_t at = 0;
  while (at + 1 < part.found.size() && part.found[at] == part.wanted[at]) ++at;
  const std::string which = part.found.size() > 1 ? fmt::format(" of expert {}", at) : "";
  return fmt::format("{}{}: {:.9g}, one rank {:.9g}", part.name, which, part.found[at],
                     part.wanted[at]);
}

class Comparison {
 public:
  explicit Comparison(const CheckedRun& run) : run_(run) {
    result_.check = {.name = "routing", .ok = true, .bound = run.bounds.norm};
  }

  void compare(const RankResult& rank, size_t step) {
    for (const LayerStats& found : rank.routers[step]) {
      const auto& all = run_.reference.routers[step];
      const auto wanted = std::find_if(all.begin(), all.end(), [&](const LayerStats& stats) {
        return stats.layer == found.layer;
      });
      if (wanted == all.end()) continue;
      for (const Part& part : parts_of(found, *wanted)) compare(part, rank, step, found.layer);
    }
  }

  RoutingCheck result() {
    if (result_.check.ok) result_.check.detail = summary();
    return result_;
  }

 private:
  void compare(const Part& part, const RankResult& rank, size_t step, int layer) {
    VerifyCheck& check = result_.check;
    const double error = distance(part.found, part.wanted);
    check.error = std::max(check.error, error);
    if (error <= (part.is_exact ? 0 : check.bound)) return;
    if (step == 0) result_.begins_wrong = true;
    if (!check.ok) return;
    check.ok = false;
    check.detail = fmt::format("step {}, layer {}, rank {}: {}", step, layer, rank.table.rank,
                               difference_text(part));
    check.hint = part.hint;
  }

  std::string summary() const {
    double pairs = 0, dropped = 0;
    for (const auto& step : run_.reference.routers) {
      for (const LayerStats& layer : step) {
        for (int64_t e = 0; e < layer.at.experts; ++e) {
          pairs += double{layer.stats[static_cast<size_t>(e)]};
        }
        dropped += double{layer.stats[static_cast<size_t>(layer.at.dropped())]};
      }
    }
    std::string text = fmt::format("choices of {} pairs, scores and biases as on one rank",
                                   obs::grouped(static_cast<int64_t>(pairs)));
    if (dropped > 0) {
      text += fmt::format("; {} pairs dropped", obs::grouped(static_cast<int64_t>(dropped)));
    }
    return text;
  }

  const CheckedRun& run_;
  RoutingCheck result_;
};

}  // namespace

std::optional<RoutingCheck> routing_of(const CheckedRun& run) {
  if (spec::moe_of(run.model) == nullptr) return std::nullopt;
  Comparison comparison(run);
  for (size_t step = 0; step < run.reference.routers.size(); ++step) {
    for (const RankResult& rank : run.layout.ranks) comparison.compare(rank, step);
  }
  return comparison.result();
}

}  // namespace trireme::train
