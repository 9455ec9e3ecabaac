// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_tcp.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

// Sends the handshake and an empty request. Returns why the server refused it; empty if it did not.
std::string refused_handshake(int socket, const StoreOptions& options) {
  // A store replies at once; another program may never reply.
  constexpr double handshake_seconds = 10;
  const SocketClock::time_point end = socket_time_after(handshake_seconds);
  const std::string out = store_handshake(options.token) + encode({StoreCode::read, {}});
  // Both are short and fit into an empty socket buffer.
  if (::send(socket, out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size())) {
    return "it closed the connection at once: " + error_text(errno);
  }
  std::string in;
  while (true) {
    if (!is_socket_ready(socket, POLLIN, end, options.stop)) return "it does not reply";
    std::array<char, 4096> part;
    const ssize_t count = ::recv(socket, part.data(), part.size(), 0);
    if (count == 0) return "it closed the connection: it is not a store of this version";
    if (count < 0 && errno != EAGAIN && errno != EINTR) return error_text(errno);
    if (count > 0) in.append(part.data(), static_cast<size_t>(count));
    try {
      const std::optional<StoreMessage> answer = take_frame(in);
      if (!answer) continue;
      if (answer->code == StoreCode::ok) return "";
      return answer->fields.empty() ? "it refused" : answer->fields.front();
    } catch (const base::IoError& error) {
      return fmt::format("the program there is not a store of Trireme: {}", error.what());
    }
  }
}

std::string process_text() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"?"};
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

// Returns when this process first used a store, which is close to its start.
double process_start() {
  static const double start =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return start;
}

StoreMessage join_request(const std::string& name, const std::string& id) {
  return {StoreCode::join, {name, process_text(), fmt::format("{:.3f}", process_start()), id}};
}

std::string new_id() {
  static std::atomic<int64_t> handles{0};
  return fmt::format("{:.3f}/{}/{}", process_start(), ::getpid(), ++handles);
}

}  // namespace

// An error of the connection, not an answer of the store.
class TcpStore::ConnectionLost : public base::CommAborted {
 public:
  // `silent_s`: so long there was no reply.
  ConnectionLost(const std::string& message, double silent_s)
      : base::CommAborted(message), silent_s_(silent_s) {}
  double silent_s() const { return silent_s_; }

 private:
  double silent_s_;
};

TcpStore::TcpStore(StoreAddress address, StoreOptions options)
    : address_(std::move(address)),
      options_(std::move(options)),
      socket_((process_start(), connected(options_))),
      local_address_(address_of(socket_->value())),
      id_(new_id()) {}

int TcpStore::connected(const StoreOptions& options) const {
  return connect_to(address_, options,
                    [&options](int socket) { return refused_handshake(socket, options); });
}

std::vector<std::string> TcpStore::ask(const StoreMessage& request, size_t answers,
                                       double expected_wait_s, const std::atomic<bool>* stop) {
  const std::scoped_lock lock(mutex_);
  while (true) {
    try {
      return ask_once(request, answers, expected_wait_s, stop);
    } catch (const ConnectionLost& error) {
      if (options_.outage_s <= 0 || is_given_up_) throw;
      connect_again(error);
    }
  }
}

double TcpStore::reply_seconds() const {
  // Where it may be away, a host that cannot be reached is noticed while there is time to end.
  return options_.outage_s > 0 ? std::min(options_.reply_timeout_s, options_.outage_s / 6)
                               : options_.reply_timeout_s;
}

