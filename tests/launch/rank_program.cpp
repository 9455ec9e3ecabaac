// SPDX-License-Identifier: Apache-2.0
// A rank that does little but communicate: `trireme launch --program` starts it in tests. It is
// also the shortest example of how a process joins a run.
//
//   rank_program exercise [--worker]      every call once; prints the hash of the results
//   rank_program sums                     NCCL's sums against those in the fixed order
//   rank_program train [--recipe=R] [--dp=N --zero=N --stage=N] [--cp=N --kind=K --seq-len=N]
//                      [--capture]
//                                         ten steps of a tiny model on a GPU; prints loss and hash
//   rank_program spin --spin=RANK@STEP:POINT [LAYOUT and --capture as for train]
//                                         steps of a tiny model until the device of one rank spins
//                                         for ever: tests/launch/spin/spin.h
//   rank_program bytes [--cp=N --kind=K --ulysses=N --dp=N --zero=N --stage=N --tp=N]
//                      [--workers=N] [--hidden=N] [--seq-len=N] [--interface=NAME]
//                                         steps of a small model on the CPU; prints the bytes that
//                                         were predicted, counted, and sent by the kernel's count,
//                                         those that left this network namespace by an interface,
//                                         and the hash of the weights
//   rank_program lives --rank=R --ranks=N --store=HOST:PORT [--lives=N] [--aborted-of-ten=N]
//                      [--seed=N]
//                                         without a launcher: tests/launch/lives.h
//   rank_program loop [--steps=N] [FAULT] sums until it is killed; writes rankN.pid when it begins
//
//   rank_program epochs --rank=R --world=N --epoch=E --store=ADDRESS [--resume] [--memory=FD]
//                       [--copies=FD,FD,... --interval=N --pause=STEP] [KEY=VALUE...]
//                                         trains tiny_run.toml; after an abort this process waits
//                                         for the next epoch, which the key formed/<epoch>
//                                         announces. FD: memory for copies of its state. With
//                                         --copies no step ends before all ranks have sealed the
//                                         copies that are due before it, and the step STEP of the
//                                         first epoch ends once a file "go" exists, after it
//                                         has written a file "paused"
//
// All run over Gloo, or with --nccl over NCCL on GPU (local rank) modulo (GPUs of this host), where
// sums are NCCL's unless --fixed is also given. With --ranks-a-node=N neighbours of N ranks count
// as ranks of a node, wherever they are.
//
// FAULT happens on rank R at step K: --exit=R@K (with exit code --code=N, or 3) --throw=R@K
// --kill=R@K --stop=R@K --skip=R@K --sleep=R@K (ten minutes of computing). With --phases ranks
// publish that they are in steps, which then take 20 ms, and --busy=R@K is half a minute in the
// phase --busy-phase=data or compile.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/system/rank_activity.h"
#include "ckpt/memory/copy_memory.h"
#include "cli/shell/environment.h"
#include "comm/gloo.h"
#include "comm/nccl.h"
#include "comm/store/store.h"
#include "comm/store/store_wire.h"
#include "config/config.h"
#include "device/accelerator.h"
#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/table.h"
#include "tests/launch/exercise.h"
#include "tests/launch/lives.h"
#include "tests/launch/spin/spin.h"
#include "tests/launch/tcp_bytes.h"
#include "tests/ranks/ranks_rig.h"
#include "train/run/trainer.h"

