// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo_mesh.h"

#include <fmt/format.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/system/start_thread.h"
#include "comm/gloo.h"
#include "comm/gloo/gloo_communicator.h"
#include "comm/levels/rank_nodes.h"

namespace trireme::comm {
namespace {

std::string addresses_key(const ProcessGroup& group, int rank) {
  return fmt::format("{}/gloo/{}", group.key, rank);
}

// Closes the pairs of a context, which ends the wait for their peers, when the run is aborted or
// this rank is requested to stop. The pairs must exist while it lives.
class PairCloser {
 public:
  PairCloser(ProcessWorld& world, gloo::transport::Context& pairs) : world_(world), pairs_(pairs) {
    thread_ = base::start_thread("that watches connections being made", [this] { watch(); });
  }
  ~PairCloser() {
    {
      const std::scoped_lock lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  PairCloser(const PairCloser&) = delete;
  PairCloser& operator=(const PairCloser&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return is_ending_; })) {
      if (!world_.is_stop_requested() && !world_.is_aborted()) continue;
      for (int peer = 0; peer < pairs_.size; ++peer) {
        if (peer != pairs_.rank) pairs_.getPair(peer)->close();
      }
      return;
    }
  }

  ProcessWorld& world_;
  gloo::transport::Context& pairs_;
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
};

// Gloo's thread may still call a pair whose connection was given up, so such pairs stay until the
// process ends, which is soon.
void keep_until_exit(std::shared_ptr<gloo::transport::Context> pairs) {
  static std::mutex mutex;
  static auto* const kept =
      std::make_unique<std::vector<std::shared_ptr<gloo::transport::Context>>>().release();
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(pairs));
}

}  // namespace

GlooMesh::GlooMesh(ProcessWorld& world, const ProcessGroup& group,
                   std::shared_ptr<gloo::transport::Device> device, double deadline_s)
    : gloo::Context(group.rank, group.size()) {
  // Gloo waits five times as long for a connection.
  setTimeout(std::chrono::milliseconds(
      static_cast<int64_t>(std::clamp(deadline_s / 5 * 1000, 1.0, 1e12))));
  device_ = std::move(device);
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(getTimeout());
  try {
    connect(world, group, deadline_s);
  } catch (const std::exception&) {
    keep_until_exit(transportContext_);
    world.throw_if_ended();  // the cause, if PairCloser has ended the wait
    throw;
  }
}

// Gloo waits for the next turn of its thread before it lets go of a connection, up to 10 ms: they
// are closed side by side.
template <typename Each>
void GlooMesh::for_each_pair(const Each& each) noexcept {
  constexpr int max_threads = 64;
  const int threads = std::min(max_threads, size - 1);
  for (int first = 1; first <= threads; ++first) {
    const auto close_some = [this, each, first, threads] {
      for (int step = first; step < size; step += threads) {
        each(transportContext_->getPair((rank + step) % size));
      }
    };
    try {
      closing_.push_back(base::start_thread("that closes connections", close_some));
    } catch (const base::Error&) {  // no more threads: it takes longer
      close_some();
    }
  }
}

void GlooMesh::close_pairs() noexcept {
  for_each_pair([](const std::unique_ptr<gloo::transport::Pair>& pair) {
    try {
      if (pair) pair->close();
    } catch (const std::exception& error) {
      base::log_warning("a connection of an aborted group was not closed: {}", error.what());
    }
  });
}

GlooMesh::~GlooMesh() {
  const auto join = [this] {
    for (std::thread& thread : closing_) thread.join();
    closing_.clear();
  };
  join();
  if (!transportContext_) return;
  for_each_pair([](std::unique_ptr<gloo::transport::Pair>& pair) { pair.reset(); });
  join();
}

void GlooMesh::connect(ProcessWorld& world, const ProcessGroup& group, double deadline_s) {
  std::string own;  // the addresses of the pairs of this rank, by peer, all of one length
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> address = transportContext_->createPair(peer)->address().bytes();
    own.append(address.begin(), address.end());
  }
  world.store().set(addresses_key(group, rank), own);
  const size_t address_bytes = own.size() / static_cast<size_t>(size - 1);
  const PairCloser closer(world, *transportContext_);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::string key = addresses_key(group, peer);
    world.wait_for({&key, 1}, deadline_s);
    const std::string all = world.store().try_get(key).value_or("");
    if (all.size() != own.size()) {
      const std::string why = fmt::format(
          "group '{}': the addresses of rank {} have {} bytes, those of rank {} have {}; are all "
          "ranks the same program?",
          group.key, peer, all.size(), rank, own.size());
      world.abort(why);
      throw base::CommAborted(why);
    }
    const size_t place = static_cast<size_t>(rank < peer ? rank : rank - 1) * address_bytes;
    const std::string address = all.substr(place, address_bytes);
    transportContext_->getPair(peer)->connect({address.begin(), address.end()});
    world.throw_if_ended();
  }
}

std::shared_ptr<gloo::transport::Device> make_gloo_device(ProcessWorld& world) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = world.info().world > 1 ? world.store().local_address() : "127.0.0.1";
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw base::CommAborted(fmt::format("Gloo cannot use the address {} of this host: {}",
                                        attributes.hostname, error.what()));
  }
}

std::string gloo_status() { return ""; }

std::unique_ptr<Communicator> make_gloo(ProcessWorld& world, Communicator::Options options) {
  options.debug = options.debug || world.info().debug;
  if (options.nodes.empty()) options.nodes = nodes_of_ranks(world, options.deadline_s);
  return std::make_unique<GlooCommunicator>(
      world, GlooCommunicator::Lane{.device = make_gloo_device(world), .is_shared = true},
      world_group(world, "world"), std::move(options));
}

}  // namespace trireme::comm
