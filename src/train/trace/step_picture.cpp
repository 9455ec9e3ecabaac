// SPDX-License-Identifier: Apache-2.0
#include "train/trace/step_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text/json.h"
#include "obs/output_file.h"
#include "sim/picture.h"

namespace trireme::train {
namespace {

size_t actions_of(const engine::Engine& engine, size_t pp_rank) {
  return engine.plan().schedule.program[pp_rank].size();
}

// Returns the compute actions of all ranks; times are shifted by `shift`.
base::Json actions_json(const schedule::Schedule& schedule, const sim::Timeline& timeline,
                        double shift) {
  base::Json actions = base::Json::array();
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t i = 0; i < schedule.program[rank].size(); ++i) {
      const schedule::Action& action = schedule.program[rank][i];
      const sim::Span& span = timeline[rank][i];
      const bool is_message = schedule::is_send(action.op) || schedule::is_receive(action.op);
      if (is_message || action.microbatch < 0) continue;  // they run beside other actions
      const std::string kind(schedule::name_of(action.op));
      actions.push_back({{"rank", rank},
                         {"action", fmt::format("{}{}", kind, action.microbatch)},
                         {"stage", action.stage},
                         {"micro", action.microbatch},
                         {"kind", kind},
                         {"begin", span.begin + shift},
                         {"end", span.end + shift}});
    }
  }
  return actions;
}

// Returns when the first action of a measured step began.
double first_begin(const schedule::Schedule& schedule, const sim::Timeline& timeline) {
  double first = std::numeric_limits<double>::infinity();
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    for (size_t i = 0; i < schedule.program[rank].size(); ++i) {
      if (schedule.program[rank][i].op == schedule::Op::F) {
        first = std::min(first, timeline[rank][i].begin);
      }
    }
  }
  return std::isfinite(first) ? first : 0;
}

}  // namespace

StepPicture::StepPicture(engine::Engine& engine, Rank& rank)
    : engine_(engine),
      rank_(rank),
      times_(engine.compute(),
             actions_of(engine, static_cast<size_t>(rank.coord()[spec::Axis::pp]))) {}

void StepPicture::begin_step(int64_t step) {
  step_ = step;
  engine_.watch_actions(&times_);
  engine_.compute().synchronize();
  rank_.barrier();
  times_.start();
}

void StepPicture::end_step() {
  const std::vector<engine::ActionSpan> own = times_.finish();
  engine_.watch_actions(nullptr);
  const schedule::Schedule& schedule = engine_.plan().schedule;
  size_t longest = 0;
  for (const auto& program : schedule.program) longest = std::max(longest, program.size());
  // Programs of ranks differ in length, so all ranks gather as many pieces as the longest has.
  using Piece = std::array<engine::ActionSpan, 32>;
  Drawn drawn{step_, sim::Timeline(schedule.program.size())};
  const size_t stride = static_cast<size_t>(rank_.ranks()) / schedule.program.size();
  for (size_t begin = 0; begin < longest; begin += Piece{}.size()) {
    Piece piece{};
    for (size_t i = 0; i < piece.size() && begin + i < own.size(); ++i) piece[i] = own[begin + i];
    const std::vector<Piece> all = rank_.gather(piece);
    // pp is the slowest axis of the mesh.
    for (size_t r = 0; r < schedule.program.size(); ++r) {
      for (const engine::ActionSpan& span : all[r * stride]) {
        if (drawn.timeline[r].size() == schedule.program[r].size()) break;
        drawn.timeline[r].push_back({span.begin, span.end});
      }
    }
  }
  // Without a pipeline the picture would be one bar.
  if (rank_.is_first() && schedule.ranks > 1) drawn_.push_back(std::move(drawn));
}

sim::Result StepPicture::simulated(const Drawn& drawn) const {
  const spec::Plan& plan = engine_.plan();
  const sim::Links links{{{.latency = sim::measured_latency(plan.schedule, drawn.timeline)}}, {}};
  return sim::simulate(plan.schedule, sim::measured_costs(plan.schedule, drawn.timeline), links,
                       {.send_buffers = plan.layout.send_buffers, .timeline = true});
}

base::Json StepPicture::to_json() const {
  const schedule::Schedule& schedule = engine_.plan().schedule;
  base::Json steps = base::Json::array();
  for (const Drawn& drawn : drawn_) {
    const double begin = first_begin(schedule, drawn.timeline);
    steps.push_back({{"step", drawn.step},
                     {"pp", schedule.ranks},
                     {"planned", actions_json(schedule, simulated(drawn).timeline, begin)},
                     {"traced", actions_json(schedule, drawn.timeline, 0)}});
  }
  return {{"steps", steps}};
}

double StepPicture::ratio() const {
  double measured = 0, predicted = 0;
  for (const Drawn& drawn : drawn_) {
    measured += sim::measured_result(engine_.plan().schedule, drawn.timeline).makespan;
    predicted += simulated(drawn).makespan;
  }
  return predicted > 0 ? measured / predicted : 0;
}

void StepPicture::write(const std::filesystem::path& file) const {
  const schedule::Schedule& schedule = engine_.plan().schedule;
  std::vector<sim::Result> results;
  for (const Drawn& drawn : drawn_) {
    results.push_back(sim::measured_result(schedule, drawn.timeline));
    results.push_back(simulated(drawn));
  }
  std::vector<sim::Panel> panels;
  for (size_t i = 0; i < drawn_.size(); ++i) {
    const sim::Result &measured = results[2 * i], &predicted = results[2 * i + 1];
    panels.push_back({fmt::format("step {}, measured: {:.4g} s, idle {:.1f} %", drawn_[i].step,
                                  measured.makespan, 100 * measured.bubble_fraction()),
                      &schedule, &measured, true});
    panels.push_back(
        {fmt::format(
             "step {}, simulated with the mean cost of each stage's actions: {:.4g} s, idle "
             "{:.1f} %",
             drawn_[i].step, predicted.makespan, 100 * predicted.bubble_fraction()),
         &schedule, &predicted, true});
  }
  obs::OutputFile out(file, obs::OutputFile::Mode::replace);
  out.write(sim::svg(panels));
  out.sync();
}

}  // namespace trireme::train
