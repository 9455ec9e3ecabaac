// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo_communicator.h"

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/math.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace trireme::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A tag: which group (14 bits), message or collective, and a number. Gloo's own algorithms have
// tags with an id that is a multiple of 64, which no shared group has.
constexpr int id_shift = 50;
constexpr uint64_t max_id = (uint64_t{1} << (64 - id_shift)) - 1;
constexpr uint64_t groups_of_group = 64;
constexpr uint64_t message_tag = uint64_t{1} << 48;

Milliseconds milliseconds(double seconds) {
  return Milliseconds(static_cast<int64_t>(std::clamp(seconds * 1000, 1.0, 1e12)));
}

}  // namespace

// The sends and receives of one call. They are posted at once, and wait() waits for all; the memory
// must stay valid until then.
class GlooCommunicator::Transfers {
 public:
  Transfers(GlooCommunicator& group, uint64_t tag)
      : group_(group),
        context_(*group.lane_.mesh),
        tag_(tag),
        end_(Clock::now() + milliseconds(group.options().deadline_s)) {}
  ~Transfers() {
    const std::scoped_lock lock(group_.transfers_mutex_);
    group_.transfers_.erase(this);
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void receive(int from, std::byte* data, int64_t bytes) {
    receives_.push_back(context_.createUnboundBuffer(data, static_cast<size_t>(bytes)));
    receives_.back()->recv(group_.in_mesh(from), tag_);
  }
  void send(int to, const std::byte* data, int64_t bytes) {
    // Gloo does not write what it sends.
    sends_.push_back(
        context_.createUnboundBuffer(const_cast<std::byte*>(data), static_cast<size_t>(bytes)));
    sends_.back()->send(group_.in_mesh(to), tag_);
  }
  void wait() {
    {
      const std::scoped_lock lock(group_.transfers_mutex_);
      check(!group_.is_cancelled_);
      group_.transfers_.insert(this);
    }
    for (const auto& buffer : receives_) check(buffer->waitRecv(left()));
    for (const auto& buffer : sends_) check(buffer->waitSend(left()));
  }

  // Called by another thread, which holds the group's transfers_mutex_.
  void cancel_waits() {
    for (const auto& buffer : receives_) buffer->abortWaitRecv();
    for (const auto& buffer : sends_) buffer->abortWaitSend();
  }

 private:
  static void check(bool is_done) {
    if (!is_done) throw gloo::IoException("a transfer was cancelled");
  }
  Milliseconds left() const {
    const auto left = std::chrono::duration_cast<Milliseconds>(end_ - Clock::now());
    return std::max(left, Milliseconds(1));
  }

  GlooCommunicator& group_;
  gloo::Context& context_;
  const uint64_t tag_;
  const Clock::time_point end_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> receives_, sends_;
};

GlooCommunicator::GlooCommunicator(ProcessWorld& world, Lane lane, ProcessGroup group,
                                   Options options)
    : Communicator(group.rank, group.world_ranks, std::move(options), world.recorder()),
      world_(world),
      group_(std::move(group)),
      lane_(std::move(lane)),
      sends_(static_cast<size_t>(size())),
      receives_(static_cast<size_t>(size())) {
  if (size() == 1) return;
  const bool is_own = lane_.mesh == nullptr;
  if (is_own) {
    guarded([this] {
      lane_.mesh =
          std::make_shared<GlooMesh>(world_, group_, lane_.device, this->options().deadline_s);
    });
  }
  wake_.emplace(world_, [this, is_own] {
    cancel_waits();
    if (is_own) lane_.mesh->close_pairs();
  });
}

GlooCommunicator::Lane GlooCommunicator::next_lane(const ProcessGroup& subgroup,
                                                   const Options& options) {
  const uint64_t id = groups_of_group * lane_.id + static_cast<uint64_t>(splits_);
  const bool has_id = static_cast<uint64_t>(splits_) < groups_of_group && id <= max_id;
  // Gloo's sums work on a mesh of the group.
  const bool is_shared = lane_.is_shared && has_id && options.fixed_order;
  return {.device = lane_.device,
          .mesh = is_shared && subgroup.size() > 1 ? lane_.mesh : nullptr,
          .is_shared = is_shared,
          .id = id};
}

uint64_t GlooCommunicator::tag_of(uint64_t number) const {
  return lane_.is_shared ? (lane_.id << id_shift) + number : number;
}

// Gloo does not list a send that was queued while its connection was closing: nothing else would
// end the wait for it before the deadline. Gloo loses a cancellation that precedes the wait, so it
// is repeated until all waits have ended.
void GlooCommunicator::cancel_waits() noexcept {
  constexpr int max_tries = 200;
  auto pause = std::chrono::microseconds(100);
  for (int tries = 0; tries < max_tries; ++tries) {
    {
      const std::scoped_lock lock(transfers_mutex_);
      is_cancelled_ = true;
      if (transfers_.empty()) return;
      for (Transfers* transfers : transfers_) transfers->cancel_waits();
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5000));
  }
}

