// SPDX-License-Identifier: Apache-2.0
#include "comm/store_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "comm/store.h"
#include "comm/store_socket.h"

namespace trireme::comm {
namespace {

constexpr size_t most_clients = 16384;

}  // namespace

StoreServer::StoreServer(const Options& options)
    : options_(options),
      greeting_(store_greeting(options.token)),
      started_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      listening_(listen_on(options.host, options.port)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      port_(port_of(listening_.value())) {
  if (stop_.value() < 0) throw base::IoError("eventfd: " + error_text(errno));
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.value(), &one, sizeof(one));
  thread_.join();
}

void StoreServer::serve() {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign({{stop_.value(), POLLIN, 0}, {listening_.value(), POLLIN, 0}});
    for (const Client& client : clients_) {
      const int events = POLLIN | (client.out.empty() ? 0 : POLLOUT);
      polled.push_back({client.socket.value(), static_cast<short>(events), 0});
    }
    ::poll(polled.data(), polled.size(), poll_milliseconds());
    if (polled[0].revents != 0) return;
    size_t at = 2;
    for (Client& client : clients_) {
      const short events = polled[at++].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(client);
      if (client.is_open && (events & POLLOUT) != 0) send(client);
    }
    if (polled[1].revents != 0) accept_clients();
    drop_closed();  // first: somebody may wait for the key that it sets
    while (answer_waiting()) {
    }
  }
}

int StoreServer::poll_milliseconds() const {
  int least = 60000;
  for (const Client& client : clients_) {
    if (!client.waiting && !client.joins_at) continue;
    const Clock::time_point end = client.waiting ? client.waiting->end : *client.joins_at;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    least = static_cast<int>(std::clamp<int64_t>(left.count(), 0, least));
  }
  return least;
}

