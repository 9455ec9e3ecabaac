// SPDX-License-Identifier: Apache-2.0
#include "comm/alone.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/tensors.h"

namespace trireme::comm {
namespace {

constexpr int64_t min_stand_in_bytes = int64_t{64} << 10;
constexpr int64_t max_stand_in_bytes = int64_t{64} << 20;

// Random numbers that are finite as f32, bf16 and f16: words of 16 bits with a random sign, the
// bits of an exponent near 0, and a random rest.
std::vector<uint16_t> random_words(int64_t bytes) {
  constexpr uint16_t exponent = 0x3f00, sign = 0x8000, rest = 0x00ff;
  std::vector<uint16_t> words(static_cast<size_t>(bytes) / sizeof(uint16_t));
  for (size_t i = 0; i < words.size(); ++i) {
    const auto bits = static_cast<uint16_t>(base::rng_below(1, i, uint64_t{1} << 16));
    words[i] = static_cast<uint16_t>(exponent | (bits & (sign | rest)));
  }
  return words;
}

}  // namespace

struct AloneState {
  AloneState(device::Device& device, int world_rank, int world, int64_t bytes)
      : rank(world_rank),
        ranks(world),
        recorder(world_rank),
        memory(device, device::Mem::comm, bytes, "stand-ins for messages of absent ranks") {}

  Tensor stand_ins() const { return bytes_at(memory.data(), memory.bytes()); }
  void check_not_aborted() {
    const std::scoped_lock lock(mutex);
    if (!verdict.empty()) throw base::CommAborted(verdict);
  }

  // The copy of a transfer.
  void move(Stream& stream, Tensor to, ConstTensor from) const {
    if (moves) stream.copy_bytes(to, from);
  }

  const int rank, ranks;  // of the world
  bool moves = true;
  FlightRecorder recorder;
  device::Buffer memory;  // only read once it is filled
  std::mutex mutex;       // guards verdict
  std::string verdict;    // the first reason of abort()
  AbortFlags abort_flags;
};

namespace {

class AloneCommunicator final : public Communicator {
 public:
  AloneCommunicator(AloneState& state, int rank, std::vector<int> world_ranks, Options options)
      : Communicator(rank, std::move(world_ranks), std::move(options), state.recorder),
        state_(state) {}

  void abort(const std::string& reason) noexcept override {
    state_.abort_flags.raise();
    const std::scoped_lock lock(state_.mutex);
    if (state_.verdict.empty()) state_.verdict = reason;
  }

  AbortFlags* abort_flags() override { return &state_.abort_flags; }
  bool can_be_captured() const override { return !options().debug; }

 private:
  void do_all_gather(Stream& stream, Tensor out, ConstTensor in) override {
    state_.check_not_aborted();
    repeat(stream, out, in);
  }

