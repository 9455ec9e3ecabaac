// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/tensors.h"

namespace trireme::comm {
namespace {

bool is_worker(const Stream& stream) { return stream.host_calls() == Stream::HostCalls::queued; }

Communicator::Options bounded(Communicator::Options options, double deadline_s) {
  options.deadline_s = std::min(options.deadline_s, deadline_s);
  return options;
}

}  // namespace

// A message that the host has published to the receiver. The recorder marks it as completed when
// the receiver has queued its copy.
class ThreadCommunicator::PostedSend final : public Sent {
 public:
  PostedSend(ThreadCommunicator& group, int to, Message message)
      : group_(group),
        caller_(group.make_caller(message.bytes)),
        to_(to),
        record_id_(group.call().record_id),
        message_(std::make_shared<Message>(std::move(message))) {
    group_.point_.post(caller_, to_, message_);
  }
  ~PostedSend() override {
    if (is_received_) return;
    group_.point_.withdraw(*message_);
    group_.recorder().failed(record_id_);
  }

  void wait(Stream& stream) override {
    if (!is_received_) {
      caller_.deadline = deadline_after(caller_.deadline_s);
      group_.point_.await(caller_, to_, *message_);
      group_.recorder().completed(record_id_);
      is_received_ = true;
    }
    stream.wait(message_->done);
  }

