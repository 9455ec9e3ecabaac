// SPDX-License-Identifier: Apache-2.0
// Every command that a document or a help text shows is run by a test, or is a script.
// known_commands.h lists how; a command that is not in it fails the test, and so does an entry that
// no page shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "base/text/json.h"
#include "tests/cli/program.h"
#include "tests/docs/known_commands.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

fs::path source() { return TRIREME_SOURCE_DIR; }

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the command without comment and outer blanks, and the program without its folder.
std::string plain(std::string command) {
  command = command.substr(0, command.find(" #"));
  command.erase(0, command.find_first_not_of(" $"));
  command.erase(command.find_last_not_of(' ') + 1);
  for (const std::string_view folder : {"./build/release/trireme", "build/release/trireme"}) {
    if (command.starts_with(folder)) return "trireme" + command.substr(folder.size());
  }
  return command;
}

bool is_command(const std::string& line) {
  return line.starts_with("trireme ") || line.starts_with("./");
}

// Returns the commands of the ```sh blocks of a page. A backslash at its end continues a line.
std::vector<std::string> commands_of_page(const std::string& page) {
  std::vector<std::string> commands;
  std::istringstream lines(page);
  bool is_shell = false;
  std::string open;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      is_shell = !is_shell && line == "```sh";
      continue;
    }
    if (!is_shell) continue;
    if (line.ends_with('\\')) {
      open += line.substr(0, line.size() - 1);
      continue;
    }
    const std::string command = plain(open + line);
    open.clear();
    if (!command.empty() && !command.starts_with('#')) commands.push_back(command);
  }
  return commands;
}

