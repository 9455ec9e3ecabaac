// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/bad/bad_input.h"

#include <algorithm>
#include <cstring>

#include "base/text/json.h"

namespace trireme::tests {

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.command; }

Change with(std::string from, std::string to, std::string file) {
  return [=](const Scratch& s) { s.write(file, replaced(s.read(file), from, to)); };
}

Change with_file(std::string name, std::string bytes) {
  return [=](const Scratch& s) { s.write(name, bytes); };
}

void with_weights(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--training.steps=1"}).exit_code, 0);
  std::filesystem::rename(s.at("run/weights/final"), s.at("w"));
  std::filesystem::remove_all(s.at("run"));
}

Change with_weights_then(Change change) {
  return [=](const Scratch& s) {
    with_weights(s);
    change(s);
  };
}

void with_megatron(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"data", "build", "text.txt", "--output", "d"}).exit_code, 0);
}

void with_large_ids(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"data", "synth", "--output", "d", "--vocab", "300", "--documents", "3",
                        "--tokens", "200"})
                .exit_code,
            0);
}

std::string llmc_file(int32_t magic, int32_t count, size_t token_bytes) {
  std::string bytes(1024 + token_bytes, '\0');
  const int32_t header[3] = {magic, 1, count};
  std::memcpy(bytes.data(), header, sizeof(header));
  return bytes;
}

namespace {

bool is_allowed(const std::string& name, const BadCase& bad) {
  for (const std::string& allowed : bad.may_leave) {
    if (name == allowed ||
        (allowed.ends_with('*') && name.starts_with(allowed.substr(0, allowed.size() - 1)))) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_P(BadInputTest, is_refused_in_one_message_and_leaves_nothing) {
  const BadCase& bad = GetParam();
  for (const bool json : {false, true}) {
    const Scratch scratch;
    write_tiny(scratch);
    if (bad.prepare) bad.prepare(scratch);
    const Tree before = scratch.tree();
    std::vector<std::string> args = words_of(bad.command);
    if (json) {
      // Before the other options, because the last one may lack its value.
      const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
      args.insert(std::find_if(args.begin(), args.end(), is_option), "--json");
    }
    const Outcome outcome = trireme(scratch, args, {.max_file_bytes = bad.max_file_bytes});

    EXPECT_EQ(outcome.exit_code, bad.exit_code) << outcome.err;
    std::string message = outcome.err;
    if (json) {
      const base::Json object = only_object(outcome.out);
      EXPECT_EQ(object.value("ok", true), false) << outcome.out;
      message = object.value("error", "");
    } else {
      EXPECT_EQ(outcome.out, "");
    }
    if (bad.command.starts_with("data ")) {
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
    for (const std::string& part : bad.wanted) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "wanted: " << part << "\nfound: " << message;
    }
    for (const auto& [name, bytes] : scratch.tree()) {
      const auto known = before.find(name);
      if (known == before.end()) {
        EXPECT_TRUE(is_allowed(name, bad)) << name << " was left";
        EXPECT_EQ(name.find(".tmp"), std::string::npos) << name << " is half a file";
      } else {
        EXPECT_EQ(known->second, bytes) << name << " was changed";
      }
    }
    for (const auto& [name, bytes] : before) EXPECT_TRUE(scratch.has(name)) << name << " is gone";
  }
}

}  // namespace trireme::tests