 private:
  ThreadCommunicator& group_;
  Caller caller_;
  const int to_;
  const int64_t record_id_;
  const std::shared_ptr<Message> message_;
  bool is_received_ = false;
};

ThreadCommunicator::ThreadCommunicator(ThreadGroup& thread_group, RendezvousPoint& point, int rank,
                                       Options options, double world_deadline_s)
    : Communicator(rank, point.world_ranks(), bounded(std::move(options), world_deadline_s),
                   thread_group.recorder(point.world_ranks().at(static_cast<size_t>(rank)))),
      thread_group_(thread_group),
      point_(point),
      world_deadline_s_(world_deadline_s) {}

void ThreadCommunicator::abort(const std::string& reason) noexcept {
  thread_group_.abort(fmt::format("rank {} aborted group '{}': {}",
                                  world_ranks()[static_cast<size_t>(rank())], name(), reason));
}

Caller ThreadCommunicator::make_caller(int64_t step_bytes) const {
  return {.rank = rank(),
          .group = name(),
          .signature = {.op = call().op,
                        .sequence = call().sequence,
                        .dtype = call().dtype,
                        .bytes = step_bytes},
          .deadline = call().deadline,
          .deadline_s = options().deadline_s};
}

void ThreadCommunicator::move(
    Stream& stream, Slot source, int64_t step_bytes,
    const std::function<void(const std::vector<Slot>& published)>& queue_copies) {
  const auto wait_for_others = [&](const std::vector<Slot>& slots) {
    for (size_t r = 0; r < slots.size(); ++r) {
      if (static_cast<int>(r) != rank()) stream.wait(slots[r].event);
    }
  };
  source.event = stream.record();
  const auto& published = point_.enter(make_caller(step_bytes), std::move(source));
  std::exception_ptr failure;
  device::Event done;
  try {
    wait_for_others(published);
    queue_copies(published);
    done = stream.record();
  } catch (...) {
    failure = std::current_exception();
  }
  wait_for_others(point_.leave(rank(), {.event = std::move(done)}));
  if (failure) std::rethrow_exception(failure);
}

void ThreadCommunicator::do_all_gather(Stream& stream, Tensor out, ConstTensor in) {
  const int64_t bytes = in.bytes();
  move(stream, {.data = in.data}, bytes, [&](const std::vector<Slot>& published) {
    std::byte* to = out.data;
    for (const Slot& slot : published) {
      if (slot.data != to) stream.copy_bytes(bytes_at(to, bytes), bytes_at(slot.data, bytes));
      to += bytes;
    }
  });
}

void ThreadCommunicator::do_exchange(Stream& stream, Tensor out, const std::byte* in,
                                     int64_t stride_bytes, int64_t chunk_bytes,
                                     std::span<const int> from) {
  move(stream, {.data = in}, chunk_bytes, [&](const std::vector<Slot>& published) {
    std::byte* to = out.data;
    for (const int r : from) {
      const std::byte* chunk = published[static_cast<size_t>(r)].data + rank() * stride_bytes;
      stream.copy_bytes(bytes_at(to, chunk_bytes), bytes_at(chunk, chunk_bytes));
      to += chunk_bytes;
    }
  });
}

// The lists of all ranks can be read until they leave.
void ThreadCommunicator::do_transfer(Stream& stream, std::span<const Outgoing> sends,
                                     std::span<const Incoming> receives) {
  move(stream, {.sends = sends}, 0, [&](const std::vector<Slot>& published) {
    std::vector<size_t> next(published.size());
    for (const Incoming& receive : receives) {
      const std::span<const Outgoing> all = published[static_cast<size_t>(receive.from)].sends;
      size_t& at = next[static_cast<size_t>(receive.from)];
      while (at < all.size() && all[at].to != rank()) ++at;
      TRIREME_CHECK(at < all.size() && all[at].bytes == receive.bytes,
                    "group '{}': rank {} receives {} bytes of rank {}, which does not send them",
                    name(), rank(), receive.bytes, receive.from);
      stream.copy_bytes(bytes_at(receive.data, receive.bytes),
                        bytes_at(all[at].data, receive.bytes));
      ++at;
    }
  });
}

void ThreadCommunicator::do_shift(Stream& stream, Tensor out, ConstTensor in) {
  move(stream, {.data = in.data}, in.bytes(), [&](const std::vector<Slot>& published) {
    const Slot& before = published[static_cast<size_t>((rank() + size() - 1) % size())];
    stream.copy_bytes(out, bytes_at(before.data, out.bytes()));
  });
}

void ThreadCommunicator::do_broadcast(Stream& stream, Tensor inout, int root) {
  move(stream, {.data = inout.data}, inout.bytes(), [&](const std::vector<Slot>& published) {
    if (rank() == root) return;
    stream.copy_bytes(inout, bytes_at(published[static_cast<size_t>(root)].data, inout.bytes()));
  });
}

bool ThreadCommunicator::do_begin(Stream& stream) {
  const bool is_posted = std::string_view(call().op) == "send" && call().bytes > 0;
  if (!is_posted || is_worker(stream)) return false;
  recorder().started(call().record_id);  // PostedSend records the rest
  return true;
}

// Work of a worker stream refers to the world, which outlives it, and not to the communicator.
void ThreadCommunicator::do_send(Stream& stream, ConstTensor in, int to) {
  if (!is_worker(stream)) {
    do_start_send(stream, in, to)->wait(stream);
    return;
  }
  thread_group_.check_not_aborted();
  stream.call_host([&point = point_, own = make_caller(in.bytes()), in, to]() mutable {
    own.deadline = deadline_after(own.deadline_s);
    const auto message = std::make_shared<Message>(Message{.data = in.data, .bytes = in.bytes()});
    point.post(own, to, message);
    point.await(own, to, *message);
    TRIREME_CHECK(message->done.state() == nullptr, "a GPU received from host memory");
  });
}

std::unique_ptr<Sent> ThreadCommunicator::do_start_send(Stream& stream, ConstTensor in, int to) {
  if (is_worker(stream)) {
    do_send(stream, in, to);
    return sent_at(stream.record());
  }
  return std::make_unique<PostedSend>(
      *this, to, Message{.data = in.data, .bytes = in.bytes(), .ready = stream.record()});
}

void ThreadCommunicator::do_recv(Stream& stream, Tensor out, int from) {
  const Caller caller = make_caller(out.bytes());
  if (is_worker(stream)) {
    thread_group_.check_not_aborted();
    stream.call_host([&point = point_, own = caller, out, from]() mutable {
      own.deadline = deadline_after(own.deadline_s);
      const auto message = point.take(own, from, out.bytes());
      TRIREME_CHECK(message->ready.state() == nullptr, "a GPU sent to host memory");
      std::memcpy(out.data, message->data, static_cast<size_t>(message->bytes));
      point.finish(*message, {});
    });
    return;
  }
  const auto message = point_.take(caller, from, out.bytes());
  std::exception_ptr failure;
  device::Event done;
  try {
    stream.wait(message->ready);
    stream.copy_bytes(out, bytes_at(message->data, message->bytes));
    done = stream.record();
  } catch (...) {
    failure = std::current_exception();
  }
  point_.finish(*message, std::move(done));
  if (failure) std::rethrow_exception(failure);
}

std::vector<std::string> ThreadCommunicator::do_gather_texts(const std::string& text) {
  Caller own = make_caller(0);
  own.may_differ = true;
  std::vector<std::string> texts;
  for (const Slot& slot : point_.enter(own, {.text = text})) texts.push_back(slot.text);
  return texts;
}

void ThreadCommunicator::do_abort(const std::string& verdict) noexcept {
  thread_group_.abort(verdict);
}

void ThreadCommunicator::do_barrier() { point_.enter(make_caller(0), {}); }

std::unique_ptr<Communicator> ThreadCommunicator::do_split(int color, int key, Options options) {
  const auto& published = point_.enter(make_caller(0), {.color = color, .key = key});
  std::vector<int> ranks;  // of this group
  for (size_t r = 0; r < published.size(); ++r) {
    if (published[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return published[static_cast<size_t>(a)].key < published[static_cast<size_t>(b)].key;
  });
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  std::vector<int> subgroup_ranks;
  for (const int r : ranks) subgroup_ranks.push_back(world_ranks()[static_cast<size_t>(r)]);
  RendezvousPoint& subgroup = thread_group_.subgroup(point_, splits_++, color, subgroup_ranks);
  return std::make_unique<ThreadCommunicator>(thread_group_, subgroup, static_cast<int>(place),
                                              std::move(options), world_deadline_s_);
}

}  // namespace trireme::comm