// Returns the commands that quickstart.sh suggests: the indented lines of its last text.
std::vector<std::string> commands_of_quickstart() {
  std::vector<std::string> commands;
  std::istringstream lines(text_of(source() / "quickstart.sh"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ./")) commands.push_back(plain(line));
  }
  return commands;
}

// Returns the examples of every verb's help.
std::vector<std::string> commands_of_help() {
  const Scratch s;
  std::vector<std::string> commands;
  for (const char* verb : {"init",
                           "convert-config",
                           "train",
                           "launch",
                           "verify",
                           "chaos",
                           "eval",
                           "generate",
                           "data build",
                           "data convert",
                           "data tokenizer train",
                           "data tokenizer inspect",
                           "data tokenizer encode",
                           "data tokenizer decode",
                           "data inspect",
                           "data synth",
                           "data ngram",
                           "data clean",
                           "ckpt list",
                           "ckpt inspect",
                           "ckpt verify",
                           "ckpt mark",
                           "ckpt diff",
                           "ckpt reshard",
                           "ckpt export",
                           "ckpt import",
                           "diagnose",
                           "runs",
                           "watch",
                           "board",
                           "report",
                           "bench train",
                           "bench gpu",
                           "bench attention",
                           "calibrate",
                           "plan",
                           "schedule",
                           "sim",
                           "doctor",
                           "version",
                           "help",
                           "completion",
                           "man"}) {
    std::vector<std::string> args = words_of(verb);
    args.emplace_back("--help");
    std::istringstream lines(trireme(s, args).out);
    bool is_example = false;
    for (std::string line; std::getline(lines, line);) {
      if (is_example && is_command(plain(line))) commands.push_back(plain(line));
      is_example = is_example || line == "Examples:";
    }
  }
  return commands;
}

// Maps each command to the places that show it.
std::map<std::string, std::set<std::string>> shown_commands() {
  std::map<std::string, std::set<std::string>> shown;
  std::vector<fs::path> pages = {source() / "README.md", source() / "machines" / "README.md",
                                 source() / "stacks" / "README.md"};
  for (const auto& entry : fs::directory_iterator(source() / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const fs::path& page : pages) {
    for (const std::string& command : commands_of_page(text_of(page))) {
      shown[command].insert(page.filename().string());
    }
  }
  for (const std::string& command : commands_of_quickstart()) {
    shown[command].insert("quickstart.sh");
  }
  for (const std::string& command : commands_of_help()) shown[command].insert("--help");
  return shown;
}

TEST(DocsTest, every_command_that_is_shown_is_known) {
  const auto shown = shown_commands();
  EXPECT_GE(shown.size(), 5U);
  std::set<std::string> known;
  for (const Known& one : known_commands) known.insert(one.command);
  for (const auto& [command, places] : shown) {
    EXPECT_TRUE(known.contains(command))
        << "'" << command << "', shown in " << *places.begin()
        << ", is not in the table of docs_test.cpp, which lists how each command is run";
  }
  for (const std::string& command : known) {
    EXPECT_TRUE(shown.contains(command)) << "no page shows '" << command << "' any more";
  }
}

TEST(DocsTest, scripts_that_are_shown_can_be_run) {
  for (const Known& known : known_commands) {
    if (known.how != How::script) continue;
    const fs::path script = source() / words_of(known.command)[0];
    EXPECT_EQ(::access(script.c_str(), X_OK), 0) << known.command;
  }
}

// Makes what a newcomer has after the quickstart, in a small form, and the files that examples
// name.
void make_newcomers_folder(const Scratch& s) {
  fs::create_directory_symlink(source() / "configs", s.at("configs"));
  fs::create_directory_symlink(source() / "data", s.at("data"));
  fs::create_directory_symlink(source() / "stacks", s.at("stacks"));
  fs::create_directory_symlink(source() / "tests", s.at("tests"));
  write_tiny(s);
  fs::copy_file(source() / "tests" / "planner" / "runs.jsonl", s.at("runs.jsonl"));
  s.write("book.txt", tiny_text(1000));
  s.write("titan.toml",
          "[model]\nflavor = \"debugmodel\"\n"
          "[training]\nlocal_batch_size = 1\nseq_len = 16\nsteps = 1000\n");
  s.write(
      "pretrain.sh",
      "python pretrain_gpt.py --num-layers 2 --hidden-size 16 --ffn-hidden-size 32 --swiglu \\\n"
      "  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
      "--num-attention-heads 2 \\\n"
      "  --seq-length 16 --max-position-embeddings 16 --vocab-size 256 --lr 1e-3 \\\n"
      "  --micro-batch-size 1 --global-batch-size 2 --train-iters 1000 --data-path book.txt\n");
  s.write("prompts.txt", "In the beginning\nAnd he\n");
  s.write("tasks.jsonl", "{\"ctx\": \"a\", \"endings\": [\"b\", \"cd\"], \"label\": 1}\n");
  s.write("my-moe.toml", std::string(tiny_model) +
                             "[moe]\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 32\n"
                             "renormalize = true\n");
  s.write("mine.txt", "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  for (const char* name : {"a.jsonl", "b.jsonl"}) s.write(name, "{\"text\": \"a line\"}\n");
  s.write("train.bin", std::string(64, '\1'));
  s.write("chats.jsonl", "{\"question\": \"why?\", \"answer\": \"because\"}\n");
  fs::create_directory(s.at("model"));
  fs::copy_file(source() / "tests" / "golden" / "tokenizers" / "gpt2.tokenizer.json",
                s.at("model/tokenizer.json"));
  s.write("runs/kjv-data/kjv.txt", tiny_text(300));
  const std::vector<std::string> commands = {
      "data build runs/kjv-data/kjv.txt --output runs/kjv-data/kjv",
      "data synth --output val --format llmc --documents 1 --tokens 2000",
      "train tiny_run.toml --training.steps=1 --model.vocab_size=4096 --model.max_seq=1024",
  };
  for (const std::string& command : commands) {
    const Outcome outcome = trireme(s, words_of(command));
    ASSERT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
  }
  fs::rename(s.at("run/weights/final"), s.at("DIR"));
}

TEST(DocsTest, cheap_commands_work) {
  const Scratch s;
  make_newcomers_folder(s);
  if (HasFatalFailure()) return;
  bool has_gloo = false;
  const base::Json doctor = trireme_json(s, {"doctor"});  // must outlive the loop
  for (const base::Json& ranks : doctor["ranks"]) {
    has_gloo = has_gloo || (ranks["name"] == "gloo" && ranks["available"] == true);
  }
  std::set<std::string> cheaper;  // lines that were run
  for (const Known& known : known_commands) {
    const bool is_started = known.how == How::started || (known.how == How::ranks && has_gloo);
    if (known.how != How::here && !is_started) continue;
    const std::string line = known.cheaper.empty() ? known.command : known.cheaper;
    if (!known.cheaper.empty() && !cheaper.insert(line).second) continue;
    std::vector<std::string> words = words_of(line);
    ASSERT_EQ(words[0], "trireme");
    ASSERT_EQ(words[1], words_of(known.command)[1]) << "the cheaper form has another verb";
    words.erase(words.begin());
    Running running(s.path(), trireme_command(words));
    if (is_started) {
      EXPECT_TRUE(running.wait_for([&] {
        return running.err().find("step: ") != std::string::npos;
      })) << line
          << "\n"
          << running.err();
      running.signal(SIGTERM);
    }
    const Outcome outcome = running.wait();
    // A build without the pages of the board refuses its verbs and names the package.
    if (outcome.err.find("libjs-dygraphs") != std::string::npos) continue;
    EXPECT_EQ(outcome.exit_code, is_started ? 75 : 0) << line << "\n" << outcome.err;
    const bool is_json = std::find(words.begin(), words.end(), "--json") != words.end();
    if (is_json) {
      EXPECT_EQ(only_object(outcome.out)["ok"], true) << line;
    }
  }
}

// Without a GPU such a command ends before it does anything, with the reason that doctor prints.
TEST(DocsTest, commands_that_need_a_gpu_report_why_there_is_none) {
  const Scratch s;
  make_newcomers_folder(s);
  if (HasFatalFailure()) return;
  const base::Json doctor = trireme_json(s, {"doctor"});
  std::string reason;
  for (const base::Json& device : doctor["devices"]) reason = device.value("reason", reason);
  if (reason.empty()) GTEST_SKIP() << "there is a GPU: scripts/test_gpu.sh runs similar commands";
  for (const Known& known : known_commands) {
    if (known.how != How::gpu) continue;
    std::vector<std::string> words = words_of(known.command);
    words.erase(words.begin());
    const Outcome outcome = trireme(s, words);
    EXPECT_EQ(outcome.exit_code, 2) << known.command << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << known.command << "\n" << outcome.err;
  }
}

// Returns count and error of the line of `output` that ends in `label`: "276 runs 5.4 %".
std::string error_of(const std::string& output, const std::string& label) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with("  " + label)) continue;
    std::istringstream words(line);
    std::string count, word, error;
    words >> count >> word >> error;
    return count + " runs " + error + " %";
  }
  return "no line of " + label;
}

