// SPDX-License-Identifier: Apache-2.0
// StoreConnections: the sockets of a StoreServer. It accepts connections, authenticates those that
// send the handshake of this job, and returns their requests one at a time. An unauthenticated
// client can neither read nor set anything and has a few bytes of memory and a few seconds; a
// client whose bytes are not a request is disconnected. Used by one thread, except wake().
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

struct StoreLimits {
  size_t max_unauthenticated = 256;  // connections; beyond that, the oldest is closed
  double handshake_s = 10;           // after which an unauthenticated connection is closed
  size_t max_clients = size_t{1} << 18;
  // Bytes of partly received requests and partly sent replies of all clients.
  size_t max_pending_bytes = size_t{256} << 20;
  size_t max_table_bytes = size_t{1} << 30;
  // Unauthenticated connections that are closed within a tenth of a second; no more are accepted in
  // the rest of it, so that a flood of connections costs a few per cent of a core.
  int max_refusals = 128;
};

class StoreConnections {
 public:
  using Clock = std::chrono::steady_clock;
  using Id = uint64_t;
  struct Event {
    Id id = 0;
    std::optional<StoreMessage> request;  // none: the client has disconnected
  };

  StoreConnections(std::vector<base::Descriptor> listening, std::string handshake,
                   const StoreLimits& limits);

  // Returns the events since the last call, waiting for one until `end` or wake(). After a request
  // the next one of that client is returned only after answer(); refuse() disconnects the client
  // without an event.
  std::vector<Event> poll(Clock::time_point end);
  void answer(Id id, const StoreMessage& message);
  void refuse(Id id, const std::string& why);
  // Any thread: poll() returns.
  void wake() noexcept;

 private:
  struct Client {
    base::Descriptor socket;
    Clock::time_point handshake_end;
    bool is_authenticated = false;
    bool is_asking = false;   // its request is being handled
    bool is_stalled = false;  // it does not read the rest of its reply
    std::string in, out;
    size_t taken = 0;    // bytes of `in` that were returned as requests
    size_t sent = 0;     // bytes of `out` that were sent
    size_t counted = 0;  // bytes of this client included in pending_bytes_
  };

  int poll_milliseconds(Clock::time_point end) const;
  void accept_from(int listening);
  void make_room();
  void receive(Id id, Client& client);
  void check_handshake(Id id, Client& client);
  void take_request(Id id, Client& client);
  void send(Id id, Client& client);
  void count(Id id, Client& client);
  void close_with(Id id, Client& client, const std::string& why);
  void close_unauthenticated(Id id);
  void close(Id id);
  void close_expired();
  void set_accepting(bool accepts);
  void watch(int socket, uint32_t events, Id id, bool is_new);

  const std::vector<base::Descriptor> listening_;
  const std::string handshake_;
  const StoreLimits limits_;
  base::Descriptor epoll_;
  base::Descriptor wake_;  // an eventfd
  std::optional<base::Descriptor>
      spare_;  // closed to accept a connection if descriptors have run out
  std::map<Id, Client> clients_;
  std::set<Id> unauthenticated_;  // by age
  std::set<Id> ready_;            // clients that may have another request in `in`
  std::vector<Event> events_;
  Id next_id_;
  size_t pending_bytes_ = 0;
  bool accepts_ = true;
  int refusals_ = 0;  // since window_
  Clock::time_point window_;
  int64_t unreported_ = 0;  // unauthenticated connections closed since the last warning
  Clock::time_point reported_;
  bool has_warned_descriptors_ = false;
};

}  // namespace trireme::comm
