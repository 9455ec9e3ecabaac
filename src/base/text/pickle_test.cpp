// SPDX-License-Identifier: Apache-2.0
#include "base/text/pickle.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/text/json.h"

namespace trireme::base {
namespace {

using namespace std::string_view_literals;

// The bytes were loaded by Python 3: {'a': [1, -2, None, True, False], 'b': 1.5, 'c': {}, 'd': []}
TEST(Pickle, writes_what_python_loads) {
  const Json value = Json::parse(R"({"a":[1,-2,null,true,false],"b":1.5,"c":{},"d":[]})");
  EXPECT_EQ(pickle(value),
            "\x80\x02}(X\x01\0\0\0a](J\x01\0\0\0J\xfe\xff\xff\xffN\x88\x89"
            "eX\x01\0\0\0bG\x3f\xf8\0\0\0\0\0\0X\x01\0\0\0c}(uX\x01\0\0\0d](eu."sv);
}

// 2^31, -2^31 - 1 and a time in nanoseconds since 1970 need more than four bytes.
TEST(Pickle, writes_large_integers_as_long) {
  EXPECT_EQ(pickle(2147483647), "\x80\x02J\xff\xff\xff\x7f."sv);
  EXPECT_EQ(pickle(2147483648), "\x80\x02\x8a\x08\0\0\0\x80\0\0\0\0."sv);
  EXPECT_EQ(pickle(-2147483649), "\x80\x02\x8a\x08\xff\xff\xff\x7f\xff\xff\xff\xff."sv);
}

TEST(Pickle, writes_text_as_utf8) {
  EXPECT_EQ(pickle("\xc3\xa9"), "\x80\x02X\x02\0\0\0\xc3\xa9."sv);
}

}  // namespace
}  // namespace trireme::base
