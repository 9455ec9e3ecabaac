// SPDX-License-Identifier: Apache-2.0
// A library that LD_PRELOAD puts between the program and the C library, to make a machine slow: its
// network, its disks, its clock, its memory. The environment variables are
//   TRIREME_SHIM_CONTROL  a file with a ShimControl
//   TRIREME_SHIM_DATA     the file whose mapped pages are read slowly
//   TRIREME_SHIM_MEMORY   a file in place of /proc/meminfo
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/blind/shim_control.h"

namespace {

using trireme::tests::ShimControl;

constexpr size_t min_data_bytes = 1024;                   // smaller messages are handshakes
constexpr auto page_life = std::chrono::milliseconds(4);  // until a page must be read again

template <typename Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

using MapFunction = void* (*)(void*, size_t, int, int, int, off_t);
using TimeFunction = int (*)(clockid_t, timespec*);

ShimControl* control() {
  static ShimControl* const mapped = []() -> ShimControl* {
    const char* path = std::getenv("TRIREME_SHIM_CONTROL");
    const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* start = next_of<MapFunction>("mmap")(nullptr, sizeof(ShimControl), PROT_READ | PROT_WRITE,
                                               MAP_SHARED, file, 0);
    ::close(file);
    return start == MAP_FAILED ? nullptr : static_cast<ShimControl*>(start);
  }();
  return mapped;
}

void sleep_for(double seconds) {
  if (seconds <= 0) return;
  timespec time{static_cast<time_t>(seconds), 0};
  time.tv_nsec = static_cast<long>(1e9 * (seconds - static_cast<double>(time.tv_sec)));
  ::nanosleep(&time, nullptr);
}

void delay_send(int file, size_t bytes) {
  if (bytes < min_data_bytes || control() == nullptr || control()->send_seconds <= 0) return;
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return;
  if (domain == AF_INET || domain == AF_INET6) sleep_for(control()->send_seconds);
}

size_t bytes_in(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

// ---- the mapped data: pages are not readable until a fault has taken its time
char* data_begin = nullptr;
size_t data_bytes = 0;

void on_fault(int, siginfo_t* info, void*) {
  char* address = static_cast<char*>(info->si_addr);
  if (data_begin == nullptr || address < data_begin || address >= data_begin + data_bytes) {
    ::signal(SIGSEGV, SIG_DFL);
    return;
  }
  sleep_for(control()->page_seconds);
  constexpr uintptr_t page = 4096;
  const auto start = reinterpret_cast<uintptr_t>(address) / page * page;
  ::mprotect(reinterpret_cast<void*>(start), page, PROT_READ);
}

void watch_data(void* begin, size_t bytes) {
  data_begin = static_cast<char*>(begin);
  data_bytes = bytes;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, nullptr);
  std::thread([] {
    while (true) {
      std::this_thread::sleep_for(page_life);
      if (control()->page_seconds > 0) ::mprotect(data_begin, data_bytes, PROT_NONE);
    }
  }).detach();
}

bool is_data(int file) {
  const char* wanted = std::getenv("TRIREME_SHIM_DATA");
  if (wanted == nullptr || control() == nullptr || file < 0) return false;
  char name[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), name, sizeof name - 1) > 0 && std::strcmp(name, wanted) == 0;
}

}  // namespace

extern "C" {

ssize_t writev(int file, const iovec* parts, int count) {
  delay_send(file, bytes_in(parts, count));
  static const auto next = next_of<ssize_t (*)(int, const iovec*, int)>("writev");
  return next(file, parts, count);
}

ssize_t sendmsg(int file, const msghdr* message, int flags) {
  delay_send(file, bytes_in(message->msg_iov, static_cast<int>(message->msg_iovlen)));
  static const auto next = next_of<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  return next(file, message, flags);
}

ssize_t send(int file, const void* bytes, size_t size, int flags) {
  delay_send(file, size);
  static const auto next = next_of<ssize_t (*)(int, const void*, size_t, int)>("send");
  return next(file, bytes, size, flags);
}

int fsync(int file) {
  if (control() != nullptr) sleep_for(control()->sync_seconds);
  static const auto next = next_of<int (*)(int)>("fsync");
  return next(file);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  static const auto next = next_of<MapFunction>("mmap");
  void* start = next(address, bytes, protection, flags, file, offset);
  if (start != MAP_FAILED && data_begin == nullptr && is_data(file)) watch_data(start, bytes);
  return start;
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}

int clock_gettime(clockid_t clock, timespec* time) {
  static const auto next = next_of<TimeFunction>("clock_gettime");
  const int status = next(clock, time);
  if (status == 0 && clock == CLOCK_REALTIME && control() != nullptr) {
    time->tv_sec += static_cast<time_t>(control()->clock_seconds);
  }
  return status;
}

FILE* fopen(const char* path, const char* mode) {
  static const auto next = next_of<FILE* (*)(const char*, const char*)>("fopen");
  const char* memory = std::getenv("TRIREME_SHIM_MEMORY");
  const bool is_memory = memory != nullptr && std::strcmp(path, "/proc/meminfo") == 0;
  return next(is_memory ? memory : path, mode);
}

FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

}  // extern "C"