GlooCommunicator::~GlooCommunicator() = default;

void GlooCommunicator::abort(const std::string& reason) noexcept { world_.abort(reason); }

void GlooCommunicator::guarded(const std::function<void()>& work) {
  world_.throw_if_aborted();
  const auto begin = Clock::now();
  try {
    work();
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::chrono::duration<double> taken = Clock::now() - begin;
    const double deadline = options().deadline_s;
    const bool is_late = taken.count() >= deadline;
    world_.fail(is_late ? ProcessWorld::Failure::deadline : ProcessWorld::Failure::connection,
                error.what(), deadline);
  }
}

void GlooCommunicator::enqueue(Stream& stream, std::function<void()> work) {
  if (stream.host_calls() == Stream::HostCalls::none) {
    throw base::ConfigError(fmt::format(
        "group '{}': Gloo moves host memory, but stream '{}' belongs to a GPU; use NCCL", name(),
        stream.name()));
  }
  stream.call_host([this, work = std::move(work)] { guarded(work); });
}

void GlooCommunicator::do_all_gather(Stream& stream, Tensor out, ConstTensor in) {
  enqueue(stream, [this, tag = next_tag(), out = out.data, in = in.data, bytes = in.bytes()] {
    Transfers transfers(*this, tag);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      transfers.receive(from, out + from * bytes, bytes);
    }
    for (int step = 1; step < size(); ++step) transfers.send((rank() + step) % size(), in, bytes);
    std::byte* own = out + rank() * bytes;
    if (own != in) std::memcpy(own, in, static_cast<size_t>(bytes));
    transfers.wait();
  });
}

void GlooCommunicator::do_exchange(Stream& stream, Tensor out, const std::byte* in,
                                   int64_t stride_bytes, int64_t chunk_bytes,
                                   std::span<const int> from) {
  enqueue(stream, [this, tag = next_tag(), out = out.data, in, stride_bytes, chunk_bytes,
                   from = std::vector<int>(from.begin(), from.end())] {
    Transfers transfers(*this, tag);
    std::byte* own = nullptr;
    for (size_t i = 0; i < from.size(); ++i) {
      std::byte* to = out + static_cast<int64_t>(i) * chunk_bytes;
      if (from[i] == rank()) {
        own = to;
      } else {
        transfers.receive(from[i], to, chunk_bytes);
      }
    }
    if (in != nullptr) {
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size();
        transfers.send(to, in + to * stride_bytes, chunk_bytes);
      }
    }
    if (own != nullptr) {
      std::memcpy(own, in + rank() * stride_bytes, static_cast<size_t>(chunk_bytes));
    }
    transfers.wait();
  });
}

// Gloo keeps the order of messages between two ranks that have the same tag.
void GlooCommunicator::do_transfer(Stream& stream, std::span<const Outgoing> sends,
                                   std::span<const Incoming> receives) {
  enqueue(stream, [this, tag = next_tag(), sends = std::vector(sends.begin(), sends.end()),
                   receives = std::vector(receives.begin(), receives.end())] {
    Transfers transfers(*this, tag);
    for (const Incoming& one : receives) transfers.receive(one.from, one.data, one.bytes);
    for (const Outgoing& one : sends) transfers.send(one.to, one.data, one.bytes);
    transfers.wait();
  });
}

