// SPDX-License-Identifier: Apache-2.0
#include "train/setup/ranks.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/rank_activity.h"
#include "comm/failure/late_flight.h"
#include "comm/gloo.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "comm/world/epochs.h"
#include "comm/world/process_world.h"
#include "config/layout.h"
#include "device/accelerator.h"
#include "obs/clock.h"
#include "train/setup/core_share.h"
#include "train/setup/run_identity.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

int64_t ranks_of(const config::Config& c) { return config::layout_of(c).ranks(); }

comm::Communicator::Options world_options(RankBackend backend, const config::Config& c,
                                          const comm::RankInfo& info) {
  return {.name = "world",
          .deadline_s = info.deadline_s > 0 ? info.deadline_s : c.comm.deadline_s,
          .fixed_order = backend != RankBackend::nccl || c.comm.fixed_order,
          .debug = c.comm.debug || info.debug};
}

std::string backend_problem(RankBackend backend, const config::Config& c,
                            const comm::RankInfo& info, bool on_gpu) {
  const bool is_launched = info.world > 1;
  const std::string name =
      c.comm.backend == "auto" ? "" : "comm.backend = " + c.comm.backend + ": ";
  if (backend == RankBackend::threads && is_launched) {
    return name + fmt::format(
                      "this run has {} processes (from {}), and threads are ranks of one process; "
                      "use auto",
                      info.world, comm::name_of(info.source));
  }
  if (backend != RankBackend::threads && !is_launched) {
    return name + fmt::format(
                      "ranks are processes; start them with `trireme launch -n {}`, or use "
                      "auto or threads for ranks in one process",
                      ranks_of(c));
  }
  if (c.comm.capture && backend != RankBackend::nccl) {
    return "comm.capture = true: only steps of ranks over nccl can be captured; leave it out, or "
           "use comm.backend = nccl on GPUs";
  }
  if (c.comm.capture && (c.comm.debug || info.debug)) {
    return "comm.capture = true: ranks that compare their calls (comm.debug) cannot be captured; "
           "use one of the two";
  }
  if (backend == RankBackend::gloo) {
    if (on_gpu) return name + "Gloo transfers CPU memory only; use --device cpu, or nccl";
    return comm::gloo_status();
  }
  if (backend == RankBackend::nccl) {
    if (!on_gpu) return name + "NCCL transfers GPU memory only; use --device cuda, or gloo";
    return comm::nccl_status();
  }
  return "";
}

// The only place that makes a back end for processes.
std::unique_ptr<comm::Communicator> connect(RankBackend backend, comm::ProcessWorld& world,
                                            device::Device& device,
                                            const comm::Communicator::Options& options) {
  if (backend == RankBackend::nccl) return comm::make_nccl(world, device, options);
  TRIREME_CHECK(backend == RankBackend::gloo, "back end {}", static_cast<int>(backend));
  return comm::make_gloo(world, options);
}

// Every rank compares its identity with that of the first rank: one request per rank.
void compare_identities(comm::ProcessWorld& world, const std::string& identity, double deadline_s) {
  const std::string key = "identity";
  if (world.info().rank == 0) {
    world.store().set(key, identity);
    return;
  }
  world.wait_for({&key, 1}, deadline_s);
  const std::string difference = identity_difference(world.store().get(key, deadline_s), identity);
  if (difference.empty()) return;
  throw base::ConfigError(
      fmt::format("rank {} differs from rank 0; give all ranks the same configuration, data and "
                  "program. Differences (there: rank 0, here: rank {}):{}",
                  world.info().rank, world.info().rank, difference));
}

// ---- the device and threads of each rank

// Assigns GPUs from system.gpu on, round robin.
config::System with_gpu_of(config::System system, int local_rank) {
  const auto gpus = static_cast<int64_t>(device::gpu_status().gpus.size());
  if (gpus > 0 && system.gpu < gpus) system.gpu = (system.gpu + local_rank) % gpus;
  return system;
}

// Sets the threads of one of `ranks` ranks of this process: its share of the number that the
// environment gives, or of all cores.
config::System with_threads(config::System system, const comm::RankInfo& info, int ranks) {
  if (system.threads > 0) return system;
  const int all = info.cpu_threads > 0 ? info.cpu_threads : thread_count(0);
  system.threads = std::max(1, all / ranks);
  return system;
}