void TcpStore::connect_again(const ConnectionLost& error) {
  // In which a server is started again if all goes well.
  constexpr double short_outage_s = 2;
  const SocketClock::time_point begin = SocketClock::now();
  StoreOptions again = options_;
  again.deadline_s = 1;
  again.retries = false;
  again.stop = nullptr;
  while (true) {
    const bool is_leaving = options_.is_leaving != nullptr && *options_.is_leaving;
    const double allowed_s =
        is_leaving ? std::min(short_outage_s, options_.outage_s) : options_.outage_s;
    const double tried_s = std::chrono::duration<double>(SocketClock::now() - begin).count();
    if (tried_s > allowed_s - error.silent_s()) {
      is_given_up_ = true;
      throw error;
    }
    try {
      received_.clear();
      socket_.reset();
      socket_.emplace(connected(again));
      is_broken_ = false;
      if (epoch_ >= 0) {
        ask_once({StoreCode::enter, {std::to_string(epoch_)}}, 0, 0, nullptr);
      }
      if (!name_.empty()) ask_once(join_request(name_, id_), 0, 0, nullptr);
      return;
    } catch (const StoreUnreachable& ignored) {  // not yet
    } catch (const ConnectionLost& ignored) {    // not any more
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::vector<std::string> TcpStore::ask_once(const StoreMessage& request, size_t answers,
                                            double expected_wait_s, const std::atomic<bool>* stop) {
  const auto gone = [&](std::string_view why, double silent_s = 0) {
    is_broken_ = true;
    return ConnectionLost(
        fmt::format("the store at {} is gone ({}): the launcher or the rank that ran it has ended",
                    address_.text(), why),
        silent_s);
  };
  if (is_broken_ || !socket_) throw gone("an earlier call failed");
  const std::string frame = encode(request);
  // A server that takes longer than its reply timeout is assumed to be dead.
  const SocketClock::time_point end = socket_time_after(expected_wait_s + reply_seconds());
  for (size_t sent = 0; sent < frame.size();) {
    if (!is_socket_ready(socket_->value(), POLLOUT, end)) throw gone("no reply", reply_seconds());
    const ssize_t count =
        ::send(socket_->value(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw gone(error_text(errno));
    if (count > 0) sent += static_cast<size_t>(count);
  }
  while (true) {
    std::optional<StoreMessage> answer;
    try {
      answer = take_frame(received_);
    } catch (const base::IoError& error) {
      is_broken_ = true;
      throw base::CommAborted(fmt::format("the program at {} is not a store of Trireme: {}",
                                          address_.text(), error.what()));
    }
    if (answer) {
      if (answer->code == StoreCode::fenced && answer->fields.size() == 1) {
        throw fenced_by(integer_from(answer->fields.front()).value_or(0), epoch_);
      }
      if (answer->code != StoreCode::ok || answer->fields.size() != answers) {
        is_broken_ = true;  // the store closes the connection after it
        throw base::CommAborted(
            fmt::format("the store at {} refused: {}", address_.text(),
                        answer->fields.empty() ? "no reason given" : answer->fields.front()));
      }
      return std::move(answer->fields);
    }
    try {
      if (!is_socket_ready(socket_->value(), POLLIN, end, stop))
        throw gone("no reply", reply_seconds());
    } catch (const base::Stopped&) {
      is_broken_ = true;  // the reply may still come
      throw;
    }
    std::array<char, 16384> part;
    const ssize_t count = ::recv(socket_->value(), part.data(), part.size(), 0);
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
  const int64_t number = [this] {
    const std::scoped_lock lock(mutex_);
    return ++additions_;
  }();
  StoreMessage request{StoreCode::add, {key, std::to_string(delta)}};
  if (options_.outage_s > 0) {
    request.fields.insert(request.fields.end(), {id_, std::to_string(number)});
  }
  const std::string sum = ask(request, 1).front();
  return integer_from(sum).value_or(0);
}

std::vector<std::optional<Store::Aged>> TcpStore::read_aged(std::span<const std::string> keys) {
  const std::vector<std::string> fields =
      ask({StoreCode::read, {keys.begin(), keys.end()}}, 3 * keys.size());
  std::vector<std::optional<Aged>> values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (fields[3 * i] != "1") continue;
    values[i] = Aged{fields[3 * i + 1], number_from(fields[3 * i + 2]).value_or(0)};
  }
  return values;
}

bool TcpStore::wait(std::span<const std::string> keys, double deadline_s) {
  std::vector<std::string> fields = {fmt::format("{}", deadline_s)};
  fields.insert(fields.end(), keys.begin(), keys.end());
  return ask({StoreCode::wait, std::move(fields)}, 1, deadline_s).front() == "1";
}

std::unique_ptr<Store> TcpStore::another() const {
  auto other = std::make_unique<TcpStore>(address_, options_);
  if (epoch_ >= 0) other->enter(epoch_);
  return other;
}

void TcpStore::enter(int64_t epoch) {
  const int64_t before = epoch_.exchange(epoch);
  try {
    ask({StoreCode::enter, {std::to_string(epoch)}}, 0);
  } catch (const base::Fenced&) {
    epoch_ = before;
    throw;
  }
}

void TcpStore::join(const std::string& name) {
  ask(join_request(name, id_), 0, 0, options_.stop);
  const std::scoped_lock lock(mutex_);
  name_ = name;
}

void TcpStore::leave() {
  ask({StoreCode::leave, {}}, 0);
  const std::scoped_lock lock(mutex_);
  name_.clear();
}

}  // namespace trireme::comm
