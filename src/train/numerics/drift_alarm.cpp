// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/drift_alarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using spec::Quantized;

// ---- the baseline
constexpr double min_memory = 50, max_memory = 10'000;  // steps
constexpr int64_t first_judged = 20;                    // samples of a matrix before it is judged

// ---- thresholds
struct Limits {
  double bits = 3;            // of growth
  double confirmed_bits = 2;  // if the share of flushed values has grown as well
  int64_t samples = 3;        // in a row
};
Limits limits_of(Quantized role) {
  // Gradients vary from batch to batch, and a hard batch is followed by others that are.
  if (spec::is_gradient(role)) return {.bits = 5, .confirmed_bits = 4, .samples = 20};
  return {};
}
constexpr double noise_multiple = 6;
constexpr double noise_memory = 100;  // samples
constexpr double alone_bits = 1;      // more, if no other block has the matrix
// In the first steps of a run magnitudes grow fast, and baselines are means of few samples: growth
// counts by the factor 1 / (1 + early_steps / age).
constexpr double early_steps = 100;

// ---- shares, which are those of measured steps
constexpr double grown_ratio = 2, min_grown = 0.002;  // flushed values that confirm growth
constexpr double share_memory = 100;                  // measured samples
constexpr int64_t failing_samples = 3;                // measured, in a row
constexpr double failed_flushed = 0.5, sound_flushed = 0.25;
constexpr double failed_saturated = 0.02;
constexpr double failed_snr_db = 10, sound_snr_db = 20;

// How far below its threshold a reported block must be until it may be reported again.
constexpr double low_ratio = 0.5;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

bool is_usable(double amax) { return amax > 0 && std::isfinite(amax); }

}  // namespace

std::string text_of(const DriftFinding& of) {
  const std::string name = fmt::format("{} of blocks.{}", spec::name_of(of.role), of.layer - 1);
  switch (of.reason) {
    case DriftFinding::Reason::growth: {
      std::string text = fmt::format(
          "{} has grown by {:.1f} bits beyond its past and the other blocks", name, of.growth_bits);
      if (of.flushed >= 0) {
        text += fmt::format("; {:.2g} % of its values are flushed", 100 * of.flushed);
      }
      return text;
    }
    case DriftFinding::Reason::flushed:
      return fmt::format("{:.0f} % of the values of {} are flushed to zero", 100 * of.flushed,
                         name);
    case DriftFinding::Reason::saturated:
      return fmt::format("{:.2g} % of the values of {} are beyond the largest code",
                         100 * of.saturated, name);
    case DriftFinding::Reason::noise:
      return fmt::format("the codes of {} have a signal-to-noise ratio of {:.1f} dB", name,
                         of.snr_db);
  }
  return name;
}

std::vector<DriftFinding> DriftAlarm::add(int64_t step, std::span<const LayerFigures> layers) {
  std::map<int, Suspect> suspects;  // by layer: the largest ratio
  for (int q = 0; q < spec::quantized_count; ++q) {
    const auto role = static_cast<Quantized>(q);
    const auto track_of = [&](const LayerFigures& of) -> Track& {
      return layers_[of.layer].by[static_cast<size_t>(q)];
    };
    // How far each block is from its baseline, which this sample has not changed yet.
    std::vector<std::optional<double>> distances;
    for (const LayerFigures& of : layers) {
      const Track& track = track_of(of);
      const bool is_known = is_usable(of[role].amax) && track.samples > 0;
      distances.push_back(is_known ? std::optional(std::log2(of[role].amax) - track.baseline)
                                   : std::nullopt);
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!is_usable(layers[i][role].amax)) continue;
      Track& track = track_of(layers[i]);
      if (distances[i]) {
        std::vector<double> others;
        for (size_t j = 0; j < layers.size(); ++j) {
          if (j != i && distances[j]) others.push_back(*distances[j]);
        }
        const double excess =
            others.empty() ? *distances[i] - alone_bits
                           : std::min(*distances[i], *distances[i] - median(std::move(others)));
        Suspect suspect = judge(track, step, role, layers[i][role], excess);
        suspect.finding.layer = layers[i].layer;
        Suspect& largest = suspects[layers[i].layer];
        if (suspect.ratio > largest.ratio) largest = suspect;
      }
      follow(track, step, std::log2(layers[i][role].amax));
    }
  }
  const Suspect* worst = nullptr;
  for (const auto& [layer, suspect] : suspects) {
    if (suspect.ratio < low_ratio) layers_[layer].is_reported = false;
    if (suspect.ratio <= 1 || layers_[layer].is_reported) continue;
    if (worst == nullptr || suspect.ratio > worst->ratio) worst = &suspect;
  }
  if (worst == nullptr) return {};
  layers_[worst->finding.layer].is_reported = true;
  return {worst->finding};
}

void DriftAlarm::forget(int layer) { layers_.erase(layer); }