namespace trireme::tests {
namespace {

using Options = std::map<std::string, std::string>;

struct Fault {
  int64_t rank = -1, step = -1;
};

Fault fault_from(const Options& options, const std::string& name) {
  const auto found = options.find(name);
  if (found == options.end()) return {};
  const size_t at = found->second.find('@');
  const auto rank = comm::integer_from(std::string_view(found->second).substr(0, at));
  const auto step = comm::integer_from(
      at == std::string::npos ? "" : std::string_view(found->second).substr(at + 1));
  if (!rank || !step) throw std::runtime_error(name + " needs R@K");
  return {*rank, *step};
}

int integer_of(const Options& options, const std::string& name, int fallback) {
  const auto found = options.find(name);
  if (found == options.end()) return fallback;
  return static_cast<int>(comm::integer_from(found->second).value_or(fallback));
}

// Returns whether the step's communication is to be skipped.
bool misbehaves(const Options& options, int64_t rank, int64_t step) {
  const auto is_due = [&](const std::string& name) {
    const Fault fault = fault_from(options, name);
    return fault.rank == rank && fault.step == step;
  };
  if (is_due("--kill")) std::raise(SIGKILL);
  if (is_due("--stop")) std::raise(SIGSTOP);
  if (is_due("--throw")) throw std::runtime_error("the requested fault");
  if (is_due("--sleep")) std::this_thread::sleep_for(std::chrono::minutes(10));
  if (is_due("--busy")) {
    const bool is_data = options.at("--busy-phase") == "data";
    const base::ActivityPhaseScope busy(is_data ? base::data_phase : base::compile_phase);
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }
  return is_due("--skip");
}

int loop(comm::Communicator& world, device::Device& device, const Options& options) {
  const auto stream = device.make_stream("loop");
  const device::Buffer memory(device, device::Mem::scratch, 1 << 16, "loop");
  const device::Buffer buffer(device, device::Mem::comm, 1 << 16, "sums");
  world.set_buffer(device::view_of(buffer.data(), {{buffer.bytes()}, base::DType::u8}));
  const device::Tensor tensor = device::view_of(memory.data(), {{4096}, base::DType::f32});
  const auto half = world.split(world.rank() / 2, world.rank(),
                                {.name = "pair",
                                 .deadline_s = world.options().deadline_s,
                                 .fixed_order = world.options().fixed_order});
  half->set_buffer(device::view_of(buffer.data(), {{buffer.bytes()}, base::DType::u8}));
  world.barrier();
  // Written under another name and renamed: a waiting test reads the complete file.
  const std::string name = fmt::format("rank{}.pid", world.rank());
  std::ofstream(name + ".new") << ::getpid() << std::flush;
  if (std::rename((name + ".new").c_str(), name.c_str()) != 0) return 4;
  const auto found = options.find("--steps");
  const int64_t steps =
      found == options.end() ? int64_t{1} << 40 : comm::integer_from(found->second).value_or(0);
  const Fault exits = fault_from(options, "--exit");
  for (int64_t step = 0; step < steps; ++step) {
    if (exits.rank == world.rank() && exits.step == step) {
      return integer_of(options, "--code", 3);
    }
    std::optional<base::ActivityPhaseScope> phase;
    if (options.contains("--phases")) {
      phase.emplace(base::step_phase);
      base::RankActivity::current().set_step(step + 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (!misbehaves(options, world.rank(), step)) {
      world.all_reduce(*stream, tensor, comm::Reduce::sum);
    }
    half->all_reduce(*stream, tensor, comm::Reduce::sum);
    stream->synchronize();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  world.barrier();
  half->close(comm::End::finish);
  return 0;
}

// Waits on the first rank after a step, so that a test knows what has happened by then.
class Pace {
 public:
  explicit Pace(const Options& options)
      : interval_(integer_of(options, "--interval", 1)), pause_(integer_of(options, "--pause", 0)) {
    const auto found = options.find("--copies");
    if (found == options.end()) return;
    std::istringstream numbers(found->second);
    for (std::string number; std::getline(numbers, number, ',');) {
      copies_.push_back(static_cast<int>(comm::integer_from(number).value()));
    }
  }

  void after(int64_t step) const {
    if (copies_.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the test must be able to act
      return;
    }
    // Copies are due after the first step, and then after every interval.
    const int64_t due = step - 1 - (step - 2 + interval_) % interval_;
    for (const int copy : copies_) {
      wait_for([&] { return due < 1 || newest(copy) >= due; });
    }
    if (step != pause_) return;
    std::ofstream("paused").flush();
    wait_for([] { return ::access("go", F_OK) == 0; });
  }

 private:
  static int64_t newest(int descriptor) {
    const auto copies = ckpt::CopyMemory::copies_in(descriptor);
    return copies.empty() ? -1 : copies.front().label.step;
  }
  template <typename Holds>
  static void wait_for(const Holds& holds) {
    for (int i = 0; !holds(); ++i) {
      if (i > 60'000) throw std::runtime_error("waited for a minute");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int64_t interval_, pause_;
  std::vector<int> copies_;
};

// A run whose processes outlive their groups.
int train_epochs(const Options& options) {
  comm::RankInfo info{.rank = integer_of(options, "--rank", 0),
                      .world = integer_of(options, "--world", 1),
                      .epoch = integer_of(options, "--epoch", 0),
                      .source = comm::RankSource::trireme,
                      .store = options.at("--store"),
                      .token = "epochs",
                      .has_secret_token = true,
                      .is_watched = true,
                      .deadline_s = 60,
                      .memory_fd = integer_of(options, "--memory", -1)};
  info.local_rank = info.rank;
  info.local_world = info.world;
  int64_t epoch = info.epoch;
  info.next_epoch = [&]() -> std::optional<comm::RankInfo> {
    const auto store = comm::open_store(comm::parse_store_address(info.store),
                                        {.deadline_s = 60, .token = info.token});
    (void)store->add(fmt::format("left/{}", epoch), 1);
    ++epoch;
    (void)store->get(fmt::format("formed/{}", epoch), 60);
    comm::RankInfo next = info;
    next.epoch = epoch;
    return next;
  };
  const Pace pace(options);
  config::LoadOptions load{.world = info.world};
  for (const auto& [key, value] : options) {
    if (key.find('.') != std::string::npos)
      load.overrides.push_back(fmt::format("{}={}", key, value));
  }
  const train::TrainHooks hooks{
      .log = [](std::string_view text) { base::log_info("{}", text); },
      .progress =
          [&](int64_t step, std::string_view) {
            if (epoch == 0) pace.after(step);
          },
      .resume = {.from = options.contains("--resume") ? train::Resume::From::newest
                                                      : train::Resume::From::start}};
  const train::TrainSummary summary =
      train::train(config::solved(config::load("tiny_run.toml", load), info.world),
                   obs::RunMode::fresh, hooks, info);
  fmt::print("steps {} attempt {} tokens {} from {} epoch {}\n", summary.steps,
             summary.attempt_steps, summary.total_tokens, summary.resumed_from, epoch);
  fmt::print("copied {} skipped {} failed {} exposed {:.6f} s of {:.3f} s\n", summary.copies.copies,
             summary.copies.skipped, summary.copies.failed, summary.copies.exposed_seconds,
             summary.seconds);
  for (const train::RankFigures& rank : summary.ranks) {
    fmt::print("kept {} of {}\n", rank.host.rebuild.measured_bytes,
               rank.host.rebuild.predicted_bytes);
    fmt::print("copies {} of {}\n", rank.host.copies.measured_bytes,
               rank.host.copies.predicted_bytes);
  }
  return 0;
}

// One layout of a tiny model, which tests/gpu also trains with ranks as threads.
Layout layout_of(const comm::Communicator& world, const Options& options) {
  const auto recipe = options.find("--recipe"), kind = options.find("--kind");
  const int cp = integer_of(options, "--cp", 1);
  return {.dims = tiny_llama(),
          .dp = integer_of(options, "--dp", 1),
          .zero = integer_of(options, "--zero", 1),
          .stage = integer_of(options, "--stage", 0),
          .cp = cp,
          .context_kind = kind == options.end()
                              ? spec::ContextKind::gather
                              : spec::context_kind_from_name(kind->second).value(),
          .recipe = recipe == options.end() ? "fp32" : recipe->second,
          .logical_dp = world.size() / cp,
          .seq_len = integer_of(options, "--seq-len", 6),
          .on_gpu = options.contains("--nccl"),
          .capture = options.contains("--capture")};
}

int train(comm::Communicator& world, device::Device& device, const Options& options) {
  run_rank(layout_of(world, options), world, device, [&](RankRig& rig) {
    for (int step = 0; step < 10; ++step) {
      rig.engine.step(rig.source, 1e-3);
      rig.next_step();
      fmt::print("rank {} step {} loss {:.9g}\n", world.rank(), step,
                 rig.engine.report().mean_loss);
    }
    if (rig.engine.is_captured()) fmt::print("rank {} captured\n", world.rank());
    fmt::print("rank {} weights {}\n", world.rank(), rig.engine.weights_sha256());
  });
  return 0;
}

int64_t total(const spec::TrafficTable& t) {
  return t.reduce_grads + t.gather_grads + t.gather_params + t.step_sums + t.updates +
         t.layer_state + t.tp_forward + t.tp_backward + t.tp_grads + t.cp_forward + t.cp_backward +
         t.ep_forward + t.ep_backward + t.pp_activations + t.pp_gradients + t.pp_table + t.other;
}

// Returns the bytes that have left by an interface; 0 without a name.
int64_t bytes_left_by(const Options& options) {
  const auto name = options.find("--interface");
  if (name == options.end()) return 0;
  int64_t bytes = -1;
  std::ifstream(fmt::format("/sys/class/net/{}/statistics/tx_bytes", name->second)) >> bytes;
  if (bytes < 0) throw std::runtime_error("no interface " + name->second);
  return bytes;
}

// The messages are long, so that their headers are a small part of the bytes.
int count_bytes(comm::Communicator& world, device::Device& device, const Options& options) {
  spec::ModelDims dims = tiny_llama();
  dims.hidden = integer_of(options, "--hidden", 64);
  dims.heads = 8;
  dims.kv_heads = 4;
  dims.head_dim = 16;
  dims.max_seq = integer_of(options, "--seq-len", 768);
  const auto kind = options.find("--kind");
  const Layout layout{
      .dims = dims,
      .dp = integer_of(options, "--dp", 1),
      .zero = integer_of(options, "--zero", 1),
      .stage = integer_of(options, "--stage", 0),
      .tp = integer_of(options, "--tp", 1),
      .cp = integer_of(options, "--cp", 1),
      .context_kind =
          spec::context_kind_from_name(kind == options.end() ? "gather" : kind->second).value(),
      .ulysses = integer_of(options, "--ulysses", 0),
      .logical_dp = integer_of(options, "--workers", integer_of(options, "--zero", 1)),
      .seq_len = dims.max_seq};
  run_rank(layout, world, device, [&](RankRig& rig) {
    rig.engine.step(rig.source, 1e-3);
    rig.engine.compute().synchronize();
    world.barrier();
    const int64_t counted = total(rig.engine.traffic()), sent = tcp_bytes_sent();
    const int64_t left = bytes_left_by(options);
    world.barrier();
    constexpr int steps = 2;
    for (int step = 0; step < steps; ++step) rig.engine.step(rig.source, 1e-3);
    rig.engine.compute().synchronize();
    world.barrier();
    const int64_t sent_after = tcp_bytes_sent(), left_after = bytes_left_by(options);
    // A rank that leaves closes its connections; this host then loses their counters.
    world.barrier();
    const int64_t predicted =
        steps * total(spec::predict_traffic(rig.model, rig.engine.plan(), rig.mesh.coord(),
                                            world.options().nodes));
    fmt::print("rank {} predicted {} counted {} sent {}\n", world.rank(), predicted,
               total(rig.engine.traffic()) - counted, sent < 0 ? -1 : sent_after - sent);
    fmt::print("rank {} left {} weights {}\n", world.rank(), left_after - left,
               rig.engine.weights_sha256());
  });
  return 0;
}

std::unique_ptr<device::Device> make_device(const comm::RankInfo& info, const Options& options) {
  if (options.contains("--nccl")) {
    const auto gpus = static_cast<int>(device::gpu_status().gpus.size());
    return device::make_gpu(kernels::cuda_kernels(),
                            {.index = gpus == 0 ? 0 : info.local_rank % gpus});
  }
  const auto streams = options.contains("--worker") ? device::StreamMode::worker_threads
                                                    : device::StreamMode::inline_calls;
  return std::make_unique<device::CpuDevice>(
      kernels::cpu_kernels(), device::CpuDevice::Options{.threads = 1, .streams = streams});
}

int live_often(const Options& options) {
  const LivesOptions lives{.rank = integer_of(options, "--rank", 0),
                           .ranks = integer_of(options, "--ranks", 1),
                           .store = options.at("--store"),
                           .is_nccl = options.contains("--nccl"),
                           .lives = integer_of(options, "--lives", 1),
                           .aborted_of_ten = integer_of(options, "--aborted-of-ten", 5),
                           .seed = static_cast<uint64_t>(integer_of(options, "--seed", 1))};
  const auto device = make_device({.local_rank = lives.rank}, options);
  live(lives, *device);
  return 0;
}

std::vector<int> declared_nodes(const Options& options, int ranks) {
  const int ranks_a_node = integer_of(options, "--ranks-a-node", 0);
  std::vector<int> nodes;
  for (int rank = 0; ranks_a_node > 0 && rank < ranks; ++rank) nodes.push_back(rank / ranks_a_node);
  return nodes;
}

int run(const std::string& mode, const Options& options) {
  if (mode == "lives") return live_often(options);
  if (mode == "epochs") return train_epochs(options);
  const comm::RankInfo info = comm::detect_rank(cli::process_environment());
  const base::RankActivityScope activity(info.rank);
  for (const std::string& warning : info.warnings) base::log_warning("{}", warning);
  base::log_info("{}", info.text());
  const std::unique_ptr<device::Device> device = make_device(info, options);
  comm::ProcessWorld world(info);
  const bool is_nccl = options.contains("--nccl");
  const comm::Communicator::Options group_options = {
      .name = "world",
      .deadline_s = info.deadline_s > 0 ? info.deadline_s : 60,
      .fixed_order = !is_nccl || options.contains("--fixed"),
      .nodes = declared_nodes(options, info.world)};
  const auto group = is_nccl ? comm::make_nccl(world, *device, group_options)
                             : comm::make_gloo(world, group_options);
  int code = 0;
  if (mode == "loop") {
    code = loop(*group, *device, options);
  } else if (mode == "bytes") {
    code = count_bytes(*group, *device, options);
  } else if (mode == "train") {
    code = train(*group, *device, options);
  } else if (mode == "spin") {
    const SpinOptions spin = SpinOptions::from(options.at("--spin"));
    run_rank(layout_of(*group, options), *group, *device,
             [&](RankRig& rig) { train_until_spin(spin, rig); });
  } else if (mode == "sums") {
    comm::Communicator::Options library = group_options;
    library.fixed_order = false;
    const auto other = group->split(0, group->rank(), library);
    fmt::print("rank {} differs by {:.3g}\n", info.rank, library_error(*group, *other, *device));
    other->close(comm::End::finish);
  } else {
    fmt::print("rank {} {}\n", info.rank, exercise(*group, *device));
  }
  std::fflush(stdout);
  if (code == 0) {
    group->barrier();
    group->close(comm::End::finish);
  }
  return code;
}

}  // namespace
}  // namespace trireme::tests

int main(int argc, char** argv) {
  trireme::tests::Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    options[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  try {
    return trireme::tests::run(argc > 1 ? argv[1] : "exercise", options);
  } catch (const std::exception& error) {
    trireme::base::log(trireme::base::LogLevel::error, error.what());
    return 1;
  }
}
