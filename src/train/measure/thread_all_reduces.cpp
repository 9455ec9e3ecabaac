// SPDX-License-Identifier: Apache-2.0
#include "train/measure/thread_all_reduces.h"

#include <algorithm>
#include <vector>

#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/ops.h"
#include "kernels/table.h"
#include "obs/clock.h"

namespace trireme::train {
namespace {

constexpr int64_t largest_bytes = int64_t{16} << 20;
constexpr int64_t buffer_bytes = int64_t{8} << 20;  // for the tree sum

// Returns the times of rank 0 by size: the minimum over several rounds, since other programs only
// add time.
std::vector<double> seconds_by_size(int ranks, int threads, const std::vector<int64_t>& sizes,
                                    int rounds) {
  std::vector<double> result;
  comm::ThreadWorld world(ranks);
  comm::run_ranks(world, [&](int rank) {
    device::CpuDevice device(kernels::cpu_kernels(), {.threads = threads});
    const auto stream = device.make_stream("calibrate");
    const auto group = world.communicator(rank, {.name = "calibrate"});
    device::Arena arena(
        device::Buffer(device, device::Mem::scratch, largest_bytes + buffer_bytes, "calibrate"));
    const device::Tensor whole = arena.take({{largest_bytes / 4}, base::DType::f32});
    group->set_buffer(arena.take({{buffer_bytes}, base::DType::u8}));
    kernels::ops::fill(*stream, {.d = whole, .value = 0});
    for (const int64_t bytes : sizes) {
      const device::Tensor part = whole.slice_rows(0, bytes / 4);
      const int calls = static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 64));
      std::vector<double> seconds;
      for (int round = 0; round <= rounds; ++round) {
        group->barrier();
        const double begin = obs::steady_seconds();
        for (int i = 0; i < calls; ++i) {
          group->all_reduce(*stream, part, comm::Reduce::sum);
        }
        stream->synchronize();
        if (round > 0) seconds.push_back((obs::steady_seconds() - begin) / calls);
      }
      if (rank == 0) result.push_back(*std::min_element(seconds.begin(), seconds.end()));
    }
  });
  return result;
}

}  // namespace

std::vector<plan::TimedCollective> thread_all_reduces(int ranks, int threads, bool is_quick) {
  std::vector<int64_t> sizes = {1 << 16, 1 << 20, largest_bytes};
  if (!is_quick) sizes = {1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, largest_bytes};
  std::vector<int> groups = {2};
  if (ranks > 2) groups.push_back(ranks);
  std::vector<plan::TimedCollective> rows;
  for (const int group : groups) {
    const std::vector<double> seconds = seconds_by_size(group, threads, sizes, is_quick ? 3 : 9);
    for (size_t i = 0; i < sizes.size(); ++i) {
      rows.push_back({.kind = plan::Collective::all_reduce,
                      .group = {.size = group, .stride = 1},
                      .bytes = static_cast<double>(sizes[i]),
                      .seconds = seconds[i]});
    }
  }
  return rows;
}

}  // namespace trireme::train
