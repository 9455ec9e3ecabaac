// SPDX-License-Identifier: Apache-2.0
// Sockets of the store, for IPv4 and IPv6: connecting with a deadline, listening, waiting.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/store/store.h"

namespace trireme::comm {

using SocketClock = std::chrono::steady_clock;
SocketClock::time_point socket_time_after(double seconds);

// What the system says about an errno.
std::string error_text(int number);

// Whether one of the poll `events` came before `end`.
bool is_socket_ready(int socket, short events, SocketClock::time_point end);

// A connected, non-blocking socket, which the caller owns, to which `handshake` has answered an
// empty text. Tries again until the deadline, then throws CommAborted; Stopped when options.stop is
// set.
int connect_to(const StoreAddress& address, const StoreOptions& options,
               const std::function<std::string(int socket)>& handshake);

// Listening, non-blocking sockets of one port (0: any free one) for every address that `host`
// stands for; an empty one means every address of this host. That is also taken
// for a name of an address that this host does not have (behind a translation), and with
// `serves_other_hosts` for such an address itself and for a name that stands for a loopback address
// here, as a host's own name does on many systems. Throws IoError.
std::vector<base::Descriptor> listen_on(const std::string& host, int port,
                                        bool serves_other_hosts = false);

std::string address_of(int socket);  // of this end, as numbers
int port_of(int socket);

}  // namespace trireme::comm
