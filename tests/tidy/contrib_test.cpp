// SPDX-License-Identifier: Apache-2.0
// Dashboards and alerts in contrib/ use metrics that the board has.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace trireme::tidy {
namespace {

const std::filesystem::path contrib_root = TRIREME_SOURCE_DIR;

std::string contrib_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Contrib, metrics_of_dashboards_and_alerts_exist) {
  const std::string families = contrib_text(contrib_root / "src/board/metrics/families.cpp");
  for (const char* file :
       {"contrib/grafana/trireme.json", "contrib/prometheus/trireme_alerts.yml"}) {
    const std::string text = contrib_text(contrib_root / file);
    // The names of files, dashboards and rules have no brace, blank or bracket behind them.
    const std::regex metric(R"((trireme_[a-z_]+?)(_total)?(?=[{\[\s)]))");
    int count = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), metric), end; at != end; ++at, ++count) {
      EXPECT_NE(families.find("\"" + (*at)[1].str() + "\""), std::string::npos)
          << file << " uses " << (*at)[1] << ", which is no family of src/board/metrics";
    }
    EXPECT_GT(count, 10) << file;
  }
}

}  // namespace
}  // namespace trireme::tidy
