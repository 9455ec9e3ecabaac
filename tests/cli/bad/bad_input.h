// SPDX-License-Identifier: Apache-2.0
// Mistakes of users: each case ends with one clear message on stderr and an exit code other than 0,
// and changes no file. With --json, stdout is one object with the same message. The cases are
// tables, in bad_*_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace trireme::tests {

constexpr int failed = 1, wrong_call = 2;  // exit codes

using Change = std::function<void(const Scratch&)>;

struct BadCase {
  const char* name;
  std::string command;  // after `trireme`
  int exit_code;
  std::vector<std::string> wanted;  // parts of the message
  Change prepare = {};              // after write_tiny()
  int64_t max_file_bytes = 0;
  // Files that the run may have written before it failed, all complete.
  std::vector<std::string> may_leave = {};
};
void PrintTo(const BadCase& bad, std::ostream* out);

class BadInputTest : public testing::TestWithParam<BadCase> {};

inline const std::string train_tiny = "train tiny_run.toml ";
// Files of such a run once it trains.
inline const std::vector<std::string> started_run = {
    "run/", "run/run.json", "run/plan.json", "run/metrics.jsonl", "run/tb/*", "run/weights/"};

// Changes the configuration, or another file, of write_tiny().
Change with(std::string from, std::string to, std::string file = "tiny_run.toml");
Change with_file(std::string name, std::string bytes);
// Writes trained weights to w/.
void with_weights(const Scratch& s);
Change with_weights_then(Change change);
// Writes d.bin and d.idx from the text.
void with_megatron(const Scratch& s);
void with_large_ids(const Scratch& s);
// Returns an llm.c file of u16 tokens whose header has `count` tokens.
std::string llmc_file(int32_t magic, int32_t count, size_t token_bytes);
constexpr int32_t llmc_magic = 20240520;

}  // namespace trireme::tests
