// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/tcp_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace trireme::tests {

int64_t tcp_bytes_sent() {
  int64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int socket = std::stoi(entry.path().filename().string());
    tcp_info info = {};
    socklen_t bytes = sizeof(info);
    // Fails for files, pipes and sockets of other kinds.
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) continue;
    constexpr size_t needed =
        offsetof(tcp_info, tcpi_bytes_retrans) + sizeof(info.tcpi_bytes_retrans);
    if (bytes < needed) return -1;
    sum += static_cast<int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
  }
  return sum;
}

}  // namespace trireme::tests
