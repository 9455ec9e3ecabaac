// SPDX-License-Identifier: Apache-2.0
#include "comm/store_tcp.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "comm/store_socket.h"

namespace trireme::comm {
namespace {

// A server that takes longer than this to answer what needs no waiting is taken for dead.
constexpr double answer_seconds = 30;

}  // namespace

TcpStore::TcpStore(StoreAddress address, double deadline_s)
    : address_(std::move(address)),
      socket_(connect_to(address_, deadline_s)),
      local_address_(address_of(socket_.value())) {
  // The greeting is short: an empty socket buffer takes it whole.
  if (::send(socket_.value(), store_greeting.data(), store_greeting.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(store_greeting.size())) {
    throw base::CommAborted(fmt::format("the store at {} closed the connection at once: {}",
                                        address_.text(), error_text(errno)));
  }
}

std::vector<std::string> TcpStore::ask(StoreMessage request, size_t answers, double patience_s) {
  const std::scoped_lock lock(mutex_);
  const auto gone = [&](std::string_view why) {
    is_broken_ = true;
    return base::CommAborted(
        fmt::format("the store at {} is gone ({}): the launcher or the rank that ran it has ended",
                    address_.text(), why));
  };
  if (is_broken_) throw gone("an earlier call failed");
  const std::string frame = encode(request);
  const SocketClock::time_point end = socket_time_after(patience_s + answer_seconds);
  for (size_t sent = 0; sent < frame.size();) {
    if (!is_socket_ready(socket_.value(), POLLOUT, end)) throw gone("no answer");
    const ssize_t count =
        ::send(socket_.value(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw gone(error_text(errno));
    if (count > 0) sent += static_cast<size_t>(count);
  }
  while (true) {
    std::optional<StoreMessage> answer;
    try {
      answer = take_frame(received_);
    } catch (const base::IoError& error) {
      throw base::CommAborted(fmt::format("what answers at {} is not a store of Trireme: {}",
                                          address_.text(), error.what()));
    }
    if (answer) {
      if (answer->code != StoreCode::ok || answer->fields.size() != answers) {
        throw base::CommAborted(
            fmt::format("the store at {} refused: {}", address_.text(),
                        answer->fields.empty() ? "no reason given" : answer->fields.front()));
      }
      return std::move(answer->fields);
    }
    if (!is_socket_ready(socket_.value(), POLLIN, end)) throw gone("no answer");
    std::array<char, 16384> part;
    const ssize_t count = ::recv(socket_.value(), part.data(), part.size(), 0);
    if (count == 0) throw gone("connection closed");
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw gone(error_text(errno));
    if (count > 0) received_.append(part.data(), static_cast<size_t>(count));
  }
}

void TcpStore::set(const std::string& key, const std::string& value) {
  ask({StoreCode::set, {key, value}}, 0);
}

std::string TcpStore::set_once(const std::string& key, const std::string& value) {
  return ask({StoreCode::set_once, {key, value}}, 1).front();
}

int64_t TcpStore::add(const std::string& key, int64_t delta) {
  const std::string sum = ask({StoreCode::add, {key, std::to_string(delta)}}, 1).front();
  return integer_from(sum).value_or(0);
}

std::vector<std::optional<Store::Value>> TcpStore::read(std::span<const std::string> keys) {
  const std::vector<std::string> fields =
      ask({StoreCode::read, {keys.begin(), keys.end()}}, 3 * keys.size());
  std::vector<std::optional<Value>> values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (fields[3 * i] != "1") continue;
    values[i] = Value{fields[3 * i + 1], number_from(fields[3 * i + 2]).value_or(0)};
  }
  return values;
}

bool TcpStore::wait(std::span<const std::string> keys, double deadline_s) {
  std::vector<std::string> fields = {fmt::format("{}", deadline_s)};
  fields.insert(fields.end(), keys.begin(), keys.end());
  return ask({StoreCode::wait, std::move(fields)}, 1, deadline_s).front() == "1";
}

std::unique_ptr<Store> TcpStore::another() const {
  return std::make_unique<TcpStore>(address_, answer_seconds);
}

void TcpStore::join(const std::string& name) { ask({StoreCode::join, {name}}, 0); }
void TcpStore::leave() { ask({StoreCode::leave, {}}, 0); }

}  // namespace trireme::comm
