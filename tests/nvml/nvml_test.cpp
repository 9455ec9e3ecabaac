// SPDX-License-Identifier: Apache-2.0
// Hardware counters from a library that answers as NVML does (nvml_stub.cpp): healthy, throttled,
// failing, old and absent.
#include "device/gpu/nvml.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "train/signals/hardware_watch.h"

namespace trireme::tests {
namespace {

using device::GpuCounters;
using device::Nvml;

constexpr auto all = Nvml::Counters::status_and_activity;

class NvmlTest : public testing::Test {
 protected:
  // The lines of the stub's file.
  void answers(const std::string& lines) const {
    std::ofstream(path_) << lines;
    ASSERT_EQ(setenv("TRIREME_NVML_STUB", path_.c_str(), 1), 0);
  }
  void SetUp() override { answers(""); }
  void TearDown() override {
    unsetenv("TRIREME_NVML_STUB");
    std::filesystem::remove(path_);
  }
  static GpuCounters read_twice(Nvml::Gpu& gpu) {
    gpu.read();  // shares are measured from one call to the next
    return gpu.read();
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("nvml_stub_" + std::to_string(getpid()) + "_" +
       testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(NvmlTest, healthy_gpu_has_all_counters) {
  const Nvml nvml(TRIREME_NVML_STUB_FILE);
  ASSERT_EQ(nvml.problem(), "");
  EXPECT_EQ(nvml.devices(), 8);
  const auto gpu = nvml.at_index(3, all);
  ASSERT_NE(gpu, nullptr);
  EXPECT_TRUE(std::isnan(gpu->read().sm_share));  // nothing to compare with yet
  const GpuCounters found = gpu->read();
  EXPECT_EQ(found.clock_hz, 1980e6);
  EXPECT_EQ(found.max_clock_hz, 1980e6);
  EXPECT_EQ(found.power_watts, 650);
  EXPECT_EQ(found.temperature_celsius, 55);
  EXPECT_EQ(found.ecc_errors, 0);
  EXPECT_EQ(found.throttle_reasons, 0);
  EXPECT_EQ(found.used_bytes, 6e10);
  EXPECT_EQ(found.total_bytes, 8e10);
  EXPECT_DOUBLE_EQ(found.sm_share, 0.92);
  EXPECT_DOUBLE_EQ(found.tensor_share, 0.41);
  EXPECT_EQ(found.pcie_bytes_per_second, 300.0 * (1 << 20));
  EXPECT_EQ(found.nvlink_bytes_per_second, 7000.0 * (1 << 20));
}

TEST_F(NvmlTest, throttled_gpu_is_found_by_index_and_by_bus) {
  answers("2 clock 1200\n2 reasons 32\n2 temperature 91\n");
  const Nvml nvml(TRIREME_NVML_STUB_FILE);
  for (const auto& gpu : {nvml.at_index(2, all), nvml.at_bus("0000:03:00.0", all)}) {
    ASSERT_NE(gpu, nullptr);
    const GpuCounters found = gpu->read();
    EXPECT_EQ(found.clock_hz, 1200e6);
    EXPECT_EQ(found.temperature_celsius, 91);
    EXPECT_NE(static_cast<uint64_t>(found.throttle_reasons) & device::throttle_reason::harmful, 0U);
  }
  EXPECT_EQ(nvml.at_index(1, all)->read().clock_hz, 1980e6);
  EXPECT_EQ(nvml.at_index(8, all), nullptr);
  EXPECT_EQ(nvml.at_index(-1, all), nullptr);
  EXPECT_EQ(nvml.at_bus("0000:7f:00.0", all), nullptr);
  EXPECT_EQ(nvml.at_bus("no bus", all), nullptr);
}

TEST_F(NvmlTest, failed_calls_are_unknown) {
  answers("* clock error\n* power error\n* tensor error\n* nvlink_rx error\n* ecc error\n");
  const Nvml nvml(TRIREME_NVML_STUB_FILE);
  const auto gpu = nvml.at_index(0, all);
  const GpuCounters found = read_twice(*gpu);
  for (const double value : {found.clock_hz, found.power_watts, found.tensor_share,
                             found.nvlink_bytes_per_second, found.ecc_errors}) {
    EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_EQ(found.max_clock_hz, 1980e6);
  EXPECT_DOUBLE_EQ(found.sm_share, 0.92);
}

TEST_F(NvmlTest, gpu_without_activity_counters_has_the_others) {
  answers("* gpm 0\n");
  const Nvml nvml(TRIREME_NVML_STUB_FILE);
  const GpuCounters found = read_twice(*nvml.at_index(0, all));
  EXPECT_TRUE(std::isnan(found.sm_share));
  EXPECT_TRUE(std::isnan(found.pcie_bytes_per_second));
  EXPECT_EQ(found.clock_hz, 1980e6);
}

TEST_F(NvmlTest, activity_is_read_only_where_it_is_asked_for) {
  const Nvml nvml(TRIREME_NVML_STUB_FILE);
  const GpuCounters found = read_twice(*nvml.at_index(0, Nvml::Counters::status));
  EXPECT_TRUE(std::isnan(found.sm_share));
  EXPECT_TRUE(std::isnan(found.nvlink_bytes_per_second));
  EXPECT_EQ(found.power_watts, 650);
}

TEST_F(NvmlTest, missing_functions_are_unknown) {
  const Nvml nvml(TRIREME_NVML_OLD_STUB_FILE);
  ASSERT_EQ(nvml.problem(), "");
  const GpuCounters found = read_twice(*nvml.at_index(0, all));
  EXPECT_EQ(found.clock_hz, 1980e6);
  for (const double value : {found.ecc_errors, found.throttle_reasons, found.sm_share,
                             found.tensor_share, found.pcie_bytes_per_second}) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(NvmlTest, absent_or_failing_library_has_a_problem_and_no_devices) {
  const Nvml absent("libno-such-nvml.so.1");
  EXPECT_NE(absent.problem().find("libno-such-nvml.so.1"), std::string::npos);
  EXPECT_EQ(absent.devices(), 0);
  EXPECT_EQ(absent.at_index(0, all), nullptr);
  EXPECT_EQ(absent.at_bus("0000:01:00.0", all), nullptr);
  answers("* init 9\n");
  const Nvml failing(TRIREME_NVML_STUB_FILE);
  EXPECT_NE(failing.problem().find("error 9"), std::string::npos) << failing.problem();
  EXPECT_EQ(failing.devices(), 0);
}

TEST_F(NvmlTest, watch_follows_the_counters) {
  answers("1 clock 1000\n");
  // Index 9 of 8 GPUs is GPU 1.
  const train::HardwareWatch watch(
      {.bus_id = "", .index = 9, .library = TRIREME_NVML_STUB_FILE, .seconds = 0.005});
  ASSERT_EQ(watch.problem(), "");
  EXPECT_EQ(watch.latest().clock_hz, 1000e6);
  answers("1 clock 800\n");
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (watch.latest().clock_hz != 800e6 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(watch.latest().clock_hz, 800e6);
}

TEST_F(NvmlTest, ranks_of_one_gpu_share_its_watch) {
  const auto watch = [](const std::string& bus_id, int index) {
    return train::shared_hardware_watch(
        {.bus_id = bus_id, .index = index, .library = TRIREME_NVML_STUB_FILE});
  };
  const auto first = watch("0000:03:00.0", 0), second = watch("0000:03:00.0", 1);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, watch("0000:02:00.0", 0));
  EXPECT_NE(watch("", 0), watch("", 1));
  answers("2 clock 700\n");
  const std::weak_ptr<train::HardwareWatch> gone = watch("", 2);
  EXPECT_TRUE(gone.expired());  // no rank holds it
  EXPECT_EQ(watch("", 2)->latest().clock_hz, 700e6);
}

TEST_F(NvmlTest, watch_without_a_device_reports_why) {
  answers("* count 0\n");
  const train::HardwareWatch none({.bus_id = "", .index = 0, .library = TRIREME_NVML_STUB_FILE});
  EXPECT_NE(none.problem(), "");
  EXPECT_TRUE(std::isnan(none.latest().clock_hz));
  const train::HardwareWatch absent({.bus_id = "", .index = 0, .library = "libno-such-nvml.so.1"});
  EXPECT_NE(absent.problem(), "");
}

}  // namespace
}  // namespace trireme::tests