  void do_exchange(Stream& stream, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override {
    state_.check_not_aborted();
    if (in == nullptr) {
      receive(stream, out);
      return;
    }
    if (stride_bytes == 0) {
      repeat(stream, out, bytes_at(in, chunk_bytes));
      return;
    }
    // Chunks that follow each other are one copy.
    for (size_t first = 0, last = 0; first < from.size(); first = last) {
      for (last = first + 1;
           last < from.size() && stride_bytes == chunk_bytes && from[last] == from[last - 1] + 1;) {
        ++last;
      }
      const int64_t bytes = static_cast<int64_t>(last - first) * chunk_bytes;
      state_.move(stream, bytes_at(out.data + static_cast<int64_t>(first) * chunk_bytes, bytes),
                  bytes_at(in + from[first] * stride_bytes, bytes));
    }
  }

  void do_transfer(Stream& stream, std::span<const Outgoing> sends,
                   std::span<const Incoming> receives) override {
    state_.check_not_aborted();
    std::vector<size_t> next(static_cast<size_t>(size()));
    for (const Incoming& receive : receives) {
      size_t& at = next[static_cast<size_t>(receive.from)];
      while (at < sends.size() && sends[at].to != receive.from) ++at;
      const Tensor out = bytes_at(receive.data, receive.bytes);
      if (at < sends.size() && sends[at].bytes == receive.bytes) {
        state_.move(stream, out, bytes_at(sends[at].data, receive.bytes));
        ++at;
      } else {
        this->receive(stream, out);
      }
    }
  }

  bool library_can_sum() const override { return true; }

  void do_broadcast(Stream& stream, Tensor inout, int root) override {
    state_.check_not_aborted();
    if (rank() != root) receive(stream, inout);
  }

  void do_shift(Stream& stream, Tensor out, ConstTensor in) override {
    state_.check_not_aborted();
    state_.move(stream, out, in);
  }

  void do_send(Stream&, ConstTensor, int /*to*/) override { state_.check_not_aborted(); }

  void do_recv(Stream& stream, Tensor out, int /*from*/) override {
    state_.check_not_aborted();
    receive(stream, out);
  }

  void do_barrier() override { state_.check_not_aborted(); }

  std::unique_ptr<Communicator> do_split(int /*color*/, int /*key*/, Options options) override {
    TRIREME_CHECK(false,
                  "group '{}': split('{}') on a rank without peers, which has subgroup() only",
                  name(), options.name);
    return nullptr;
  }

  std::unique_ptr<Communicator> do_subgroup(std::span<const int> members,
                                            Options options) override {
    state_.check_not_aborted();
    std::vector<int> ranks;
    for (const int member : members) {
      TRIREME_CHECK(member >= 0 && member < size(), "group '{}': rank {} of {}", name(), member,
                    size());
      ranks.push_back(world_ranks()[static_cast<size_t>(member)]);
    }
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<AloneCommunicator>(state_, static_cast<int>(place), std::move(ranks),
                                               std::move(options));
  }

  // Copies as much as a ring receives: the parts of all others, twice.
  bool do_all_reduce(Stream& stream, Tensor inout, Reduce reduce) override {
    state_.check_not_aborted();
    // Host memory has the maxima of Communicator, which threads have, too.
    if (reduce == Reduce::max) return stream.host_calls() == Stream::HostCalls::none;
    const int64_t count = inout.elements() / size();
    if (count == 0) return true;
    const auto part = [&](int r) { return as_bytes(flat_range(inout, r * count, count)); };
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) state_.move(stream, part(rank()), part(r));
    }
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) state_.move(stream, part(r), part(rank()));
    }
    return true;
  }

  bool do_reduce_scatter(Stream& stream, Tensor out, ConstTensor in) override {
    state_.check_not_aborted();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      state_.move(stream, as_bytes(out),
                  as_bytes(flat_range(in, r * out.elements(), out.elements())));
    }
    return true;
  }

  std::vector<std::string> do_gather_texts(const std::string& text) override {
    state_.check_not_aborted();
    return std::vector<std::string>(static_cast<size_t>(size()), text);
  }

  // Fills `out` with copies of `part`, which may be one of them: few copies, each twice as long as
  // the one before.
  void repeat(Stream& stream, Tensor out, ConstTensor part) const {
    const int64_t bytes = part.bytes();
    if (out.data != part.data) state_.move(stream, bytes_at(out.data, bytes), part);
    for (int64_t filled = bytes; filled < out.bytes(); filled *= 2) {
      const int64_t next = std::min(filled, out.bytes() - filled);
      state_.move(stream, bytes_at(out.data + filled, next), bytes_at(out.data, next));
    }
  }

  void receive(Stream& stream, Tensor out) {
    const ConstTensor all = state_.stand_ins();
    for (int64_t at = 0; at < out.bytes(); at += all.bytes()) {
      const int64_t bytes = std::min(all.bytes(), out.bytes() - at);
      state_.move(stream, bytes_at(out.data + at, bytes), bytes_at(all.data, bytes));
    }
  }

  AloneState& state_;
};

}  // namespace

int64_t AloneWorld::memory_bytes(int64_t message_bytes) {
  return base::bytes_of(
      {{std::clamp(message_bytes, min_stand_in_bytes, max_stand_in_bytes)}, base::DType::u8});
}

AloneWorld::AloneWorld(device::Device& device, int rank, int ranks, int64_t message_bytes) {
  TRIREME_CHECK(rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  state_ = std::make_unique<AloneState>(device, rank, ranks, memory_bytes(message_bytes));
  const Tensor memory = state_->stand_ins();
  const std::vector<uint16_t> words = random_words(memory.bytes());
  const auto stream = device.make_stream("stand-ins");
  stream->upload(memory, std::as_bytes(std::span(words)));
  stream->synchronize();
}

AloneWorld::~AloneWorld() = default;

FlightRecorder& AloneWorld::recorder() { return state_->recorder; }

void AloneWorld::stop_moving() { state_->moves = false; }

std::unique_ptr<Communicator> AloneWorld::communicator(Communicator::Options options) {
  std::vector<int> all(static_cast<size_t>(state_->ranks));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<AloneCommunicator>(*state_, state_->rank, std::move(all),
                                             std::move(options));
}

}  // namespace trireme::comm
