// SPDX-License-Identifier: Apache-2.0
#include "text/normal_forms.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

// Code points that NFC leaves alone and that do not change with what follows from this set: most
// text outside of ASCII consists of them, and needs no call of the library.
bool is_stable_in_nfc(char32_t c) {
  return c < 0x300 || (c >= 0x4E00 && c < 0xA000) || (c >= 0xAC00 && c < 0xD7A4) ||
         (c >= 0x3000 && c < 0x302A) || (c >= 0x3031 && c < 0x3099) ||
         (c >= 0x30A0 && c < 0x3100) || (c >= 0x410 && c < 0x450) || (c >= 0x2010 && c < 0x2028) ||
         (c >= 0xFF01 && c < 0xFF5F);
}

void append_normalized(NormalForm form, std::string_view text, std::string& out) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (size < 0) {
    throw base::OutOfMemory(std::string("normalizing a text: ") + utf8proc_errmsg(size));
  }
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
}

// U+11A7 is the base of the arithmetic for Hangul and no final consonant itself. It composes with
// nothing, but utf8proc up to 2.11 drops it behind a syllable.
constexpr char32_t hangul_final_base = 0x11A7;

// Code points that are unknown to `tokenizers` stand between two calls of the library, and so does
// U+11A7.
void append_known_parts(NormalForm form, std::string_view text, std::string& out) {
  const CharClasses& classes = CharClasses::table();
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text.data() + i);
    if (classes.is(point.value, char_class::unknown_to_normalization) ||
        point.value == hangul_final_base) {
      append_normalized(form, text.substr(begin, i - begin), out);
      out.append(text.substr(i, point.bytes));
      begin = i + point.bytes;
    }
    i += point.bytes;
  }
  append_normalized(form, text.substr(begin), out);
}

}  // namespace

void require_normal_forms() {}

// An ASCII character is changed by no form and composes with nothing before it, so only runs that
// are not ASCII, each with the ASCII character before it, go through the library.
std::string_view normalize(NormalForm form, std::string_view text, std::string& storage) {
  size_t done = 0;  // bytes of `text` that are in `storage`, if it is in use
  bool is_changed = false;
  for (size_t i = ascii_prefix(text); i < text.size(); i += ascii_prefix(text.substr(i))) {
    const size_t begin = i > done ? i - 1 : i;
    bool is_stable = form == NormalForm::nfc;
    while (i < text.size() && static_cast<unsigned char>(text[i]) >= 0x80) {
      const CodePoint point = code_point_at(text.data() + i);
      is_stable = is_stable && is_stable_in_nfc(point.value);
      i += point.bytes;
    }
    if (is_stable) continue;
    if (!is_changed) storage.clear();
    is_changed = true;
    storage.append(text.substr(done, begin - done));
    append_known_parts(form, text.substr(begin, i - begin), storage);
    done = i;
  }
  if (!is_changed) return text;
  storage.append(text.substr(done));
  return storage;
}

}  // namespace trireme::text
