// SPDX-License-Identifier: Apache-2.0
// `trireme calibrate`: the times depend on the machine, so only the file that it writes is tested.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

TEST(CalibrateTest, a_cpu_becomes_a_machine_file_with_residuals) {
  const Scratch s;
  const std::vector<std::string> call = {"calibrate", "--device", "cpu",    "--threads", "1",
                                         "--quick",   "--out",    "m.toml", "--json"};
  const Outcome outcome = trireme(s, call);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const base::Json json = base::Json::parse(outcome.out);
  const base::Json& machine = json.at("machine");
  EXPECT_EQ(machine.at("name"), "m");
  EXPECT_GT(machine.at("processor").at("fp32_tflops"), 0);
  EXPECT_GT(machine.at("processor").at("gigabytes_per_second"), 0);
  EXPECT_EQ(machine.at("processor").at("units"), 1);
  for (const char* kind : {"products", "attention", "streaming"}) {
    EXPECT_GT(json.at("fitted").at(kind).at("rows"), 0) << kind;
    EXPECT_GT(json.at("fitted").at(kind).at("mean_abs_error"), 0) << kind;
  }
  std::ifstream file(s.path() / "m.toml");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("format = 2\n"), std::string::npos);
  EXPECT_NE(text.str().find("[residuals]\ngemm = "), std::string::npos) << text.str();

  const Outcome again = trireme(s, call);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("--overwrite"), std::string::npos) << again.err;
}

TEST(CalibrateTest, an_unknown_machine_is_refused_with_the_names_of_the_known_ones) {
  const Scratch s;
  const Outcome unknown = trireme(s, {"calibrate", "--device", "cpu", "--like", "h20"});
  EXPECT_EQ(unknown.exit_code, 2);
  for (const char* part : {"no machine 'h20'; did you mean 'h200'?", "a100-80gb", "gb200",
                           "machines/README.md", "trireme calibrate"}) {
    EXPECT_NE(unknown.err.find(part), std::string::npos) << unknown.err;
  }
  const Outcome cpu = trireme(s, {"calibrate", "--device", "cpu", "--like", "h200"});
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_NE(cpu.err.find("--like is for --device cuda"), std::string::npos) << cpu.err;
  const Outcome rows = trireme(
      s, {"calibrate", "--like", std::string(TRIREME_SOURCE_DIR) + "/machines/measured/h200.toml"});
  EXPECT_EQ(rows.exit_code, 2);
  EXPECT_NE(rows.err.find("format = 1 contains measurements of trireme bench gpu"),
            std::string::npos)
      << rows.err;
}

}  // namespace
}  // namespace trireme::tests
