// SPDX-License-Identifier: Apache-2.0
// Measures how much communication hides behind compute: two thread ranks with a communicator that
// sleeps.
//
//   overlap [--mode=zero3|ddp] [--share=0.75] [--blocks=12] [--hidden=192] [--tokens=96]
//     [--microbatches=1] [--prefetch=1] [--steps=4] [--rounds=7] [--compute=real|sleep]
//
// --share is the time of all communication of a step divided by that of its compute. Runs
// alternate: without delays, with delays and prefetch before the backward, with delays and prefetch
// after it. Exposed is the additional time of a step over a step without delays. The trace measures
// the idle time of the compute stream with and without delays. --compute=sleep lets products sleep
// as long as they would run at a fixed speed and skips the other ops: the engine's order alone, on
// a busy machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/failure/faulty.h"
#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "kernels/table.h"
#include "obs/clock.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::bench {
namespace {

using device::Stream;
using kernels::Kernels;

struct Options {
  std::string mode = "zero3", compute = "real";
  double share = 0.75;
  int blocks = 12, microbatches = 1, prefetch = 1, steps = 4, rounds = 7;
  int64_t hidden = 192, tokens = 96;
};

double number_of(const std::string& word) {
  const std::string text = word.substr(word.find('=') + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) {
    throw base::ConfigError(fmt::format("{}: a number above 0 is wanted", word));
  }
  return value;
}

Options options_of(const std::vector<std::string>& words) {
  Options o;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    const auto integer = [&] { return static_cast<int>(number_of(word)); };
    if (word == "--mode=zero3" || word == "--mode=ddp") {
      o.mode = word.substr(7);
    } else if (word == "--compute=real" || word == "--compute=sleep") {
      o.compute = word.substr(10);
    } else if (name == "--share") {
      o.share = number_of(word);
    } else if (name == "--blocks") {
      o.blocks = integer();
    } else if (name == "--microbatches") {
      o.microbatches = integer();
    } else if (name == "--prefetch") {
      o.prefetch = integer();
    } else if (name == "--steps") {
      o.steps = integer();
    } else if (name == "--rounds") {
      o.rounds = integer();
    } else if (name == "--hidden") {
      o.hidden = integer();
    } else if (name == "--tokens") {
      o.tokens = integer();
    } else {
      throw base::ConfigError(
          fmt::format("'{}' is no option; the head of overlap.cpp has all", word));
    }
  }
  return o;
}

// ---- stream activity. Ops are plain functions, so their records must be global.
std::mutex busy_mutex;                       // guards busy_seconds
std::map<std::string, double> busy_seconds;  // of the streams called so, over all ranks
bool compute_sleeps = false;

void sleeping_gemm(Stream& stream, const kernels::GemmArgs& a) {
  constexpr double flops_per_second = 2e9;
  const int64_t k = a.trans_a ? a.a.rows() : a.a.cols();
  const double flops = 2.0 * static_cast<double>(a.d.rows() * a.d.cols() * k);
  dynamic_cast<device::CpuStream&>(stream).enqueue([seconds = flops / flops_per_second] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  });
}

const Kernels& untimed() {
  static const Kernels sleeping = [] {
    Kernels table = kernels::null_kernels();
    table.gemm = sleeping_gemm;
    return table;
  }();
  return compute_sleeps ? sleeping : kernels::cpu_kernels();
}

template <typename Args, void (*Kernels::*row)(Stream&, const Args&)>
void timed(Stream& stream, const Args& args) {
  auto& queue = dynamic_cast<device::CpuStream&>(stream);
  // Shared by two pieces of queued work.
  const auto begin = std::make_shared<double>();
  queue.enqueue([begin] { *begin = obs::steady_seconds(); });
  (untimed().*row)(stream, args);
  queue.enqueue([begin, name = stream.name()] {
    const double seconds = obs::steady_seconds() - *begin;
    const std::lock_guard lock(busy_mutex);
    busy_seconds[name] += seconds;
  });
}

template <typename Args, void (*Kernels::*row)(Stream&, const Args&)>
void time_row(Kernels& table) {
  table.*row = timed<Args, row>;
}

const Kernels& timed_kernels() {
  static const Kernels table = [] {
    using namespace kernels;
    Kernels k = cpu_kernels();
    time_row<GemmArgs, &Kernels::gemm>(k);
    time_row<EmbeddingForwardArgs, &Kernels::embedding_forward>(k);
    time_row<EmbeddingBackwardArgs, &Kernels::embedding_backward>(k);
    time_row<NormForwardArgs, &Kernels::norm_forward>(k);
    time_row<NormBackwardArgs, &Kernels::norm_backward>(k);
    time_row<RopeForwardArgs, &Kernels::rope_forward>(k);
    time_row<RopeBackwardArgs, &Kernels::rope_backward>(k);
    time_row<AttentionForwardArgs, &Kernels::attention_forward>(k);
    time_row<AttentionBackwardArgs, &Kernels::attention_backward>(k);
    time_row<SwigluForwardArgs, &Kernels::swiglu_forward>(k);
    time_row<SwigluBackwardArgs, &Kernels::swiglu_backward>(k);
    time_row<CrossEntropyArgs, &Kernels::cross_entropy>(k);
    time_row<CrossEntropyStatsArgs, &Kernels::cross_entropy_stats>(k);
    time_row<CrossEntropyGradArgs, &Kernels::cross_entropy_grad>(k);
    time_row<FillArgs, &Kernels::fill>(k);
    time_row<CopyArgs, &Kernels::copy>(k);
    time_row<AccumulateArgs, &Kernels::accumulate>(k);
    time_row<SumSquaresArgs, &Kernels::sum_squares>(k);
    time_row<MergeSumsArgs, &Kernels::merge_sums>(k);
    time_row<StepControlArgs, &Kernels::step_control>(k);
    time_row<AdamwArgs, &Kernels::adamw>(k);
    return k;
  }();
  return table;
}

