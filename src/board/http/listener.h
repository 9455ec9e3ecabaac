// SPDX-License-Identifier: Apache-2.0
// Where the server listens: an address and port, or a Unix socket.
#pragma once

#include <filesystem>
#include <string>

#include "base/system/descriptor.h"

namespace trireme::board {

struct ListenPlace {
  std::string address = "127.0.0.1";  // IP literal
  int port = 0;                       // 0: any free one
  std::filesystem::path socket;       // a Unix socket instead, if it is not empty

  bool is_unix() const { return !socket.empty(); }
  bool is_loopback() const;  // no other machine can connect
};

// Parses "127.0.0.1:8080", "[::1]:8080", ":8080" (loopback), "8080" or "unix:PATH". Throws
// ConfigError.
ListenPlace listen_place_from(const std::string& text);

// An open socket that accepts connections. Its file is removed at the end.
class Listener {
 public:
  // Throws IoError. A Unix socket is created with mode 0600; one that no process listens on is
  // replaced.
  explicit Listener(const ListenPlace& place);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor() const { return socket_.value(); }
  int port() const { return port_; }  // 0 for a Unix socket

 private:
  ListenPlace place_;
  int port_ = 0;  // set while socket_ is opened
  base::Descriptor socket_;
};

}  // namespace trireme::board