config::System system_of_process(const config::System& asked, bool on_gpu,
                                 comm::ProcessWorld& world) {
  const comm::RankInfo& info = world.info();
  if (on_gpu) return with_gpu_of(asked, info.local_rank);
  config::System system = asked;
  if (system.threads == 0) {
    system.threads = info.cpu_threads > 0 ? info.cpu_threads : share_of_host_cores(world);
  }
  return system;
}

void write_flights(comm::ThreadWorld& world, const fs::path& folder) {
  try {
    fs::create_directories(folder);
    for (int rank = 0; rank < world.ranks(); ++rank) world.recorder(rank).write(folder);
    base::log_info("flight records of the ranks: {}", folder.string());
  } catch (const std::exception& error) {  // the error that ends the run matters more
    base::log_warning("no flight records: {}", error.what());
  }
}

void run_threads(const config::Config& c, const comm::RankInfo& info,
                 const std::function<void(const RankStart&)>& body) {
  constexpr int64_t max_thread_ranks = 4096;  // as system.threads
  const int64_t wanted = ranks_of(c);
  if (wanted > max_thread_ranks) {
    throw base::ConfigError(
        fmt::format("parallelism: the degrees multiply to {} ranks, and without a launcher ranks "
                    "are threads of this process, at most {}; start processes (docs/ranks.md)",
                    wanted, max_thread_ranks));
  }
  const auto ranks = static_cast<int>(wanted);
  const bool on_gpu = runs_on_gpu(c.system);
  const comm::Communicator::Options options = world_options(RankBackend::threads, c, info);
  comm::ThreadWorld world(ranks, options.deadline_s);
  std::atomic<bool> has_begun = false;
  RankStart start{.ranks = ranks,
                  .system = with_threads(c.system, info, ranks),
                  .device_sharers = ranks,
                  .process_ranks = ranks,
                  .host_ranks = ranks,
                  .begins = [&has_begun] { has_begun = true; }};
  start.description = {
      fmt::format("ranks     {} as threads of this process, {}", ranks,
                  on_gpu ? "on one GPU"
                         : fmt::format("each on {} of its CPU",
                                       start.system.threads == 1
                                           ? "one thread"
                                           : fmt::format("{} threads", start.system.threads)))};
  try {
    comm::run_ranks(world, [&](int rank) {
      RankStart own = start;
      own.number = own.local_rank = rank;
      // Threads share one configuration and one build: there is nothing to compare.
      own.connect = [&world, rank, options](device::Device&, const std::string&) {
        return world.communicator(rank, options);
      };
      body(own);
    });
  } catch (...) {
    if (has_begun) write_flights(world, fs::path(c.job.dump_folder) / "flight");
    throw;
  }
}

// The verdict of a run of which this rank has failed.
comm::Verdict verdict_about(const comm::ProcessWorld& world, const std::exception& error) {
  if (dynamic_cast<const base::Fenced*>(&error) != nullptr) {
    return world.own_verdict(comm::VerdictKind::fenced, error.what(),
                             fmt::format("fenced: {}", error.what()));
  }
  if (dynamic_cast<const base::OutOfMemory*>(&error) != nullptr) {
    return world.own_verdict(comm::VerdictKind::no_memory, error.what());
  }
  const bool is_unfit = dynamic_cast<const base::ConfigError*>(&error) != nullptr ||
                        dynamic_cast<const base::Diverged*>(&error) != nullptr;
  return world.own_verdict(is_unfit ? comm::VerdictKind::unfit : comm::VerdictKind::failed,
                           error.what());
}

