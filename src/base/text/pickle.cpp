// SPDX-License-Identifier: Apache-2.0
#include "base/text/pickle.h"

#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/text/json.h"

namespace trireme::base {
namespace {

// Opcodes of protocol 2, as Python's pickletools names them.
enum PickleOpcode : char {
  op_mark = '(',
  op_stop = '.',
  op_none = 'N',
  op_true = '\x88',
  op_false = '\x89',
  op_int = 'J',      // 4 bytes, little-endian, signed
  op_long = '\x8a',  // the number of bytes, then the bytes, little-endian, two's complement
  op_float = 'G',    // 8 bytes, big-endian
  op_text = 'X',     // 4 bytes of length, little-endian, then UTF-8
  op_list = ']',
  op_append_all = 'e',
  op_dict = '}',
  op_set_all = 'u',
  op_protocol = '\x80',
};

void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_integer(std::string& out, int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    out.push_back(op_int);
    put_little_endian(out, static_cast<uint64_t>(value), 4);
    return;
  }
  out.push_back(op_long);
  out.push_back(8);
  put_little_endian(out, static_cast<uint64_t>(value), 8);
}

void put_float(std::string& out, double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  out.push_back(op_float);
  for (int i = 7; i >= 0; --i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

void put_text(std::string& out, const std::string& text) {
  TRIREME_CHECK(text.size() <= std::numeric_limits<uint32_t>::max(),
                "a text of {} bytes in a pickle", text.size());
  out.push_back(op_text);
  put_little_endian(out, text.size(), 4);
  out += text;
}

void put_value(std::string& out, const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      out += {op_dict, op_mark};
      for (const auto& [key, element] : value.items()) {
        put_text(out, key);
        put_value(out, element);
      }
      out.push_back(op_set_all);
      return;
    case Json::value_t::array:
      out += {op_list, op_mark};
      for (const Json& element : value) put_value(out, element);
      out.push_back(op_append_all);
      return;
    case Json::value_t::string:
      return put_text(out, value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return out.push_back(value.get<bool>() ? op_true : op_false);
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return put_integer(out, value.get<int64_t>());
    case Json::value_t::number_float:
      return put_float(out, value.get<double>());
    default:
      return out.push_back(op_none);
  }
}

}  // namespace

std::string pickle(const Json& value) {
  std::string out = {op_protocol, 2};
  put_value(out, value);
  out.push_back(op_stop);
  return out;
}

}  // namespace trireme::base