void StoreServer::accept_clients() {
  while (true) {
    base::Descriptor socket(
        ::accept4(listening_.value(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.value() < 0) return;
    if (clients_.size() >= most_clients) continue;  // closed at once
    const int on = 1;
    ::setsockopt(socket.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket.value(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    clients_.push_back(Client{.socket = std::move(socket)});
  }
}

void StoreServer::receive(Client& client) {
  std::array<char, 65536> part;
  while (client.is_open) {
    const ssize_t count = ::recv(client.socket.value(), part.data(), part.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      client.is_open = false;
      break;
    }
    client.in.append(part.data(), static_cast<size_t>(count));
    // Whoever sends more while he waits for an answer does not speak our language.
    if (client.in.size() > 2 * most_frame_bytes) client.is_open = false;
  }
  if (client.is_open) handle_frames(client);
}

void StoreServer::handle_frames(Client& client) {
  if (!client.has_greeted) {
    const size_t common = std::min(client.in.size(), store_protocol.size());
    if (client.in.compare(0, common, store_protocol, 0, common) != 0) {
      client.is_open = false;
      return;
    }
    if (client.in.size() < greeting_.size()) return;
    // In constant time, so that the answer's time does not tell how much of it was right.
    unsigned difference = 0;
    for (size_t i = 0; i < greeting_.size(); ++i) {
      difference |= static_cast<unsigned char>(client.in[i] ^ greeting_[i]);
    }
    if (difference != 0) {
      refuse(client, "it belongs to another job, or to another attempt of this one");
      return;
    }
    client.in.erase(0, greeting_.size());
    client.has_greeted = true;
  }
  try {
    while (client.is_open && !client.waiting && !client.joins_at) {
      const std::optional<StoreMessage> request = take_frame(client.in);
      if (!request) break;
      handle(client, *request);
    }
  } catch (const base::IoError& error) {
    refuse(client, error.what());
  }
}

void StoreServer::refuse(Client& client, const std::string& why) {
  client.out += encode({StoreCode::refused, {why}});
  send(client);
  client.name.clear();
  client.joins_at.reset();
  client.is_open = false;
}

void StoreServer::join(Client& client, const std::vector<std::string>& fields) {
  const std::optional<double> start = fields.size() == 3 ? number_from(fields[2]) : std::nullopt;
  if (!start) throw base::IoError("join() wants a name, a process and its start");
  for (Client& other : clients_) {
    if (&other == &client || !other.is_open || other.name != fields[0]) continue;
    if (other.joins_at && other.process_start < *start) {
      refuse(other, fmt::format("{} has started as '{}' since: this process ({}) is left over from "
                                "an attempt before",
                                fields[1], fields[0], other.process));
      continue;
    }
    throw base::IoError(
        fmt::format("'{}' is {} already; {} is of another job, or left over from an attempt before",
                    fields[0], other.process, fields[1]));
  }
  client.name = fields[0];
  client.process = fields[1];
  client.process_start = *start;
  const bool is_early = *start + options_.head_start_s < started_;
  const double grace_s = options_.token.empty() && is_early ? options_.grace_s : 0;
  client.joins_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(grace_s));
}

void StoreServer::handle(Client& client, const StoreMessage& request) {
  const std::vector<std::string>& fields = request.fields;
  const auto expect = [&](bool holds) {
    if (!holds) {
      throw base::IoError(
          fmt::format("request {} with {} fields", static_cast<int>(request.code), fields.size()));
    }
  };
  StoreMessage answer;
  switch (request.code) {
    case StoreCode::set:
      expect(fields.size() == 2);
      put(fields[0], fields[1]);
      break;
    case StoreCode::set_once:
      expect(fields.size() == 2);
      if (!table_.contains(fields[0])) put(fields[0], fields[1]);
      answer.fields = {table_.at(fields[0]).value};
      break;
    case StoreCode::add: {
      expect(fields.size() == 2);
      const auto delta = integer_from(fields[1]);
      const auto old = table_.find(fields[0]);
      const auto sum = old == table_.end() ? 0 : integer_from(old->second.value);
      int64_t added = 0;
      expect(delta && sum && !__builtin_add_overflow(*sum, *delta, &added));
      put(fields[0], std::to_string(added));
      answer.fields = {std::to_string(added)};
      break;
    }
    case StoreCode::read:
      for (const std::string& key : fields) {
        const auto found = table_.find(key);
        if (found == table_.end()) {
          answer.fields.insert(answer.fields.end(), {"0", "", ""});
          continue;
        }
        const std::chrono::duration<double> age = Clock::now() - found->second.set_at;
        answer.fields.insert(answer.fields.end(),
                             {"1", found->second.value, fmt::format("{}", age.count())});
      }
      break;
    case StoreCode::wait: {
      expect(!fields.empty());
      const auto seconds = number_from(fields[0]);
      expect(seconds.has_value() && *seconds == *seconds);
      const std::chrono::duration<double> span(std::clamp(*seconds, 0.0, 1e8));
      client.waiting = {{fields.begin() + 1, fields.end()},
                        Clock::now() + std::chrono::duration_cast<Clock::duration>(span)};
      return;  // answer_waiting() answers
    }
    case StoreCode::join:
      join(client, fields);
      return;  // answer_waiting() answers
    case StoreCode::leave:
      client.name.clear();
      break;
    case StoreCode::ok:
    case StoreCode::refused:
      expect(false);
  }
  size_t bytes = 0;
  for (const std::string& field : answer.fields) bytes += field.size() + 4;
  expect(bytes < most_frame_bytes);
  client.out += encode(answer);
  send(client);
}

void StoreServer::send(Client& client) {
  while (!client.out.empty()) {
    const ssize_t count =
        ::send(client.socket.value(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      client.is_open = false;
      return;
    }
    client.out.erase(0, static_cast<size_t>(count));
  }
}

bool StoreServer::answer_waiting() {
  bool has_handled = false;
  for (Client& client : clients_) {
    if (!client.is_open) continue;
    if (client.joins_at && Clock::now() >= *client.joins_at) {
      client.joins_at.reset();
      client.out += encode({StoreCode::ok, {}});
      send(client);
      handle_frames(client);
      has_handled = true;
    }
    if (!client.is_open || !client.waiting) continue;
    const bool is_there = has_all(client.waiting->keys);
    if (!is_there && Clock::now() < client.waiting->end) continue;
    client.waiting.reset();
    client.out += encode({StoreCode::ok, {is_there ? "1" : "0"}});
    send(client);
    handle_frames(client);  // what came in meanwhile
    has_handled = true;
  }
  return has_handled;
}

void StoreServer::drop_closed() {
  for (auto client = clients_.begin(); client != clients_.end();) {
    if (client->is_open) {
      ++client;
      continue;
    }
    if (!client->name.empty() && !client->joins_at) {
      put(Store::gone_key(client->name), std::to_string(departures_++));
      put(Store::any_gone_key, client->name);
    }
    client = clients_.erase(client);
  }
}

void StoreServer::put(const std::string& key, std::string value) {
  table_[key] = {std::move(value), Clock::now()};
}

bool StoreServer::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return table_.contains(key); });
}

}  // namespace trireme::comm
