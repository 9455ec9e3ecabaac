// SPDX-License-Identifier: Apache-2.0
#include "device/host_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "base/error.h"

namespace trireme::device {
namespace {

namespace fs = std::filesystem;
using Mask = std::set<int>;

// Files of control groups in the layout of Linux.
class CoreGroups {
 public:
  CoreGroups()
      : folder_(fs::temp_directory_path() / ("trireme-cores-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~CoreGroups() { fs::remove_all(folder_); }
  CoreGroups(const CoreGroups&) = delete;
  CoreGroups& operator=(const CoreGroups&) = delete;

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  double quota() const {
    return host_cores({.cgroups_of_process = folder_ / "cgroup", .cgroup_root = folder_ / "root"})
        .quota;
  }

 private:
  fs::path folder_;
};

TEST(HostCores, the_lowest_quota_of_the_control_groups_counts) {
  const CoreGroups two;
  EXPECT_EQ(two.quota(), 0);
  two.write("cgroup", "0::/job/step\n");
  two.write("root/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(two.quota(), 0);
  two.write("root/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(two.quota(), 2.5);
  two.write("root/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(two.quota(), 0.5);
  two.write("cgroup", "9:memory:/job\n4:cpu,cpuacct:/box\n0::/none\n");
  two.write("root/cpu/box/cpu.cfs_quota_us", "-1\n");
  two.write("root/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(two.quota(), 0);
  two.write("root/cpu/box/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(two.quota(), 4);
  two.write("cgroup", "nonsense\n:\n::\n");
  EXPECT_EQ(two.quota(), 0);
}

TEST(HostCores, mask_and_quota_bound_the_count) {
  EXPECT_EQ((HostCores{.mask = {0, 1, 5}, .quota = 0, .machine = 8}).count(), 3);
  EXPECT_EQ((HostCores{.mask = {0, 1, 5}, .quota = 2.9, .machine = 8}).count(), 2);
  EXPECT_EQ((HostCores{.mask = {0, 1, 5}, .quota = 0.1, .machine = 8}).count(), 1);
  EXPECT_EQ((HostCores{.mask = {}, .quota = 0, .machine = 8}).count(), 8);
  EXPECT_EQ((HostCores{.mask = {0, 1, 5}, .quota = 0, .machine = 8}).source(),
            "affinity mask, 3 of 8 cores");
  EXPECT_EQ((HostCores{.mask = {0, 1, 5}, .quota = 1.5, .machine = 8}).source(),
            "CPU quota of the control group, 1.5 of 3 cores");
  EXPECT_EQ((HostCores{.mask = {0, 1}, .quota = 7, .machine = 2}).source(),
            "all cores of this machine");
}

// In a separate thread, because the mask belongs to the thread.
TEST(HostCores, the_affinity_mask_is_read) {
  std::thread([] {
    const HostCores before = host_cores();
    ASSERT_FALSE(before.mask.empty());
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(*before.mask.rbegin()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(host_cores().mask, Mask{*before.mask.rbegin()});
    EXPECT_EQ(host_cores().count(), 1);
    EXPECT_EQ(host_cores().machine, before.machine);
  }).join();
}

TEST(HostCores, masks_are_read_back) {
  for (const Mask& mask : std::vector<Mask>{{}, {3}, {0, 1, 2, 3, 8}, {1, 3, 4, 70, 71}}) {
    EXPECT_EQ(mask_from(mask_text(mask)), mask) << mask_text(mask);
  }
  EXPECT_EQ(mask_text({0, 1, 2, 8}), "0-2,8");
  for (const char* wrong : {"x", "1,", "1-", "-1", "1;2", "9999999999", "1,,2", " 1"}) {
    EXPECT_THROW(mask_from(wrong), base::IoError) << wrong;
  }
}

TEST(HostCores, processes_share_the_cores_that_they_have_in_common) {
  const Mask all = {0, 1, 2, 3, 4, 5, 6, 7}, low = {0, 1, 2, 3}, high = {4, 5, 6, 7};
  const auto share = [](const std::vector<Mask>& masks, size_t own, double quota = 0) {
    return share_of_cores(masks, own, quota);
  };
  EXPECT_EQ(share({all, all}, 0), 4);              // not bound
  EXPECT_EQ(share({low, high}, 1), 4);             // bound to cores
  EXPECT_EQ(share({low, high, low, high}, 2), 2);  // bound to NUMA nodes
  EXPECT_EQ(share({low, all, {7}}, 1), 5);         // 4 * 1/2 + 3 + 1/2
  EXPECT_EQ(share({all, all, all}, 0), 2);
  EXPECT_EQ(share({{0}, {0}, {0}}, 1), 1);
  EXPECT_EQ(share({all, all}, 0, 3), 1);
  EXPECT_EQ(share({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, 0), 1);
}

}  // namespace
}  // namespace trireme::device
