// SPDX-License-Identifier: Apache-2.0
#include "train/numerics/run_numerics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "train/numerics/gather_numerics.h"
#include "train/numerics/numerics_record.h"

namespace trireme::train {
namespace {

// Layers of the model that are in 8 bits if no block has fallen back.
std::vector<int> float8_layers(const spec::ModelSpec& model, const spec::Plan& plan) {
  spec::Recipe recipe = plan.recipe;
  recipe.other_blocks.clear();
  std::vector<int> layers;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    if (spec::layer_recipe(recipe, model, layer).fp8) layers.push_back(layer);
  }
  return layers;
}

NumericsWatch::Options watch_options(const config::Config& c) {
  return {.fallback = fallback_from_name(c.precision.fallback).value_or(Fallback::warn),
          .return_steps = c.precision.fallback_steps};
}

std::vector<int> configured_blocks(const config::Config& c) {
  return {c.precision.bf16_blocks.begin(), c.precision.bf16_blocks.end()};
}

// The watch of a checkpoint. A list in the configuration that has changed since is what the user
// wants now: blocks that had fallen back return.
NumericsWatch watch_of(const base::Json& state, const std::vector<int>& configured,
                       const NumericsWatch::Options& options) {
  NumericsWatch watch = NumericsWatch::from_json(state, options);
  if (state.at("configured") != base::Json(configured)) watch.release(watch.fallen());
  watch.release(configured);
  return watch;
}

// "blocks.3 is", "blocks.3, blocks.5 are"
std::string are(const std::vector<int>& blocks) {
  std::vector<std::string> names;
  for (const int block : blocks) names.push_back(fmt::format("blocks.{}", block));
  return fmt::format("{} {}", fmt::join(names, ", "), blocks.size() == 1 ? "is" : "are");
}

// Ranks finish at most one step more than others, and keep at most three copies.
constexpr size_t max_points = 4;

template <typename Points, typename Point>
void add_point(Points& points, Point&& point) {
  points.push_back(std::forward<Point>(point));
  if (points.size() > max_points) points.pop_front();
}

}  // namespace

RunNumerics::RunNumerics(Incarnation& parts, std::function<void(const std::string&)> log)
    : parts_(parts),
      log_(std::move(log)),
      layers_(float8_layers(parts.bench.model, parts.plan())),
      configured_(configured_blocks(parts.bench.config)),
      watch_(watch_options(parts.bench.config)) {}

void RunNumerics::restore(const base::Json& state, int64_t step) {
  if (!is_on()) return;
  const NumericsWatch::Options options = watch_options(parts_.bench.config);
  watch_ = state.is_null() ? NumericsWatch(options) : watch_of(state, configured_, options);
  sampled_.clear();
  copied_ = {{step, watch_}};
}

void RunNumerics::continue_after(int64_t step) {
  if (!is_on()) return;
  const Point* own = newest_until(step);
  const std::vector<int64_t> steps = parts_.rank.gather(own == nullptr ? -1 : own->step);
  const auto best = std::ranges::max_element(steps);
  const NumericsWatch::Options options = watch_options(parts_.bench.config);
  if (*best < 0) {
    watch_ = NumericsWatch(options);
    watch_.assume_fallen(list_of(set_of(parts_.bf16_blocks) & ~set_of(configured_)), step);
  } else {
    const int source = static_cast<int>(best - steps.begin());
    const bool is_source = parts_.rank.number() == source;
    const std::vector<std::string> texts =
        parts_.rank.all_gather_texts(is_source ? own->watch.to_json().dump() : "");
    watch_ =
        NumericsWatch::from_json(base::Json::parse(texts[static_cast<size_t>(source)]), options);
  }
  pending_ = {};
  sampled_.clear();
  copied_ = {{step, watch_}};
}

void RunNumerics::copied(int64_t step) {
  if (is_on()) add_point(copied_, Point{step, watch_});
}

const RunNumerics::Point* RunNumerics::newest_until(int64_t step) const {
  const Point* newest = nullptr;
  for (const std::deque<Point>* points : {&sampled_, &copied_}) {
    for (const Point& one : *points) {
      if (one.step <= step && (newest == nullptr || one.step > newest->step)) newest = &one;
    }
  }
  return newest;
}

std::vector<int> RunNumerics::blocks() const {
  return list_of(set_of(configured_) | set_of(watch_.fallen()));
}

std::vector<int> RunNumerics::blocks_after(const base::Json& state, const config::Config& c) {
  const std::vector<int> configured = configured_blocks(c);
  const auto recipe = spec::precision_from_name(c.precision.recipe);
  if (state.is_null() || !recipe || !spec::is_fp8(*recipe)) return list_of(set_of(configured));
  const NumericsWatch watch = watch_of(state, configured, watch_options(c));
  return list_of(set_of(configured) | set_of(watch.fallen()));
}

