// SPDX-License-Identifier: Apache-2.0
// Connects processes with NCCL: checks whether it is available, and configures it for ranks that
// share a GPU.
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/levels/rank_nodes.h"
#include "comm/nccl.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_library.h"
#include "device/accelerator.h"

namespace trireme::comm {
namespace {

// Identifies the machine: containers of one machine share its boot id; machines may share a name.
std::string host_id() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}/{}", name.data(), boot);
}

std::string gpu_id(const device::CudaDevice& device) {
  cudaDeviceProp properties{};
  device::cuda_check(cudaGetDeviceProperties(&properties, device.options().index),
                     "reading the GPU's properties");
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

// NCCL refuses two ranks on one GPU of one host. If NCCL_HOSTID differs, it assumes different hosts
// and connects them by the network. It reads its environment at its first call, which comes later.
void separate_shared_gpus(ProcessWorld& world, const device::CudaDevice& device,
                          double deadline_s) {
  const std::string host = host_id();
  const std::vector<std::string> all =
      gather_texts(world, world_group(world, "world"), {"gpu", 0, deadline_s, true},
                   fmt::format("{} {}", gpu_id(device), host));
  const auto own = static_cast<size_t>(world.info().rank);
  const auto place = std::count(all.begin(), all.begin() + world.info().rank, all[own]);
  const bool any_shared = std::any_of(all.begin(), all.end(), [&](const std::string& one) {
    return std::count(all.begin(), all.end(), one) > 1;
  });
  if (!any_shared) return;
  const bool is_one_host = std::all_of(all.begin(), all.end(),
                                       [&](const std::string& one) { return one.ends_with(host); });
  // Variables that the user has set are kept. The first ranks of all GPUs stay on one host.
  const std::string id = fmt::format("{}/{}", host, place);
  ::setenv("NCCL_HOSTID", id.c_str(), 0);
  if (is_one_host) ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  base::log_info(
      "rank {}: ranks share a GPU, so NCCL connects them by the network: NCCL_HOSTID={}{}",
      world.info().rank, id, is_one_host ? " NCCL_SOCKET_IFNAME=lo" : "");
}

}  // namespace

std::string nccl_status() {
  const device::GpuStatus gpus = device::gpu_status();
  if (!gpus.problem.empty()) return gpus.problem;
  if (!nccl_shared_library().problem().empty()) return nccl_shared_library().problem();
  int version = 0;
  const ncclResult_t found = ncclGetVersion(&version);
  if (found != ncclSuccess) {
    return fmt::format("NCCL does not work: {}", ncclGetErrorString(found));
  }
  // The first version that can split non-blocking communicators.
  constexpr int oldest = NCCL_VERSION(2, 18, 1);
  if (version < oldest) {
    return fmt::format("NCCL {}.{}.{} is too old; at least 2.18.1 is needed", version / 10000,
                       version / 100 % 100, version % 100);
  }
  return "";
}

std::vector<base::LibraryReport> nccl_libraries() {
  const base::SharedLibrary& library = nccl_shared_library();
  int version = 0;
  if (library.problem().empty()) static_cast<void>(ncclGetVersion(&version));
  return {base::report_of(library, "NCCL", version)};
}

std::unique_ptr<Communicator> make_nccl(ProcessWorld& world, device::Device& device,
                                        Communicator::Options options) {
  auto* cuda_device = dynamic_cast<device::CudaDevice*>(&device);
  if (cuda_device == nullptr) {
    throw base::ConfigError(
        fmt::format("NCCL moves GPU memory, but the device is '{}'; use Gloo", device.name()));
  }
  options.debug = options.debug || world.info().debug;
  if (world.info().world > 1) separate_shared_gpus(world, *cuda_device, options.deadline_s);
  if (const std::string why = nccl_status(); !why.empty()) {
    throw base::ConfigError("ranks over NCCL: " + why);
  }
  if (options.nodes.empty()) options.nodes = nodes_of_ranks(world, options.deadline_s);
  const auto watch = std::make_shared<NcclWatch>(world, *cuda_device);
  ProcessGroup group = world_group(world, "world/nccl");
  auto handle = NcclCommunicator::connect(world, *watch, group, options);
  return std::make_unique<NcclCommunicator>(world, watch, std::move(handle), std::move(group),
                                            std::move(options));
}

}  // namespace trireme::comm
