// SPDX-License-Identifier: Apache-2.0
// Compares the engine with the simulator. Thread ranks, one core each, run a schedule; every action
// is timed; the simulator plays the same schedule with the mean cost of each stage's actions and
// the median latency of a message.
//
//   pipeline [--schedule=interleaved] [--stages=2] [--chunks=0] [--microbatches=8] [--blocks=8]
//     [--hidden=256] [--tokens=256] [--steps=4] [--rounds=5] [--svg=FILE]
//
// Both times are of the actions, from the first of all ranks to the last; the optimizer follows
// them. The machine needs one core per rank.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "obs/clock.h"
#include "sim/measured.h"
#include "sim/picture.h"

namespace trireme::bench {
namespace {

struct Options {
  std::string schedule = "interleaved", svg;
  int stages = 2, chunks = 0, microbatches = 8, blocks = 8, steps = 4, rounds = 5;
  int64_t hidden = 256, tokens = 256;
};

int64_t integer_of(const std::string& word) {
  const std::string text = word.substr(word.find('=') + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw base::ConfigError(fmt::format("{}: a whole number is wanted", word));
  }
  return value;
}

Options options_of(const std::vector<std::string>& words) {
  Options o;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    const auto integer = [&] { return static_cast<int>(integer_of(word)); };
    if (name == "--schedule") {
      o.schedule = word.substr(name.size() + 1);
    } else if (name == "--svg") {
      o.svg = word.substr(name.size() + 1);
    } else if (name == "--stages") {
      o.stages = integer();
    } else if (name == "--chunks") {
      o.chunks = integer();
    } else if (name == "--microbatches") {
      o.microbatches = integer();
    } else if (name == "--blocks") {
      o.blocks = integer();
    } else if (name == "--hidden") {
      o.hidden = integer();
    } else if (name == "--tokens") {
      o.tokens = integer();
    } else if (name == "--steps") {
      o.steps = integer();
    } else if (name == "--rounds") {
      o.rounds = integer();
    } else {
      throw base::ConfigError(
          fmt::format("'{}' is no option; the head of pipeline.cpp has all", word));
    }
  }
  return o;
}

class Batches final : public engine::MicrobatchSource {
 public:
  explicit Batches(int64_t tokens) : tokens_(tokens) {}
  void fill(int index, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 1, tokens_);
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = static_cast<int32_t>((7 * t + static_cast<size_t>(index)) % 64);
      out.labels[t] = static_cast<int32_t>((7 * t + 7) % 64);
    }
  }

 private:
  int64_t tokens_;
};

struct Job {
  spec::ModelSpec model;
  spec::Plan plan;
};

Job job_of(const Options& o) {
  constexpr int64_t head_dim = 32;
  Job job;
  job.model = spec::make_model({.name = "equal blocks",
                                .layers = o.blocks,
                                .hidden = o.hidden,
                                .heads = std::max<int64_t>(1, o.hidden / head_dim),
                                .head_dim = head_dim,
                                .ffn = 3 * o.hidden,
                                .vocab = 64,
                                .max_seq = o.tokens,
                                .tied_head = false});
  job.plan = spec::parallel_plan(job.model,
                                 {.seq_len = o.tokens,
                                  .microbatches = o.microbatches,
                                  .recipe = spec::recipe_from_name("fp32")},
                                 {.pp = o.stages, .schedule = o.schedule, .chunks = o.chunks},
                                 spec::cpu_backend());
  return job;
}

// The timelines of some steps, each on a clock that all ranks share.
std::vector<sim::Timeline> measure(const Options& o, const Job& job) {
  const auto ranks = static_cast<size_t>(o.stages);
  std::vector<sim::Timeline> steps(static_cast<size_t>(o.steps), sim::Timeline(ranks));
  comm::ThreadWorld world(o.stages);
  comm::run_ranks(world, [&](int rank) {
    // The host runs ahead of its compute, as it does of a GPU.
    device::CpuDevice device(kernels::cpu_kernels(),
                             {.streams = device::StreamMode::worker_threads});
    const auto all = world.communicator(rank, {.name = "world"});
    comm::Mesh mesh(*all, job.plan.mesh);
    engine::Engine engine(device, job.model, job.plan, spec::cpu_backend(), {}, &mesh);
    Batches batches(o.tokens);
    engine.step(batches, 1e-4);
    engine::ActionTimes times(engine.compute(),
                              job.plan.schedule.program[static_cast<size_t>(rank)].size());
    engine.watch_actions(&times);
    for (sim::Timeline& step : steps) {
      times.start();
      all->barrier();
      times.start();
      const double began = obs::steady_seconds();
      engine.step(batches, 1e-4);
      for (const engine::ActionSpan& span : times.finish()) {
        step[static_cast<size_t>(rank)].push_back({began + span.begin, began + span.end});
      }
    }
    engine.watch_actions(nullptr);
  });
  for (sim::Timeline& step : steps) {
    double first = step[0][0].begin;
    for (const auto& rank : step) first = std::min(first, rank[0].begin);
    for (auto& rank : step) {
      for (sim::Span& span : rank) span = {span.begin - first, span.end - first};
    }
  }
  return steps;
}

void run(const Options& o) {
  const Job job = job_of(o);
  const schedule::Schedule& schedule = job.plan.schedule;
  std::vector<double> ratios;
  for (int round = 0; round < o.rounds; ++round) {
    for (const sim::Timeline& timeline : measure(o, job)) {
      const sim::Costs costs = sim::measured_costs(schedule, timeline);
      const sim::Links links{{{.latency = sim::measured_latency(schedule, timeline)}}, {}};
      const sim::Result predicted =
          sim::simulate(schedule, costs, links,
                        {.send_buffers = job.plan.send_buffers, .timeline = !o.svg.empty()});
      const sim::Result measured = sim::measured_result(schedule, timeline);
      ratios.push_back(measured.makespan / predicted.makespan);
      fmt::print(
          "measured {:8.2f} ms, bubble {:4.1f} %; simulated {:8.2f} ms, {:4.1f} %; ratio "
          "{:.3f}; message {:.0f} us\n",
          1e3 * measured.makespan, 100 * measured.bubble_fraction(), 1e3 * predicted.makespan,
          100 * predicted.bubble_fraction(), ratios.back(), 1e6 * links.wires[0].latency);
      if (o.svg.empty()) continue;
      std::ofstream file(o.svg);
      file << sim::svg({{"measured", &schedule, &measured}, {"simulated", &schedule, &predicted}});
      if (!file.flush()) throw base::IoError(fmt::format("{}: cannot be written", o.svg));
    }
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print(
      "{} on {} ranks, {} stages, {} micro-batches: measured over simulated {:.3f} in the "
      "middle of {} steps, from {:.3f} to {:.3f}\n",
      o.schedule, o.stages, schedule.stages(), o.microbatches, ratios[ratios.size() / 2],
      ratios.size(), ratios.front(), ratios.back());
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    trireme::bench::run(trireme::bench::options_of({argv + 1, argv + argc}));
  } catch (const trireme::base::Error& error) {
    fmt::print(stderr, "pipeline: {}\n", error.what());
    return 1;
  }
  return 0;
}
