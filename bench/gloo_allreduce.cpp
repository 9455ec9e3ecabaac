// SPDX-License-Identifier: Apache-2.0
// All-reduce over Gloo: ours, which sums in a fixed order, against Gloo's ring, alternating.
//
//   trireme launch -n 4 --program build/release/bench/gloo_allreduce bench [--mebibytes=64]
//     [--rounds=20] [--buffer=64]
//
// Rank 0 prints the medians and the ratio (above 1: ours is faster).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/shell/environment.h"
#include "comm/gloo.h"
#include "comm/store/store_wire.h"
#include "device/cpu/cpu_device.h"
#include "device/memory.h"
#include "kernels/table.h"

namespace trireme::bench {
namespace {

int64_t integer_option(const std::vector<std::string>& words, const std::string& name,
                       int64_t fallback) {
  for (const std::string& word : words) {
    if (!word.starts_with(name + "=")) continue;
    return comm::integer_from(word.substr(name.size() + 1)).value_or(fallback);
  }
  return fallback;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double time_of(comm::Communicator& group, device::Stream& stream, device::Tensor tensor) {
  group.barrier();
  const auto begin = std::chrono::steady_clock::now();
  group.all_reduce(stream, tensor, comm::Reduce::sum);
  stream.synchronize();
  group.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(const std::vector<std::string>& words) {
  const comm::RankInfo info = comm::detect_rank(cli::process_environment());
  device::CpuDevice device(kernels::cpu_kernels(), {.threads = 1});
  const auto stream = device.make_stream("bench");
  comm::ProcessWorld world(info);
  const auto ours = comm::make_gloo(world, {.name = "fixed order"});
  const auto gloos = ours->split(0, ours->rank(), {.name = "ring", .fixed_order = false});
  const int64_t bytes = integer_option(words, "--mebibytes", 64) << 20;
  const device::Buffer memory(device, device::Mem::grads, bytes, "tensor");
  const device::Buffer buffer(device, device::Mem::comm,
                              integer_option(words, "--buffer", 64) << 20, "sums");
  ours->set_buffer(device::view_of(buffer.data(), {{buffer.bytes()}, base::DType::u8}));
  std::memset(memory.data(), 0, static_cast<size_t>(bytes));
  std::memset(buffer.data(), 0, static_cast<size_t>(buffer.bytes()));
  const device::Tensor tensor = device::view_of(memory.data(), {{bytes / 4}, base::DType::f32});
  const int64_t rounds = integer_option(words, "--rounds", 20);
  std::vector<double> our_times, gloo_times;
  for (int64_t round = -2; round < rounds; ++round) {  // two to warm up
    const double our_time = time_of(*ours, *stream, tensor);
    const double gloo_time = time_of(*gloos, *stream, tensor);
    if (round < 0) continue;
    our_times.push_back(our_time);
    gloo_times.push_back(gloo_time);
  }
  if (info.rank != 0) return;
  fmt::print(
      "{} ranks, {} MiB: fixed order {:.1f} ms, Gloo's ring {:.1f} ms (medians of {}), "
      "ratio {:.3f}\n",
      info.world, bytes >> 20, 1e3 * median(our_times), 1e3 * median(gloo_times), rounds,
      median(gloo_times) / median(our_times));
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    trireme::bench::run({argv + std::min(argc, 1), argv + argc});
    return 0;
  } catch (const std::exception& error) {
    trireme::base::log(trireme::base::LogLevel::error, error.what());
    return 1;
  }
}
