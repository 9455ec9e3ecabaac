// SPDX-License-Identifier: Apache-2.0
#include "comm/threads/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/tensors.h"

namespace trireme::comm {
namespace {

Communicator::Options bounded(Communicator::Options options, double deadline_s) {
  options.deadline_s = std::min(options.deadline_s, deadline_s);
  return options;
}

}  // namespace

ThreadCommunicator::ThreadCommunicator(Gathering& gathering, Meeting& meeting, int rank,
                                       Options options, double world_deadline_s)
    : Communicator(rank, meeting.world_ranks(), bounded(std::move(options), world_deadline_s),
                   gathering.recorder(meeting.world_ranks().at(static_cast<size_t>(rank)))),
      gathering_(gathering),
      meeting_(meeting),
      world_deadline_s_(world_deadline_s) {}

void ThreadCommunicator::abort(const std::string& reason) noexcept {
  gathering_.abort(fmt::format("rank {} aborted group '{}': {}",
                               world_ranks()[static_cast<size_t>(rank())], name(), reason));
}

Visitor ThreadCommunicator::visitor(int64_t step_bytes) const {
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
    Stream& stream, const std::byte* source, int64_t step_bytes,
    const std::function<void(const std::vector<Post>& shown)>& queue_copies) {
  const auto wait_for_others = [&](const std::vector<Post>& posts) {
    for (size_t r = 0; r < posts.size(); ++r) {
      if (static_cast<int>(r) != rank()) stream.wait(posts[r].event);
    }
  };
  const auto& shown =
      meeting_.meet(visitor(step_bytes), {.data = source, .event = stream.record()});
  std::exception_ptr failure;
  device::Event done;
  try {
    wait_for_others(shown);
    queue_copies(shown);
    done = stream.record();
  } catch (...) {
    failure = std::current_exception();
  }
  wait_for_others(meeting_.part(rank(), {.event = std::move(done)}));
  if (failure) std::rethrow_exception(failure);
}

void ThreadCommunicator::do_all_gather(Stream& stream, Tensor out, ConstTensor in) {
  const int64_t bytes = in.bytes();
  move(stream, in.data, bytes, [&](const std::vector<Post>& shown) {
    std::byte* to = out.data;
    for (const Post& post : shown) {
      if (post.data != to) stream.copy_bytes(bytes_at(to, bytes), bytes_at(post.data, bytes));
      to += bytes;
    }
  });
}

void ThreadCommunicator::do_exchange(Stream& stream, Tensor out, const std::byte* in,
                                     int64_t stride_bytes, int64_t chunk_bytes,
                                     std::span<const int> from) {
  move(stream, in, chunk_bytes, [&](const std::vector<Post>& shown) {
    std::byte* to = out.data;
    for (const int r : from) {
      const std::byte* chunk = shown[static_cast<size_t>(r)].data + rank() * stride_bytes;
      stream.copy_bytes(bytes_at(to, chunk_bytes), bytes_at(chunk, chunk_bytes));
      to += chunk_bytes;
    }
  });
}

void ThreadCommunicator::do_broadcast(Stream& stream, Tensor inout, int root) {
  move(stream, inout.data, inout.bytes(), [&](const std::vector<Post>& shown) {
    if (rank() == root) return;
    stream.copy_bytes(inout, bytes_at(shown[static_cast<size_t>(root)].data, inout.bytes()));
  });
}

void ThreadCommunicator::do_send(Stream& stream, ConstTensor in, int to) {
  Message message = {.data = in.data, .bytes = in.bytes(), .ready = stream.record()};
  meeting_.send(visitor(in.bytes()), to, message);
  stream.wait(message.done);
}

void ThreadCommunicator::do_recv(Stream& stream, Tensor out, int from) {
  Message& message = meeting_.take(visitor(out.bytes()), from, out.bytes());
  std::exception_ptr failure;
  device::Event done;
  try {
    stream.wait(message.ready);
    stream.copy_bytes(out, bytes_at(message.data, message.bytes));
    done = stream.record();
  } catch (...) {
    failure = std::current_exception();
  }
  meeting_.finish(message, std::move(done));
  if (failure) std::rethrow_exception(failure);
}

std::vector<std::string> ThreadCommunicator::do_tell(const std::string& text) {
  Visitor own = visitor(0);
  own.may_differ = true;
  std::vector<std::string> texts;
  for (const Post& post : meeting_.meet(own, {.text = text})) texts.push_back(post.text);
  return texts;
}

void ThreadCommunicator::do_abort(const std::string& verdict) noexcept {
  gathering_.abort(verdict);
}

void ThreadCommunicator::do_barrier() { meeting_.meet(visitor(0), {}); }

std::unique_ptr<Communicator> ThreadCommunicator::do_split(int color, int key, Options options) {
  const auto& shown = meeting_.meet(visitor(0), {.color = color, .key = key});
  std::vector<int> ranks;  // of this group
  for (size_t r = 0; r < shown.size(); ++r) {
    if (shown[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return shown[static_cast<size_t>(a)].key < shown[static_cast<size_t>(b)].key;
  });
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  std::vector<int> part_ranks;
  for (const int r : ranks) part_ranks.push_back(world_ranks()[static_cast<size_t>(r)]);
  Meeting& part = gathering_.part_of(meeting_, splits_++, color, part_ranks);
  return std::make_unique<ThreadCommunicator>(gathering_, part, static_cast<int>(place),
                                              std::move(options), world_deadline_s_);
}

}  // namespace trireme::comm