void GlooCommunicator::do_shift(Stream& stream, Tensor out, ConstTensor in) {
  enqueue(stream, [this, tag = next_tag(), out = out.data, in = in.data, bytes = in.bytes()] {
    Transfers transfers(*this, tag);
    transfers.receive((rank() + size() - 1) % size(), out, bytes);
    transfers.send((rank() + 1) % size(), in, bytes);
    transfers.wait();
  });
}

void GlooCommunicator::do_broadcast(Stream& stream, Tensor inout, int root) {
  enqueue(stream, [this, tag = next_tag(), data = inout.data, bytes = inout.bytes(), root] {
    Transfers transfers(*this, tag);
    if (rank() != root) {
      transfers.receive(root, data, bytes);
    } else {
      for (int step = 1; step < size(); ++step) {
        transfers.send((rank() + step) % size(), data, bytes);
      }
    }
    transfers.wait();
  });
}

void GlooCommunicator::do_send(Stream& stream, ConstTensor tensor, int to) {
  const uint64_t tag = tag_of(message_tag + sends_[static_cast<size_t>(to)]++);
  enqueue(stream, [this, tag, data = tensor.data, bytes = tensor.bytes(), to] {
    Transfers transfers(*this, tag);
    transfers.send(to, data, bytes);
    transfers.wait();
  });
}

void GlooCommunicator::do_recv(Stream& stream, Tensor tensor, int from) {
  const uint64_t tag = tag_of(message_tag + receives_[static_cast<size_t>(from)]++);
  enqueue(stream, [this, tag, data = tensor.data, bytes = tensor.bytes(), from] {
    Transfers transfers(*this, tag);
    transfers.receive(from, data, bytes);
    transfers.wait();
  });
}

void GlooCommunicator::do_barrier() {
  guarded([this, tag = next_tag()] {
    Transfers transfers(*this, tag);
    std::vector<std::byte> tokens(static_cast<size_t>(size()));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) transfers.receive(peer, &tokens[static_cast<size_t>(peer)], 1);
    }
    const std::byte token{};
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) transfers.send(peer, &token, 1);
    }
    transfers.wait();
  });
}

// Gloo's ring, used only if the caller does not require the fixed order of sums: it reduces over
// all ranks of the mesh, which are those of the group only then.
bool GlooCommunicator::do_all_reduce(Stream& stream, Tensor inout, Reduce reduce) {
  if (inout.dtype != base::DType::f32 || options().fixed_order) return false;
  enqueue(stream, [this, tag = next_tag(), inout, reduce] {
    gloo::AllreduceOptions all(lane_.mesh);
    all.setOutput(reinterpret_cast<float*>(inout.data), static_cast<size_t>(inout.elements()));
    all.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    using Reduction = void (*)(void*, const void*, const void*, size_t);
    all.setReduceFunction(reduce == Reduce::sum ? static_cast<Reduction>(&gloo::sum<float>)
                                                : static_cast<Reduction>(&gloo::max<float>));
    all.setTag(static_cast<uint32_t>(tag & 0xffffffU));
    all.setTimeout(milliseconds(options().deadline_s));
    gloo::allreduce(all);
  });
  return true;
}

std::unique_ptr<Communicator> GlooCommunicator::do_split(int color, int key, Options options) {
  const SyncPoint point = {"split", splits_++, this->options().deadline_s, true};
  ProcessGroup subgroup = split_group(world_, group_, point, color, key).subgroup;
  Lane lane = next_lane(subgroup, options);
  return std::make_unique<GlooCommunicator>(world_, std::move(lane), std::move(subgroup),
                                            std::move(options));
}

std::vector<std::string> GlooCommunicator::do_gather_texts(const std::string& text) {
  return gather_texts(world_, group_, {"debug", texts_gathered_++, options().deadline_s}, text);
}

}  // namespace trireme::comm
