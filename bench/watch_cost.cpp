// SPDX-License-Identifier: Apache-2.0
// Measures what timing a step costs: steps that are not timed, steps whose begin and end are timed,
// and steps whose waits are timed too, in turn.
//
//   watch_cost [--device=cpu|cuda] [--ranks=2] [--blocks=4] [--hidden=64] [--tokens=64]
//     [--steps=20] [--rounds=101]
//
// Ranks are threads of this process with ZeRO-3. A round has `steps` steps of each kind; printed
// are the medians over the rounds, and the added time relative to steps that are not timed. The
// line of marks has their cost alone, which a busy machine does not change.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/accelerator.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "obs/clock.h"
#include "spec/facts/backend.h"

namespace trireme::bench {
namespace {

struct Options {
  std::string device = "cpu";
  int ranks = 2, blocks = 4, steps = 20, rounds = 101;
  int64_t hidden = 64, tokens = 64;
};

Options options_of(const std::vector<std::string>& words) {
  Options o;
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string text = word.substr(std::min(equals + 1, word.size()));
    if (word == "--device=cpu" || word == "--device=cuda") {
      o.device = text;
      continue;
    }
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && value > 0;
    if (is_number && name == "--ranks") {
      o.ranks = value;
    } else if (is_number && name == "--blocks") {
      o.blocks = value;
    } else if (is_number && name == "--steps") {
      o.steps = value;
    } else if (is_number && name == "--rounds") {
      o.rounds = value;
    } else if (is_number && name == "--hidden") {
      o.hidden = value;
    } else if (is_number && name == "--tokens") {
      o.tokens = value;
    } else {
      throw base::ConfigError(
          fmt::format("'{}' is no option; the head of watch_cost.cpp has all", word));
    }
  }
  return o;
}

class Batches final : public engine::MicrobatchSource {
 public:
  explicit Batches(int64_t tokens) : tokens_(tokens) {}
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 1, tokens_);
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = static_cast<int32_t>(7 * t % 64);
      out.labels[t] = static_cast<int32_t>((7 * t + 7) % 64);
    }
  }

 private:
  int64_t tokens_;
};

enum class Kind : uint8_t { untimed, ends, waits, count };
using Seconds = std::array<std::vector<double>, static_cast<size_t>(Kind::count)>;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns the seconds of a step of each kind in every round, on this rank.
Seconds measure(engine::Engine& engine, Batches& batches, const Options& o) {
  Seconds seconds;
  engine.step(batches, 1e-3);
  for (int round = -1; round < o.rounds; ++round) {  // the first one warms up
    for (size_t i = 0; i < seconds.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(round + 1)) % seconds.size();
      const Kind kind{static_cast<uint8_t>(at)};
      engine.watch_times(kind != Kind::untimed);
      engine.watch_waits(kind == Kind::waits);
      engine.compute().synchronize();
      const double begin = obs::steady_seconds();
      for (int step = 0; step < o.steps; ++step) engine.step(batches, 1e-3);
      engine.compute().synchronize();
      if (round >= 0) seconds[at].push_back((obs::steady_seconds() - begin) / o.steps);
    }
    engine.take_times();
  }
  return seconds;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the processor time of the host for a step without work and with `waits` waits.
double mark_seconds(device::Stream& stream, int waits) {
  constexpr int steps = 5000, steps_in_flight = 50;
  engine::StepTimer timer(stream);
  stream.set_waits(&timer.watch());
  timer.measure_waits(waits > 0);
  double begin = 0;
  for (int step = -steps_in_flight; step < steps; ++step) {
    if (step == 0) begin = thread_seconds();
    timer.begin();
    for (int i = 0; i < waits; ++i) const device::WaitSpan span(stream, device::Wait::data);
    timer.end();
    if (step % steps_in_flight == 0) {
      stream.synchronize();
      timer.take();
    }
  }
  const double seconds = (thread_seconds() - begin) / steps;
  stream.synchronize();
  stream.set_waits(nullptr);
  return seconds;
}

std::unique_ptr<device::Device> make_device(bool on_gpu) {
  if (on_gpu) return device::make_gpu(kernels::cuda_kernels(), {});
  return std::make_unique<device::CpuDevice>(kernels::cpu_kernels(), device::CpuDevice::Options{});
}

void measure_marks(bool on_gpu) {
  constexpr int waits = 100;
  const auto device = make_device(on_gpu);
  const auto stream = device->make_stream("compute");
  const double ends = mark_seconds(*stream, 0);
  fmt::print("marks, host's processor time: begin and end {:.3f} us, a wait {:.3f} us\n",
             1e6 * ends, 1e6 * (mark_seconds(*stream, waits) - ends) / waits);
}

void run(const Options& o) {
  const bool on_gpu = o.device == "cuda";
  const spec::ModelSpec model = spec::make_model({.name = "watched",
                                                  .layers = o.blocks,
                                                  .hidden = o.hidden,
                                                  .heads = std::max<int64_t>(1, o.hidden / 32),
                                                  .head_dim = 32,
                                                  .ffn = 3 * o.hidden,
                                                  .vocab = 64,
                                                  .max_seq = o.tokens,
                                                  .tied_head = false});
  const spec::Backend backend = on_gpu ? spec::cuda_backend(true) : spec::cpu_backend();
  spec::Layout layout;
  layout.dp_shard = o.ranks;
  layout.zero_stage = o.ranks > 1 ? 3 : 0;
  if (on_gpu) layout.precision = spec::Precision::bf16;
  const spec::Plan plan = spec::solve_or_throw(model, {.seq_len = o.tokens}, layout, backend);
  comm::ThreadWorld world(o.ranks, 600);
  Seconds of_first;
  comm::run_ranks(world, [&](int rank) {
    const auto device = make_device(on_gpu);
    const auto communicator = world.communicator(rank, {.name = "world"});
    comm::Mesh mesh(*communicator, plan.mesh);
    engine::Engine engine(*device, model, plan, backend, {}, o.ranks > 1 ? &mesh : nullptr);
    Batches batches(o.tokens);
    Seconds seconds = measure(engine, batches, o);
    if (rank == 0) of_first = std::move(seconds);
  });
  measure_marks(on_gpu);
  const double untimed = median(of_first[0]);
  const auto line = [&](const char* name, Kind kind) {
    const std::vector<double>& seconds = of_first[static_cast<size_t>(kind)];
    // Rounds alternate, so the machine's drift cancels in the differences.
    std::vector<double> added(seconds.size());
    for (size_t i = 0; i < seconds.size(); ++i) added[i] = seconds[i] - of_first[0][i];
    fmt::print("{:<16} {:9.4f} ms  {:+8.3f} us  {:+.3f} %\n", name, 1e3 * median(seconds),
               1e6 * median(added), 100 * median(added) / untimed);
  };
  fmt::print("{}, {} ranks, {} rounds of {} steps\n", o.device, o.ranks, o.rounds, o.steps);
  line("not timed", Kind::untimed);
  line("begin and end", Kind::ends);
  line("waits", Kind::waits);
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    trireme::bench::run(trireme::bench::options_of({argv + 1, argv + argc}));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "watch_cost: {}\n", error.what());
    return 1;
  }
}
