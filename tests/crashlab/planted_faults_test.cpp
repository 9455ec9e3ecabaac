// SPDX-License-Identifier: Apache-2.0
// Every planted fault is found by the same checks of the same disks that find nothing without it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "ckpt/generation/folder.h"
#include "crash_disk.h"
#include "failing_disk.h"
#include "workload.h"

namespace trireme::crashlab {
namespace {

constexpr uint64_t fault_seed = 9;

Promises run_with_fault(ckpt::Disk& disk, const Workload& workload, const CrashDisk& below) {
  const auto faulty = planted(disk, workload.fault);
  return run(*faulty, workload, [&] { return below.operations(); });
}

// Samples power cuts.
std::string found_by_power_cuts(const Workload& workload) {
  CrashDisk disk;
  const Promises promises = run_with_fault(disk, workload, disk);
  for (uint64_t sample = 0; sample < 4'000; ++sample) {
    Dice dice(fault_seed + 1'000'003 * sample);
    const size_t cut = dice.pick(disk.operations() + 1);
    const std::string broken = broken_promise(*disk.image(cut, dice), promises.at(cut), workload);
    if (!broken.empty()) return fmt::format("power cut {}: {}", sample, broken);
  }
  return "";
}

// Without a power cut: the workload's last checkpoint must exist.
std::string found_by_loading(const Workload& workload) {
  CrashDisk disk;
  const Promises promises = run_with_fault(disk, workload, disk);
  const std::vector<int64_t> promised = promises.at(disk.operations());
  if (promised != std::vector<int64_t>{40}) return "loading: step 40 was not committed";
  const std::string broken = broken_promise(disk, promised, workload);
  return broken.empty() ? "" : "loading: " + broken;
}

std::string found_by_errors(const Workload& workload) {
  for (int64_t at = 0; at < 150; ++at) {
    CrashDisk below;
    FailingDisk disk(below, {.operation = at, .is_full = at % 2 == 0});
    const Promises promises = run_with_fault(disk, workload, below);
    for (uint64_t sample = 0; sample < 8; ++sample) {
      Dice dice(fault_seed + static_cast<uint64_t>(at) * 100 + sample);
      const size_t cut = sample == 0 ? below.operations() : dice.pick(below.operations() + 1);
      const std::string broken =
          broken_promise(*below.image(cut, dice), promises.at(cut), workload);
      if (!broken.empty()) return fmt::format("error at operation {}: {}", at, broken);
    }
  }
  return "";
}

// Only loaded bytes count: a loader must not return wrong bytes.
std::string found_by_flipped_bits(const Workload& workload) {
  ckpt::MemoryDisk disk;
  run(disk, workload, [] { return 0; });
  for (const auto& path : disk.files()) {
    auto& bytes = disk.bytes(path);
    for (uint64_t flip = 0; flip < 400; ++flip) {
      const uint64_t bit = base::rng_below(fault_seed, flip, bytes.size() * 8);
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const std::optional<Loaded> loaded = load(disk, workload);
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      if (!loaded) continue;  // this disk has no other checkpoint
      if (loaded->content != ckpt::content_of_small(loaded->step, workload.small) ||
          loaded->state != ckpt::manifest_of_small(loaded->step, workload.small).state) {
        return fmt::format("flipped bit {} of {}", bit, path.filename().string());
      }
    }
  }
  return "";
}

std::string found(Fault fault) {
  const Workload workload{.small = {.rows = 400}, .fault = fault, .order = 3};
  for (const auto& look :
       {found_by_loading, found_by_power_cuts, found_by_errors, found_by_flipped_bits}) {
    if (std::string result = look(workload); !result.empty()) return result;
  }
  return "";
}

TEST(PlantedFaultsTest, nothing_is_found_where_there_is_no_fault) {
  EXPECT_EQ(found(Fault::none), "");
}

class PlantedFault : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, is_found) {
  const std::string result = found(GetParam());
  EXPECT_NE(result, "");
  std::printf("%s\n", result.c_str());
}

std::vector<Fault> all_faults() {
  std::vector<Fault> faults;
  for (auto fault = 1; fault < static_cast<int>(Fault::count); ++fault) {
    faults.push_back(static_cast<Fault>(fault));
  }
  return faults;
}

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFault, testing::ValuesIn(all_faults()),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace trireme::crashlab
