// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/utf8.h"

#include <cstring>

namespace trireme::text {

void append_utf8(std::string& text, char32_t code_point) {
  const auto c = static_cast<uint32_t>(code_point);
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

bool is_valid_utf8(std::string_view text) {
  const auto in = [&](size_t i, unsigned low, unsigned high) {
    return i < text.size() && static_cast<unsigned char>(text[i]) >= low &&
           static_cast<unsigned char>(text[i]) <= high;
  };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      i += ascii_prefix(text.substr(i));
      continue;
    }
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (size == 0 || !in(i + 1, low, high)) return false;
    for (size_t k = 2; k < size; ++k) {
      if (!in(i + k, 0x80, 0xBF)) return false;
    }
    i += size;
  }
  return true;
}

std::string with_replacements(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, text);
  stream.finish(text);
  return text;
}

void Utf8Stream::push(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    if (pending_size_ == 0) {
      const size_t ascii = ascii_prefix(bytes);
      text.append(bytes.substr(0, ascii));
      bytes.remove_prefix(ascii);
      if (bytes.empty()) return;
    }
    push_byte(static_cast<unsigned char>(bytes.front()), text);
    bytes.remove_prefix(1);
  }
}

void Utf8Stream::finish(std::string& text) {
  if (pending_size_ > 0) text += replacement_character;
  pending_size_ = 0;
}

void Utf8Stream::push_byte(unsigned char byte, std::string& text) {
  if (pending_size_ > 0) {
    if (byte >= low_ && byte <= high_) {
      pending_[static_cast<size_t>(pending_size_++)] = static_cast<char>(byte);
      low_ = 0x80;
      high_ = 0xBF;
      if (--needed_ == 0) {
        text.append(pending_.data(), static_cast<size_t>(pending_size_));
        pending_size_ = 0;
      }
      return;
    }
    finish(text);  // and the byte begins anew
  }
  if (byte < 0x80) {
    text += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    text += replacement_character;
    return;
  }
  pending_[0] = static_cast<char>(byte);
  pending_size_ = 1;
  needed_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
}

}  // namespace trireme::text
