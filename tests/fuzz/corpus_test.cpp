// SPDX-License-Identifier: Apache-2.0
// Every file of corpus/ goes through its reader: small good files, malformed ones, and findings of
// the fuzzer. A file whose name begins with good must be accepted, every other one refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "readers.h"
#include "text/regex.h"

namespace trireme::fuzz {
namespace {

struct Reader {
  const char* name;  // of the folder in corpus/
  bool (*read)(Input);
};

void PrintTo(const Reader& reader, std::ostream* out) { *out << reader.name; }

class FuzzCorpus : public testing::TestWithParam<Reader> {};

TEST_P(FuzzCorpus, files_are_taken_or_refused) {
  if (std::string(GetParam().name) == "tokenizer" && !text::has_regex()) {
    GTEST_SKIP() << "this build is without PCRE2, which the good files need";
  }
  std::vector<std::filesystem::path> paths;
  const auto folder =
      std::filesystem::path(TRIREME_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam().name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    const std::string name = path.filename().string();
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::vector<char> bytes(text.begin(), text.end());
    std::cout << name << std::endl;  // the last line names the file if the reader ends the process
    EXPECT_EQ(GetParam().read(std::as_bytes(std::span(bytes))), name.starts_with("good")) << name;
  }
  EXPECT_GT(paths.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(
    Readers, FuzzCorpus,
    testing::Values(Reader{"config", read_config}, Reader{"model", read_model},
                    Reader{"megatron", read_megatron}, Reader{"llmc", read_llmc},
                    Reader{"safetensors", read_safetensors}, Reader{"checkpoint", read_checkpoint},
                    Reader{"lines", read_lines}, Reader{"json_line", read_json_line},
                    Reader{"tar", read_tar}, Reader{"mds", read_mds},
                    Reader{"packing", read_packing}, Reader{"tokenizer", read_tokenizer}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace trireme::fuzz