void run_process(RankBackend backend, const config::Config& c, comm::RankInfo info,
                 const std::function<void(const RankStart&)>& body) {
  const bool on_gpu = backend == RankBackend::nccl;
  if (info.flight_folder.empty()) {
    info.flight_folder = (fs::path(c.job.dump_folder) / "flight").string();
  }
  info.run_folder = c.job.dump_folder;
  const comm::Communicator::Options options = world_options(backend, c, info);
  std::optional<comm::ProcessWorld> world;      // of the current epoch
  std::optional<comm::LateFlight> late_flight;  // of the one before
  RankStart start;
  const auto enter_epoch = [&] {
    world.emplace(info, comm::ProcessWorld::Options{.deadline_s = options.deadline_s});
    // The folder may belong to another run until this one has begun.
    world->keep_flight(false);
    start.epoch = info.epoch;
    if (info.world > 1) start.host_address = world->store().local_address();
    const bool writes = info.rank == 0 && info.is_elastic;
    start.epoch_writer =
        writes ? comm::EpochWriter::of(world->store(), c.job.dump_folder) : nullptr;
    start.system = system_of_process(c.system, on_gpu, *world);
    start.description = {"ranks     this is " + world->info().text(),
                         fmt::format("          processes that communicate over {}",
                                     backend == RankBackend::gloo ? "Gloo" : "NCCL")};
  };
  if (info.joins) {
    start.up_at = obs::wall_seconds();
    comm::await_formation(info);
  }
  enter_epoch();
  start.number = info.rank;
  start.ranks = info.world;
  start.device_sharers = info.local_world;
  start.local_rank = info.local_rank;
  start.host_ranks = info.local_world;
  start.memory_fd = info.memory_fd;
  start.peer_memory_fd = info.peer_memory_fd;
  start.begins = [&world] { world->keep_flight(true); };
  if (on_gpu) {
    const auto gpus = std::max<int>(1, static_cast<int>(device::gpu_status().gpus.size()));
    start.device_sharers = (info.local_world + gpus - 1) / gpus;
  }
  start.connect = [&](device::Device& device, const std::string& identity) {
    compare_identities(*world, identity, options.deadline_s);
    return connect(backend, *world, device, options);
  };
  if (info.next_epoch) {
    start.next_epoch = [&](RankStart& next) {
      const std::optional<comm::Verdict> verdict = world ? world->verdict() : std::nullopt;
      if (verdict && verdict->kind == comm::VerdictKind::fenced) return false;
      const std::optional<comm::RankInfo> found = info.next_epoch();
      if (!found) return false;
      TRIREME_CHECK(found->rank == info.rank && found->epoch > info.epoch,
                    "rank {} of epoch {} follows rank {} of epoch {}", found->rank, found->epoch,
                    info.rank, info.epoch);
      std::function<void()> flight = world ? world->take_flight() : nullptr;
      world.reset();
      info.epoch = found->epoch;
      info.store = found->store;
      enter_epoch();
      late_flight.reset();  // of the epoch before that one
      if (flight) late_flight.emplace(std::move(flight));
      next = start;
      return true;
    };
  }
  const auto failed = [&](const std::exception& error) {
    if (info.failed && world) info.failed(*world, error);
  };
  try {
    body(start);
  } catch (const base::CommAborted& error) {
    // All ranks are notified already. A fenced run is fenced on every rank.
    const std::optional<comm::Verdict> verdict = world ? world->verdict() : std::nullopt;
    if (verdict && verdict->kind == comm::VerdictKind::fenced) {
      const base::Fenced fenced(verdict->cause);
      failed(fenced);
      throw base::Fenced(fenced);
    }
    failed(error);
    throw;
  } catch (const std::exception& error) {
    if (world) world->abort(verdict_about(*world, error));
    failed(error);
    throw;
  }
}

}  // namespace

RankBackend choose_backend(const config::Config& c, const comm::RankInfo& info) {
  TRIREME_CHECK(info.world == 1 || info.world == ranks_of(c), "{} ranks for degrees of {}",
                info.world, ranks_of(c));
  if (ranks_of(c) == 1) return RankBackend::none;
  const bool on_gpu = runs_on_gpu(c.system);
  const std::string& name = c.comm.backend;
  const RankBackend backend = name == "threads" ? RankBackend::threads
                              : name == "gloo"  ? RankBackend::gloo
                              : name == "nccl"  ? RankBackend::nccl
                              : info.world == 1 ? RankBackend::threads
                              : on_gpu          ? RankBackend::nccl
                                                : RankBackend::gloo;
  const std::string problem = backend_problem(backend, c, info, on_gpu);
  if (!problem.empty()) throw base::ConfigError(problem);
  return backend;
}

void run_ranks(const config::Config& c, const comm::RankInfo& info,
               const std::function<void(const RankStart&)>& body) {
  const RankBackend backend = choose_backend(c, info);
  if (backend == RankBackend::threads) {
    run_threads(c, info, body);
    return;
  }
  const base::RankActivityScope activity(info.rank);
  if (backend == RankBackend::none) {
    std::optional<comm::ProcessWorld> world;  // by which its launcher sees whether it moves
    if (!info.store.empty()) {
      world.emplace(info, comm::ProcessWorld::Options{.deadline_s = c.comm.deadline_s});
      world->keep_flight(false);
    }
    body({.system = with_threads(c.system, info, 1)});
  } else {
    run_process(backend, c, info, body);
  }
}

}  // namespace trireme::train
