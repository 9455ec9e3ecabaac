// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/copy_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "ckpt/generation/format.h"

namespace trireme::train {
namespace {

enum class CopyRequest : uint64_t { store = 1, fetch = 2 };

// A request; before the content of a fetched copy, the same about that.
struct CopyHead {
  CopyRequest request;
  ckpt::CopyShape shape;
  int64_t step;
  int64_t keep;        // of store
  ckpt::Hash content;  // of store, and of the reply to fetch
  ckpt::CopyLabel label;
};
enum class CopyOutcome : uint64_t { accepted, stored, refused, damaged };
struct CopyReply {
  CopyOutcome outcome = CopyOutcome::accepted;
  ckpt::CopySteps::Steps kept = ckpt::CopySteps{}.kept;  // after store
  std::array<char, 104> why{};
};
static_assert(std::is_trivially_copyable_v<CopyHead> && std::is_trivially_copyable_v<CopyReply>);

// Padding is sent, too.
template <typename T>
T zeroed() {
  T value;
  std::memset(static_cast<void*>(&value), 0, sizeof value);
  return value;
}

std::string reason_in(const CopyReply& reply) {
  return {reply.why.data(), strnlen(reply.why.data(), reply.why.size())};
}

void refuse_copy(comm::PeerConnection& connection, CopyOutcome outcome, const std::string& why) {
  auto reply = zeroed<CopyReply>();
  reply.outcome = outcome;
  reply.kept = ckpt::CopySteps{}.kept;
  why.copy(reply.why.data(), reply.why.size() - 1);
  connection.send_value(reply);
}

// Receives a content, and returns its hash.
ckpt::Hash receive_content(comm::PeerConnection& connection, std::span<std::byte> to) {
  base::ContentSum sum;
  static_assert(ckpt::chunk_bytes % base::content_block_bytes == 0);
  for (int64_t at = 0; at < std::ssize(to); at += ckpt::chunk_bytes) {
    const std::span<std::byte> chunk =
        to.subspan(static_cast<size_t>(at),
                   static_cast<size_t>(std::min(ckpt::chunk_bytes, std::ssize(to) - at)));
    connection.receive(chunk);
    sum.add(chunk, at);
  }
  return ckpt::content_hash(sum);
}

void serve_store(comm::PeerConnection& connection, KeptStore& store, const CopyHead& head) {
  std::string refusal;
  if (head.shape.rank != connection.rank()) refusal = "a rank stores its own copies only";
  std::optional<KeptStore::Storing> storing =
      refusal.empty() ? store.store(head.shape, head.label, head.keep, refusal) : std::nullopt;
  if (!storing) return refuse_copy(connection, CopyOutcome::refused, refusal);
  connection.send_value(CopyReply{});
  const bool is_good = receive_content(connection, storing->content()) == head.content;
  if (is_good) storing->seal(head.label, head.content);
  storing.reset();  // before the other side may send the next one
  if (!is_good) {
    return refuse_copy(connection, CopyOutcome::damaged, "its bytes arrived with another hash");
  }
  CopyReply reply{.outcome = CopyOutcome::stored};
  std::ranges::copy(store.steps_of(head.shape.rank), reply.kept.begin());
  connection.send_value(reply);
}

void serve_fetch(comm::PeerConnection& connection, KeptStore& store, const CopyHead& asked) {
  const auto found = store.read(asked.shape, asked.step);
  if (!found) return refuse_copy(connection, CopyOutcome::refused, "it has no copy of that step");
  connection.send_value(CopyReply{});
  auto head = zeroed<CopyHead>();
  head = asked;
  head.content = found->hash;
  head.label = found->label;
  connection.send_value(head);
  connection.send(found->content);
}

}  // namespace

ckpt::CopySteps::Steps send_copy(comm::PeerConnection& connection, const ckpt::CopyMemory& memory,
                                 int buffer, int64_t keep) {
  auto head = zeroed<CopyHead>();
  const auto copies = memory.copies();
  const auto copy = std::ranges::find(copies, buffer, &ckpt::FoundCopy::buffer);
  TRIREME_CHECK(copy != copies.end(), "buffer {} has no copy", buffer);
  head.request = CopyRequest::store;
  head.shape = memory.shape();
  head.step = copy->label.step;
  head.keep = keep;
  head.content = memory.hash(buffer);
  head.label = copy->label;
  connection.send_value(head);
  const auto answer = connection.receive_value<CopyReply>();
  if (answer.outcome != CopyOutcome::accepted) throw comm::PeerLost(reason_in(answer));
  connection.send(memory.content(buffer));
  const auto reply = connection.receive_value<CopyReply>();
  if (reply.outcome != CopyOutcome::stored) throw comm::PeerLost(reason_in(reply));
  return reply.kept;
}

FetchedCopy fetch_copy(comm::PeerConnection& connection, const ckpt::CopyShape& shape, int64_t step,
                       std::span<std::byte> room) {
  auto head = zeroed<CopyHead>();
  head.request = CopyRequest::fetch;
  head.shape = shape;
  head.step = step;
  connection.send_value(head);
  const auto answer = connection.receive_value<CopyReply>();
  if (answer.outcome != CopyOutcome::accepted) throw comm::PeerLost(reason_in(answer));
  const auto found = connection.receive_value<CopyHead>();
  if (found.shape != shape || found.label.step != step) {
    throw comm::PeerLost("it has sent another copy");
  }
  FetchedCopy fetched{.label = found.label, .hash = found.content, .memory = {}, .content = {}};
  const auto bytes = static_cast<size_t>(shape.bytes);
  if (room.empty()) {
    fetched.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    room = {fetched.memory.get(), bytes};
  }
  TRIREME_CHECK(room.size() == bytes, "{} bytes of memory for a copy of {}", room.size(), bytes);
  fetched.content = room;
  if (receive_content(connection, room) != found.content) {
    throw comm::PeerLost(
        "the copy is damaged: its bytes do not have the hash that it was sealed with");
  }
  return fetched;
}

void serve_copies(comm::PeerConnection& connection, KeptStore& store) {
  while (connection.wait()) {
    const auto head = connection.receive_value<CopyHead>();
    switch (head.request) {
      case CopyRequest::store:
        serve_store(connection, store, head);
        break;
      case CopyRequest::fetch:
        serve_fetch(connection, store, head);
        break;
      default:
        throw comm::PeerLost("an unknown request");
    }
  }
}

}  // namespace trireme::train
