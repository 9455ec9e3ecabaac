// SPDX-License-Identifier: Apache-2.0
#include "plan/import/command_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::plan {
namespace {

// Returns the flags as text, such as "--a=1 2; --b=".
std::string shown(std::string_view text) {
  std::string result;
  for (const Flag& flag : flags_of(text)) {
    result +=
        fmt::format("{}{}={}", result.empty() ? "" : "; ", flag.name, fmt::join(flag.values, " "));
  }
  return result;
}

TEST(CommandWords, flags_take_the_words_after_them) {
  EXPECT_EQ(shown("--a 1   --b\t--c=x --d 1 2"), "--a=1; --b=; --c=x; --d=1 2");
  EXPECT_EQ(shown("--a \\\n 1 \\\r\n --b 'two words' --c \"3\""), "--a=1; --b=two words; --c=3");
  EXPECT_EQ(shown("--low -1 --small -.5 --next"), "--low=-1; --small=-.5; --next=");
  EXPECT_EQ(shown("python -m torch.run --nproc_per_node 8 x.py -v"), "--nproc-per-node=8 x.py");
  EXPECT_EQ(shown("run --a 1; other && --b 2 | tee log"), "--a=1; --b=2");
  EXPECT_EQ(shown("\"--a 1 --b 2\""), "--a=1; --b=2");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("no flags \\"), "");
}

TEST(CommandWords, comments_are_skipped) {
  EXPECT_EQ(shown("--a 1 # --b 2\n--c 3\n  #--d 4 \\\n--e 5#6"), "--a=1; --c=3; --e=5#6");
}

TEST(CommandWords, variables_that_the_text_defines_are_expanded) {
  EXPECT_EQ(shown("TP=8\nexport PP=${PIPE:-4}\nN=${X:-\"2\"}\n--t $TP --p ${PP} --n \"$N\" --u $1"),
            "--t=8; --p=4; --n=2; --u=$1");
  EXPECT_EQ(shown("--w $(($A * 2)) --x $(nproc --all) --y '$TP'"),
            "--w=$(($A * 2)); --x=$(nproc --all); --y=$TP");
}

TEST(CommandWords, flags_in_arrays_and_strings_count_once) {
  EXPECT_EQ(shown("ARGS=(\n  --a 1 # one\n  --b\n)\nMORE=(--c 3)\nMORE+=(--d 4)\n"
                  "torchrun ${ARGS[@]} \"${MORE[@]}\" x.py"),
            "--a=1; --b=; --c=3; --d=4");
  EXPECT_EQ(shown("OPTIONS=\" \\\n --a 1 \\\n --b 2 \"\nrun x.py $OPTIONS"), "--a=1; --b=2");
  EXPECT_EQ(shown("--freq ([0]*3+[1]*5) --e 1"), "--freq=([0]*3+[1]*5); --e=1");
}

TEST(CommandWords, unclosed_quotes_and_huge_values_are_rejected) {
  EXPECT_THROW(flags_of("--a \"1 --b 2"), base::ConfigError);
  std::string doubling = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  EXPECT_THROW(flags_of(doubling), base::ConfigError);
  std::string nested;
  for (int i = 0; i < 20'000; ++i) nested += "A=";
  EXPECT_NO_THROW(flags_of(nested + "--x"));
}

}  // namespace
}  // namespace trireme::plan
