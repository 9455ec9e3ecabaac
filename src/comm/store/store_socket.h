// SPDX-License-Identifier: Apache-2.0
// Sockets of the store, for IPv4 and IPv6: connecting with a deadline, listening, waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/store/store.h"

namespace trireme::comm {

using SocketClock = std::chrono::steady_clock;
SocketClock::time_point socket_time_after(double seconds);

// Returns the system's message for an errno.
std::string error_text(int number);

// Returns whether one of the poll `events` occurred before `end`. Throws Stopped soon after `stop`
// is set.
bool is_socket_ready(int socket, short events, SocketClock::time_point end,
                     const std::atomic<bool>* stop = nullptr);

// Returns a connected, non-blocking socket, owned by the caller, for which `handshake` returned an
// empty text (otherwise the reason of its failure). Retries until the deadline, then throws
// CommAborted; Stopped when options.stop is set.
int connect_to(const StoreAddress& address, const StoreOptions& options,
               const std::function<std::string(int socket)>& handshake);

// Returns listening, non-blocking sockets of one port (0: any free one) for every address that
// `host` resolves to; if it is empty, for every address of this host. The latter is also used for a
// name of an address that this host does not have (behind address translation), and with
// `serves_other_hosts` for such an address itself and for a name that resolves to a loopback
// address here, as a host's own name does on many systems. Throws IoError.
std::vector<base::Descriptor> listen_on(const std::string& host, int port,
                                        bool serves_other_hosts = false);

// Returns whether listen_on() with these arguments would accept connections of other hosts.
bool listens_beyond_loopback(const std::string& host, bool serves_other_hosts);

std::string address_of(int socket);  // of the local end, numeric
int port_of(int socket);

}  // namespace trireme::comm
