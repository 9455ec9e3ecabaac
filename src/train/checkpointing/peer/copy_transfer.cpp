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

enum class Request : uint64_t { store = 1, fetch = 2 };

// A request; before the content of a fetched copy, the same about that.
struct Head {
  Request request;
  ckpt::CopyShape shape;
  int64_t step;
  int64_t keep;        // of store
  ckpt::Hash content;  // of store, and of the reply to fetch
  ckpt::CopyLabel label;
};
enum class Outcome : uint64_t { accepted, stored, refused, damaged };
struct Reply {
  Outcome outcome = Outcome::accepted;
  ckpt::CopySteps::Steps kept = ckpt::CopySteps{}.kept;  // after store
  std::array<char, 104> why{};
};
static_assert(std::is_trivially_copyable_v<Head> && std::is_trivially_copyable_v<Reply>);

// Padding is sent, too.
template <typename T>
T zeroed() {
  T value;
  std::memset(static_cast<void*>(&value), 0, sizeof value);
  return value;
}

std::string text_of(const Reply& reply) {
  return {reply.why.data(), strnlen(reply.why.data(), reply.why.size())};
}

void refuse(comm::PeerConnection& connection, Outcome outcome, const std::string& why) {
  auto reply = zeroed<Reply>();
  reply.outcome = outcome;
  reply.kept = ckpt::CopySteps{}.kept;
  why.copy(reply.why.data(), reply.why.size() - 1);
  connection.send_value(reply);
}

// Receives a content, and returns its hash.
ckpt::Hash receive_content(comm::PeerConnection& connection, std::span<std::byte> to) {
  ckpt::ContentHasher hasher;
  while (!to.empty()) {
    const std::span<std::byte> chunk =
        to.first(std::min<size_t>(to.size(), static_cast<size_t>(ckpt::chunk_bytes)));
    connection.receive(chunk);
    hasher.add(chunk);
    to = to.subspan(chunk.size());
  }
  return hasher.hash();
}

void serve_store(comm::PeerConnection& connection, KeptStore& store, const Head& head) {
  std::string refusal;
  if (head.shape.rank != connection.rank()) refusal = "a rank stores its own copies only";
  std::optional<KeptStore::Storing> storing =
      refusal.empty() ? store.store(head.shape, head.label, head.keep, refusal) : std::nullopt;
  if (!storing) return refuse(connection, Outcome::refused, refusal);
  connection.send_value(Reply{});
  const bool is_good = receive_content(connection, storing->content()) == head.content;
  if (is_good) storing->seal(head.label, head.content);
  storing.reset();  // before the other side may send the next one
  if (!is_good) {
    return refuse(connection, Outcome::damaged, "its bytes arrived with another hash");
  }
  Reply reply{.outcome = Outcome::stored};
  std::ranges::copy(store.steps_of(head.shape.rank), reply.kept.begin());
  connection.send_value(reply);
}

void serve_fetch(comm::PeerConnection& connection, KeptStore& store, const Head& asked) {
  const auto found = store.read(asked.shape, asked.step);
  if (!found) return refuse(connection, Outcome::refused, "it has no copy of that step");
  connection.send_value(Reply{});
  auto head = zeroed<Head>();
  head = asked;
  head.content = found->hash;
  head.label = found->label;
  connection.send_value(head);
  connection.send(found->content);
}

}  // namespace

ckpt::CopySteps::Steps send_copy(comm::PeerConnection& connection, const ckpt::CopyMemory& memory,
                                 int buffer, int64_t keep) {
  auto head = zeroed<Head>();
  const auto copies = memory.copies();
  const auto copy = std::ranges::find(copies, buffer, &ckpt::FoundCopy::buffer);
  TRIREME_CHECK(copy != copies.end(), "buffer {} has no copy", buffer);
  head.request = Request::store;
  head.shape = memory.shape();
  head.step = copy->label.step;
  head.keep = keep;
  head.content = memory.hash(buffer);
  head.label = copy->label;
  connection.send_value(head);
  const auto answer = connection.receive_value<Reply>();
  if (answer.outcome != Outcome::accepted) throw comm::PeerLost(text_of(answer));
  connection.send(memory.content(buffer));
  const auto reply = connection.receive_value<Reply>();
  if (reply.outcome != Outcome::stored) throw comm::PeerLost(text_of(reply));
  return reply.kept;
}

FetchedCopy fetch_copy(comm::PeerConnection& connection, const ckpt::CopyShape& shape,
                       int64_t step) {
  auto head = zeroed<Head>();
  head.request = Request::fetch;
  head.shape = shape;
  head.step = step;
  connection.send_value(head);
  const auto answer = connection.receive_value<Reply>();
  if (answer.outcome != Outcome::accepted) throw comm::PeerLost(text_of(answer));
  const auto found = connection.receive_value<Head>();
  if (found.shape != shape || found.label.step != step) {
    throw comm::PeerLost("it has sent another copy");
  }
  const auto bytes = static_cast<size_t>(shape.bytes);
  FetchedCopy fetched{.label = found.label,
                      .bytes = std::make_unique_for_overwrite<std::byte[]>(bytes),
                      .size = shape.bytes};
  if (receive_content(connection, {fetched.bytes.get(), bytes}) != found.content) {
    throw comm::PeerLost(
        "the copy is damaged: its bytes do not have the hash that it was sealed "
        "with");
  }
  return fetched;
}

void serve_copies(comm::PeerConnection& connection, KeptStore& store) {
  while (connection.wait()) {
    const auto head = connection.receive_value<Head>();
    switch (head.request) {
      case Request::store:
        serve_store(connection, store, head);
        break;
      case Request::fetch:
        serve_fetch(connection, store, head);
        break;
      default:
        throw comm::PeerLost("an unknown request");
    }
  }
}

}  // namespace trireme::train