// docs/benchmarks.md states the planner's errors on the published runs of this tree.
TEST(DocsTest, stated_errors_of_the_planner_are_true) {
  const Scratch s;
  const std::string page = text_of(source() / "docs" / "benchmarks.md");
  const auto validate = [&](const char* file) {
    const Outcome outcome = trireme(s, {"plan", "--validate", (source() / "data" / file).string()});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string cluster = validate("published_runs.jsonl");
  EXPECT_EQ(error_of(cluster, "dense, 16 bits"), "276 runs 5.4 %");
  EXPECT_NE(page.find("| dense, 16 bits: 276 | 5.4 % |"), std::string::npos);
  EXPECT_EQ(error_of(cluster, "with experts"), "71 runs 21.8 %");
  EXPECT_NE(page.find("| with experts, force-balanced: 71 | 21.8 % |"), std::string::npos);
  EXPECT_EQ(error_of(cluster, "all"), "417 runs 8.2 %");
  EXPECT_NE(page.find("| all: 417 (MoE, fp8, fp4 too) | 8.2 % |"), std::string::npos);
  EXPECT_NE(cluster.find("memory   2.5 % of 53  all"), std::string::npos);
  EXPECT_NE(page.find("| memory: 53 | 2.5 % |"), std::string::npos);
  EXPECT_EQ(error_of(validate("published_runs_single_node.jsonl"), "all"), "700 runs 8.2 %");
  EXPECT_NE(page.find("| one node (vTrain, 700) | 8.2 % |"), std::string::npos);
}

TEST(DocsTest, commands_of_a_page_are_found) {
  const std::string page =
      "text\n```sh\n./test.sh   # all of it\ntrireme a \\\n  b\n\n# why\nx "
      "y\n```\n```\n./not.sh\n```\n"
      "```sh\n./build/release/trireme doctor\n```\n";
  const std::vector<std::string> wanted = {"./test.sh", "trireme a   b", "x y", "trireme doctor"};
  EXPECT_EQ(commands_of_page(page), wanted);
}

}  // namespace
}  // namespace trireme::tests