// ---- runs
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

constexpr int ranks = 2;

struct Job {
  spec::ModelSpec model;
  spec::Plan plan;
};

Job job_of(const Options& o, bool prefetch_after) {
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
  const bool is_zero3 = o.mode == "zero3";
  job.plan = spec::parallel_plan(
      job.model,
      {.seq_len = o.tokens,
       .microbatches = o.microbatches,
       .recipe = spec::recipe_from_name("fp32")},
      {.dp = is_zero3 ? 1 : ranks,
       .zero = is_zero3 ? ranks : 1,
       .residency = {is_zero3, is_zero3, is_zero3},
       .reduce = o.microbatches > 1 ? spec::ReduceWhen::each : spec::ReduceWhen::once,
       .prefetch = o.prefetch,
       .prefetch_after = prefetch_after},
      spec::cpu_backend());
  return job;
}

// Figures of one step, averaged over steps and ranks.
struct Times {
  double step = 0, busy = 0;
  double idle() const { return step - busy; }
};

Times measure(const Options& o, const Job& job, double seconds_per_byte) {
  using What = comm::Fault::What;
  std::vector<comm::Fault> delays;
  for (const char* op : {"all_gather", "reduce_scatter"}) {
    if (seconds_per_byte <= 0) continue;
    delays.push_back({.what = What::delay, .op = op, .seconds_per_byte = seconds_per_byte});
  }
  std::vector<double> seconds(ranks);
  comm::ThreadWorld world(ranks);
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(timed_kernels(), {.streams = device::StreamMode::worker_threads});
    comm::FaultyCommunicator all(world.communicator(rank, {.name = "world"}), delays);
    comm::Mesh mesh(all, job.plan.mesh);
    engine::Engine engine(device, job.model, job.plan, spec::cpu_backend(), {}, &mesh);
    Batches batches(o.tokens);
    engine.step(batches, 1e-4);
    engine.compute().synchronize();
    all.barrier();
    if (rank == 0) {
      const std::lock_guard lock(busy_mutex);
      busy_seconds.clear();
    }
    all.barrier();
    const double begin = obs::steady_seconds();
    for (int step = 0; step < o.steps; ++step) engine.step(batches, 1e-4);
    engine.compute().synchronize();
    seconds[static_cast<size_t>(rank)] = obs::steady_seconds() - begin;
    all.barrier();
  });
  const std::lock_guard lock(busy_mutex);
  return {(seconds[0] + seconds[1]) / ranks / o.steps, busy_seconds["compute"] / ranks / o.steps};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Figures of one round, relative to the adjacent runs without delays.
struct Exposed {
  std::vector<double> steps, by_clock, by_trace;  // seconds; shares of communication

  void add(const Times& times, const Times& plain, double communication) {
    steps.push_back(times.step);
    by_clock.push_back((times.step - plain.step) / communication);
    by_trace.push_back((times.idle() - plain.idle()) / communication);
  }
};

void run(const Options& o) {
  compute_sleeps = o.compute == "sleep";
  const Job before = job_of(o, false), after = job_of(o, true);
  const spec::TrafficTable sent = spec::predict_traffic(before.model, before.plan, {});
  // The bytes that arrive at a rank in a step, including its own parts; delays are proportional to
  // them.
  const double arriving = static_cast<double>(sent.total()) * ranks / (ranks - 1);
  Exposed with_before, with_after;
  std::vector<double> plain_steps, shares;
  Times last = measure(o, before, 0);
  for (int round = 0; round < o.rounds; ++round) {
    const double communication = o.share * last.step;
    const Times begins = last, first = measure(o, before, communication / arriving),
                second = measure(o, after, communication / arriving);
    last = measure(o, before, 0);
    const Times plain{(begins.step + last.step) / 2, (begins.busy + last.busy) / 2};
    plain_steps.push_back(plain.step);
    shares.push_back(communication / plain.step);
    with_before.add(first, plain, communication);
    with_after.add(second, plain, communication);
  }
  fmt::print("{} on {} ranks, {} blocks {} wide, {} tokens, {} micro-batches, compute {}\n", o.mode,
             ranks, o.blocks, o.hidden, o.tokens, o.microbatches, o.compute);
  fmt::print("without delays  {:7.1f} ms a step; communication {:.0f} % of it\n",
             1e3 * median(plain_steps), 100 * median(shares));
  const auto line = [](const char* name, const Exposed& exposed) {
    fmt::print("{} {:7.1f} ms a step; of communication {:5.1f} % exposed, {:5.1f} % by the trace\n",
               name, 1e3 * median(exposed.steps), 100 * median(exposed.by_clock),
               100 * median(exposed.by_trace));
  };
  line("prefetch before", with_before);
  if (o.mode == "zero3") line("prefetch after ", with_after);
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    trireme::bench::run(trireme::bench::options_of({argv + 1, argv + argc}));
  } catch (const trireme::base::Error& error) {
    fmt::print(stderr, "overlap: {}\n", error.what());
    return 1;
  }
  return 0;
}
