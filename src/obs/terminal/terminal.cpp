// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace trireme::obs {

namespace {

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }

}  // namespace

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

int terminal_width(int descriptor, int fallback) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return fallback;
  return size.ws_col;
}

void write_quietly(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int columns_of(std::string_view text) {
  int columns = 0;
  for (const char byte : text) columns += starts_character(byte) ? 1 : 0;
  return columns;
}

std::string_view cut_to_columns(std::string_view text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && ++seen > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace trireme::obs