void DriftAlarm::follow(Track& track, int64_t step, double log2_amax) {
  if (track.samples == 0) {
    track.first_step = step;
    track.baseline = log2_amax;
  } else {
    const auto age = static_cast<double>(step - track.first_step);
    const auto passed = static_cast<double>(step - track.last_step);
    const double memory = std::clamp(age, min_memory, max_memory);
    track.baseline += (log2_amax - track.baseline) * std::min(1.0, passed / memory);
  }
  ++track.samples;
  track.last_step = step;
}

DriftAlarm::Suspect DriftAlarm::judge(Track& track, int64_t step, Quantized role,
                                      const RoleFigures& figures, double excess) {
  Suspect suspect{.finding = {.step = step, .role = role, .growth_bits = excess}};
  const double change = track.samples > 1 ? excess - track.last : 0;
  const double share = 1 / std::min(noise_memory, static_cast<double>(track.samples));
  track.noise2 += (change * change / 2 - track.noise2) * share;
  track.last = excess;

  bool has_flushed_more = false;
  if (figures.is_measured) {
    const bool is_failing = (figures.flushed > failed_flushed && track.flushed < sound_flushed) ||
                            figures.saturated > failed_saturated ||
                            (figures.snr_db < failed_snr_db && track.snr_db > sound_snr_db);
    track.failing = is_failing && track.measured > 0 ? track.failing + 1 : 0;
    has_flushed_more = track.measured > 0 && figures.flushed > min_grown &&
                       figures.flushed > grown_ratio * track.flushed;
    ++track.measured;
    const double part = 1 / std::min(share_memory, static_cast<double>(track.measured));
    if (!is_failing) {
      track.flushed += (figures.flushed - track.flushed) * part;
      track.snr_db += (figures.snr_db - track.snr_db) * part;
    }
    suspect.finding.flushed = figures.flushed;
    suspect.finding.saturated = figures.saturated;
    suspect.finding.snr_db = figures.snr_db;
  }

  const Limits limits = limits_of(role);
  const auto age = static_cast<double>(std::max<int64_t>(1, step - track.first_step));
  const double bits =
      (has_flushed_more ? limits.confirmed_bits : limits.bits) * (1 + early_steps / age);
  const double threshold = std::max(bits, noise_multiple * std::sqrt(track.noise2));
  track.above = excess > threshold ? track.above + 1 : 0;
  suspect.ratio = excess / threshold;
  const bool drifts = track.above >= limits.samples && track.samples >= first_judged;
  if (track.failing >= failing_samples && track.samples >= first_judged) {
    suspect.finding.reason = figures.flushed > failed_flushed ? DriftFinding::Reason::flushed
                             : figures.saturated > failed_saturated
                                 ? DriftFinding::Reason::saturated
                                 : DriftFinding::Reason::noise;
    suspect.ratio = std::max(suspect.ratio, 1.001);
  } else if (!drifts) {
    suspect.ratio = std::min(suspect.ratio, 1.0);  // not yet
  }
  return suspect;
}

base::Json DriftAlarm::to_json() const {
  base::Json all = base::Json::array();
  for (const auto& [number, layer] : layers_) {
    base::Json tracks = base::Json::object();
    for (int q = 0; q < spec::quantized_count; ++q) {
      const Track& t = layer.by[static_cast<size_t>(q)];
      if (t.samples == 0) continue;
      tracks[std::string(spec::name_of(static_cast<Quantized>(q)))] = {
          t.samples, t.first_step, t.last_step, t.baseline, t.last,  t.noise2,
          t.above,   t.failing,    t.measured,  t.flushed,  t.snr_db};
    }
    all.push_back({{"layer", number}, {"reported", layer.is_reported}, {"tracks", tracks}});
  }
  return all;
}

DriftAlarm DriftAlarm::from_json(const base::Json& json) {
  DriftAlarm alarm;
  for (const base::Json& saved : json) {
    Layer& layer = alarm.layers_[saved.at("layer").get<int>()];
    layer.is_reported = saved.at("reported").get<bool>();
    for (int q = 0; q < spec::quantized_count; ++q) {
      const std::string name(spec::name_of(static_cast<Quantized>(q)));
      if (!saved.at("tracks").contains(name)) continue;
      const base::Json& of = saved.at("tracks").at(name);
      const auto real = [&of](size_t at) { return of.at(at).get<double>(); };
      const auto whole = [&of](size_t at) { return of.at(at).get<int64_t>(); };
      layer.by[static_cast<size_t>(q)] = {.samples = whole(0),
                                          .first_step = whole(1),
                                          .last_step = whole(2),
                                          .baseline = real(3),
                                          .last = real(4),
                                          .noise2 = real(5),
                                          .above = whole(6),
                                          .failing = whole(7),
                                          .measured = whole(8),
                                          .flushed = real(9),
                                          .snr_db = real(10)};
    }
  }
  return alarm;
}

}  // namespace trireme::train
