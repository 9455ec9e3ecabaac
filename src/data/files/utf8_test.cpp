// SPDX-License-Identifier: Apache-2.0
#include "data/files/utf8.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace trireme::data {
namespace {

TEST(Utf8Test, well_formed_sequences_pass_and_others_are_found) {
  const auto bad = [](const std::string& text) {
    return first_invalid_utf8(std::as_bytes(std::span(text)));
  };
  for (const char* good :
       {"", "plain ascii text", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(bad(good)) << good;
    EXPECT_FALSE(bad("12345678" + std::string(good) + "12345678")) << good;
  }
  for (const char* wrong : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3",
                            "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xff"}) {
    EXPECT_EQ(bad(wrong), 0U) << wrong;
    EXPECT_EQ(bad("123456789" + std::string(wrong) + "123456789"), 9U) << wrong;
  }
}

}  // namespace
}  // namespace trireme::data
