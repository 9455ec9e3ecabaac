// SPDX-License-Identifier: Apache-2.0
// Sockets of the store, for IPv4 and IPv6: connecting with a deadline, listening, waiting.
#pragma once

#include <chrono>
#include <string>

#include "comm/store.h"

namespace trireme::comm {

using SocketClock = std::chrono::steady_clock;
SocketClock::time_point socket_time_after(double seconds);

// Of errno.
std::string error_text(int number);

// Whether one of the poll `events` came before `end`.
bool is_socket_ready(int socket, short events, SocketClock::time_point end);

// A connected, non-blocking socket, which the caller owns, to which `greet` has answered an empty
// text. Tries again until the deadline, then throws CommAborted; Stopped when options.stop is set.
int connect_to(const StoreAddress& address, const StoreOptions& options,
               const std::function<std::string(int socket)>& greet);

// A listening, non-blocking socket, which the caller owns; an empty host means every address of
// this one, port 0 any free one. Throws IoError.
int listen_on(const std::string& host, int port);

std::string address_of(int socket);  // of this end, as numbers
int port_of(int socket);

}  // namespace trireme::comm