base::ConfigError RunNumerics::unreadable(int64_t step, const base::Json::exception& error) {
  return base::ConfigError(fmt::format(
      "the checkpoint of step {}: its state 'numerics' is not readable: {}", step, error.what()));
}

void RunNumerics::begin(RunOutput& output) const {
  if (is_on()) output.begin_numerics(numerics_shape(layers_));
}

void RunNumerics::before_step(int64_t step) {
  if (!is_on()) return;
  const int64_t every = parts_.bench.config.metrics.numerics_freq;
  is_measured_ = every > 0 && (step % every == 0 || step == 1);
  parts_.engine->measure_numerics(is_measured_);
}

bool RunNumerics::is_due(int64_t step) const {
  return is_on() && (is_measured_ || NumericsWatch::is_sampled(step));
}

std::optional<std::vector<int>> RunNumerics::after_step(int64_t step, RunOutput* output) {
  if (!is_due(step)) return {};
  const std::vector<LayerFigures> figures =
      gather_numerics(*parts_.engine, parts_.rank, parts_.bench.model, is_measured_);
  if (is_measured_ && parts_.rank.is_first()) {
    const std::string line = numerics_line(figures);
    if (!line.empty()) log_(line);
    if (output != nullptr) {
      output->add("numerics", step, numerics_metrics(figures).metrics());
      output->add_numerics(step, numerics_values(layers_, figures));
    }
  }
  pending_ = watch_.add(step, figures);
  add_point(sampled_, Point{step, watch_});
  for (const DriftFinding& finding : pending_.alarms) report(finding);
  // All ranks follow the first one.
  const std::vector<int> wanted = list_of(parts_.rank.gather(set_of(blocks())).front());
  if (wanted == parts_.bf16_blocks) return {};
  return wanted;
}

void RunNumerics::report(const DriftFinding& finding) {
  const bool falls_back = !pending_.to_bf16.empty();
  const std::string what =
      falls_back ? "the block falls back to bf16"
                 : "precision.fallback = \"bf16\" computes such a block in bf16, and so does "
                   "precision.bf16_blocks";
  log_(fmt::format("numerics  {}; {}", text_of(finding), what));
  base::Json data = {{"what", "alarm"},
                     {"block", finding.layer - 1},
                     {"matrix", spec::name_of(finding.role)},
                     {"growth_bits", finding.growth_bits}};
  if (finding.flushed >= 0) data["flushed"] = finding.flushed;
  if (finding.snr_db >= 0) data["snr_db"] = finding.snr_db;
  parts_.bench.run_log.add({.kind = obs::EventKind::numerics,
                            .step = finding.step,
                            .severity = obs::Severity::warning,
                            .text = text_of(finding),
                            .data = std::move(data)});
}

void RunNumerics::changed(int64_t step, const std::string& problem) {
  const NumericsWatch::Decision decision = std::exchange(pending_, {});
  if (!problem.empty()) {
    watch_.refuse(decision);
    add_event(step, {.what = "kept",
                     .blocks = list_of(set_of(decision.to_bf16) | set_of(decision.to_fp8)),
                     .severity = obs::Severity::warning,
                     .text = fmt::format("blocks stay as they are, because the other recipe does "
                                         "not fit into memory: {}",
                                         problem)});
    return;
  }
  if (!decision.to_bf16.empty()) {
    add_event(step, {.what = "fallback",
                     .blocks = decision.to_bf16,
                     .severity = obs::Severity::warning,
                     .text = fmt::format("{} in bf16 from step {} on: the engine was rebuilt",
                                         are(decision.to_bf16), step + 1)});
  }
  if (!decision.to_fp8.empty()) {
    add_event(step, {.what = "return",
                     .blocks = decision.to_fp8,
                     .text = fmt::format("{} in 8 bits again from step {} on: the engine was "
                                         "rebuilt",
                                         are(decision.to_fp8), step + 1)});
  }
}

void RunNumerics::add_event(int64_t step, Change change) {
  log_("numerics  " + change.text);
  parts_.bench.run_log.add({.kind = obs::EventKind::numerics,
                            .step = step,
                            .severity = change.severity,
                            .text = std::move(change.text),
                            .data = {{"what", change.what}, {"blocks", change.blocks}}});
}

base::Json RunNumerics::state() const {
  if (!is_on()) return nullptr;
  base::Json state = watch_.to_json();
  state["configured"] = configured_;
  return state;
}

}  // namespace trireme::train
