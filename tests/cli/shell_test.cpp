// SPDX-License-Identifier: Apache-2.0
// The conventions of a shell: version, help, completion, the manual page, standard input, and
// output on a terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

// Runs a shell command in the folder of the test, with the program as $T.
Outcome shell(const Scratch& s, const std::string& script) {
  return Running(s.path(), {"/bin/bash", "-c", "T=" TRIREME_PROGRAM "\n" + script}).wait();
}

bool has_command(const Scratch& s, const std::string& name) {
  return shell(s, "command -v " + name).exit_code == 0;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- version and names

TEST(ShellTest, version_names_program_commit_and_back_ends) {
  const Scratch s;
  const base::Json info = trireme_json(s, {"version"});
  for (const char* key : {"version", "commit", "build_type", "compiler", "system"}) {
    EXPECT_FALSE(info[key].get<std::string>().empty()) << key;
  }
  const std::string first = "trireme " + info["version"].get<std::string>() + " (commit " +
                            info["commit"].get<std::string>() + ")\n";
  for (const char* word : {"version", "--version", "-V"}) {
    const Outcome outcome = trireme(s, {word});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(outcome.out.starts_with(first)) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, "gloo: ")) << outcome.out;
  }
  EXPECT_EQ(trireme_json(s, {"doctor"})["program"]["commit"], info["commit"]);
}

TEST(ShellTest, a_run_has_a_name_and_its_files_name_the_program) {
  const Scratch s;
  write_tiny(s);
  const base::Json info = trireme_json(s, {"version"});
  const Outcome outcome = trireme(s, {"train", "tiny_run.toml", "--job.name=first try"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "first try in run (")) << outcome.err;
  const base::Json run = base::Json::parse(s.read("run/run.json"));
  EXPECT_EQ(run["job"]["name"], "first try");
  EXPECT_EQ(run["program"]["version"], info["version"]);
  EXPECT_EQ(run["program"]["commit"], info["commit"]);
  std::istringstream lines(s.read("run/metrics.jsonl"));
  std::string first;
  std::getline(lines, first);
  const base::Json start = base::Json::parse(first);
  EXPECT_EQ(start["kind"], "start");
  EXPECT_EQ(start["name"], "first try");
  EXPECT_EQ(start["commit"], info["commit"]);
  EXPECT_TRUE(contains(s.read("run/checkpoint/step-00000004/manifest"),
                       "\"program\":{\"version\":\"" + info["version"].get<std::string>()));
  // The resolved file is a configuration, program and name included.
  EXPECT_EQ(trireme_json(s, {"train", "run/run.json", "--overwrite"})["name"], "first try");
}

// ---- help

TEST(ShellTest, a_call_without_a_verb_prints_the_help) {
  const Scratch s;
  const Outcome bare = trireme(s, {});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_EQ(bare.err, "");
  EXPECT_EQ(bare.out, trireme(s, {"help"}).out);
  EXPECT_EQ(bare.out, trireme(s, {"--help"}).out);
  const Outcome group = trireme(s, {"data"});
  EXPECT_EQ(group.exit_code, 2);
  EXPECT_EQ(group.out, trireme(s, {"help", "data"}).out);
  EXPECT_TRUE(group.out.starts_with("Build, inspect and measure data sets\n")) << group.out;
  EXPECT_EQ(trireme(s, {"help", "data"}).exit_code, 0);
  const Outcome inner = trireme(s, {"data", "tokenizer"});
  EXPECT_EQ(inner.exit_code, 2);
  EXPECT_EQ(inner.out, trireme(s, {"help", "data", "tokenizer"}).out);
  EXPECT_EQ(trireme(s, {"help", "data", "tokenizer", "train"}).out,
            trireme(s, {"data", "tokenizer", "train", "--help"}).out);
  EXPECT_EQ(trireme(s, {"help", "data", "build"}).out, trireme(s, {"data", "build", "--help"}).out);
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"help", "trian"},
                                              {"help", "data", "bild"},
                                              {"help", "data", "tokenizer", "trian"},
                                              {"help", "data", "build", "x"},
                                              {"help", "plan", "x"}}) {
    const Outcome outcome = trireme(s, bad);
    EXPECT_EQ(outcome.exit_code, 2) << bad.back();
    EXPECT_EQ(outcome.out, "");
  }
}

// ---- completion

std::set<std::string> completed(const Scratch& s, const std::string& words, int word) {
  const Outcome outcome = shell(s, "source <($T completion bash)\nCOMP_WORDS=(trireme " + words +
                                       ")\nCOMP_CWORD=" + std::to_string(word) +
                                       "\n_trireme\nprintf '%s\\n' \"${COMPREPLY[@]}\"");
  EXPECT_EQ(outcome.err, "") << words;
  std::set<std::string> found;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) found.insert(line);
  }
  return found;
}

TEST(ShellTest, bash_completes_verbs_options_keys_choices_and_files) {
  using WordSet = std::set<std::string>;
  const Scratch s;
  write_tiny(s);
  EXPECT_EQ(completed(s, "tr", 1), WordSet{"train"});
  EXPECT_EQ(completed(s, "data i", 2), WordSet{"inspect"});
  EXPECT_EQ(completed(s, "help da", 2), WordSet{"data"});
  EXPECT_EQ(completed(s, "help data b", 3), WordSet{"build"});
  EXPECT_EQ(completed(s, "data t", 2), WordSet{"tokenizer"});
  EXPECT_EQ(completed(s, "data tokenizer ''", 3),
            (WordSet{"train", "inspect", "encode", "decode"}));
  EXPECT_EQ(completed(s, "help data tokenizer t", 4), WordSet{"train"});
  EXPECT_EQ(completed(s, "data tokenizer train --patt", 4), WordSet{"--pattern"});
  EXPECT_EQ(completed(s, "data tokenizer train --pattern q", 5), WordSet{"qwen2"});
  EXPECT_EQ(completed(s, "train --resume-", 2), WordSet{"--resume-verify"});
  for (const std::string verb : {"train", "launch"}) {
    EXPECT_EQ(completed(s, verb + " --resume ''", 3), (WordSet{"auto", "good", "never"}));
    EXPECT_EQ(completed(s, verb + " --resume = a", 4), WordSet{"auto"});
  }
  EXPECT_EQ(completed(s, "train --device c", 3), (WordSet{"cpu", "cuda"}));
  EXPECT_EQ(completed(s, "train --train", 2), WordSet{"--training."});
  EXPECT_EQ(completed(s, "train --training.grad", 2), WordSet{"--training.grad_dtype="});
  EXPECT_EQ(completed(s, "train --training.dtype = b", 4), WordSet{"bf16"});
  EXPECT_EQ(completed(s, "train --training.document_mask =", 3), (WordSet{"false", "true"}));
  EXPECT_EQ(completed(s, "train tiny", 2), (WordSet{"tiny.toml", "tiny_run.toml"}));
  EXPECT_EQ(completed(s, "train --json tiny_", 3), WordSet{"tiny_run.toml"});
  EXPECT_EQ(completed(s, "eval --dtype f", 3), (WordSet{"fp32", "fp8-block", "fp8-tensor"}));
  EXPECT_EQ(completed(s, "train --steps t", 3), WordSet{});
  EXPECT_EQ(completed(s, "completion z", 2), WordSet{"zsh"});
  EXPECT_EQ(completed(s, "ckpt reshard --job.n", 3), WordSet{"--job.name="});
  EXPECT_EQ(completed(s, "eval --job.n", 2), WordSet{});
}

TEST(ShellTest, zsh_accepts_its_script) {
  const Scratch s;
  if (!has_command(s, "zsh")) GTEST_SKIP() << "zsh is not installed";
  const Outcome outcome = shell(s, "$T completion zsh > _trireme && zsh -n _trireme");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

// ---- the manual page

TEST(ShellTest, the_manual_page_is_good_roff_and_has_every_verb) {
  const Scratch s;
  const std::string page = trireme(s, {"man"}).out;
  for (const char* part :
       {".SH EXIT STATUS", ".SH ENVIRONMENT", ".SH FILES", "NO_COLOR", ".SS \"data build\"",
        ".SS \"data tokenizer train\"", ".SS \"train\"", "\\fB\\-\\-resume\\fR"}) {
    EXPECT_TRUE(contains(page, part)) << part;
  }
  EXPECT_FALSE(contains(page, TRIREME_SOURCE_DIR));
  EXPECT_TRUE(std::regex_search(page, std::regex(R"(\.TH TRIREME 1 "20\d\d-\d\d-\d\d" )")));
  EXPECT_EQ(page, trireme(s, {"man"}).out);
  if (!has_command(s, "groff")) GTEST_SKIP() << "groff is not installed";
  const Outcome outcome = shell(s, "$T man | groff -man -ww -Tascii");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

// ---- standard input and pipes

TEST(ShellTest, a_configuration_may_come_through_a_pipe) {
  const Scratch s;
  write_tiny(s);
  for (const char* call :
       {"$T train - <tiny_run.toml", "cat tiny_run.toml | $T train /dev/stdin",
        "$T train <(cat tiny_run.toml)", "mkfifo f; cat tiny_run.toml >f & $T train f"}) {
    const Outcome outcome = shell(s, std::string(call) + " --overwrite --json");
    EXPECT_EQ(outcome.exit_code, 0) << call << outcome.err;
    EXPECT_EQ(only_object(outcome.out)["steps"], 4) << call;
  }
  const Outcome bad = shell(s, "(cat tiny_run.toml; echo; echo '[job]') | $T train -");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(contains(bad.err, "<stdin>:")) << bad.err;
  const Outcome resolved = shell(s, "$T train - --overwrite --json <run/run.json");
  EXPECT_EQ(resolved.exit_code, 0) << resolved.err;
  EXPECT_EQ(shell(s, "$T verify - <tiny_run.toml").exit_code, 0);
}

TEST(ShellTest, launch_passes_its_standard_input_to_ranks_and_other_launchers_are_refused) {
  const Scratch s;
  write_tiny(s);
  const Outcome refused = shell(s,
                                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 "
                                "$T train - <tiny_run.toml");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "2 processes")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "trireme launch")) << refused.err;
  EXPECT_FALSE(s.has("run"));
  if (!trireme_json(s, {"version"})["gloo"].get<bool>()) GTEST_SKIP() << "built without Gloo";
  const Outcome outcome = shell(s, "$T launch -n 2 - --json <tiny_run.toml");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(only_object(outcome.out)["result"]["steps"], 4);
}

// ---- without a file

TEST(ShellTest, options_alone_train_a_model) {
  const Scratch s;
  write_tiny(s);
  const base::Json result =
      trireme_json(s, {"train", "--steps", "2", "--data", "text.txt", "--model", "tiny.toml"});
  EXPECT_EQ(result["steps"], 2);
  EXPECT_EQ(result["run_folder"], "runs/tiny");
  EXPECT_EQ(result["name"], "tiny");
  // With a file, options override it, in any order.
  const base::Json more = trireme_json(
      s, {"train", "--steps", "3", "tiny_run.toml", "--data=text.txt", "--job.name=x"});
  EXPECT_EQ(more["steps"], 3);
  EXPECT_EQ(more["run_folder"], "run");
  EXPECT_EQ(trireme(s, {"verify", "--model", "tiny.toml"}).exit_code, 0);
}

TEST(ShellTest, a_warm_up_is_cut_at_the_end_of_the_run) {
  const Scratch s;
  write_tiny(s);
  const Outcome first = trireme(s, {"train", "tiny_run.toml", "--lr_scheduler.warmup_steps=700"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(contains(first.err, "warmup_steps is shortened from 700 to 3")) << first.err;
  EXPECT_EQ(base::Json::parse(s.read("run/run.json"))["lr_scheduler"]["warmup_steps"], 3);
  const Outcome more = trireme(s, {"train", "tiny_run.toml", "--lr_scheduler.warmup_steps=700",
                                   "--steps", "6", "--resume", "auto"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.err, "changed: lr_scheduler.warmup_steps: was 3, is 5")) << more.err;
}

TEST(ShellTest, types_may_be_spelled_as_in_other_programs) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      trireme(s, {"train", "tiny_run.toml", "--training.dtype=bfloat16",
                  "--training.grad_dtype=torch.float32", "--training.dataset_dtype=uint16"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const base::Json training = base::Json::parse(s.read("run/run.json"))["training"];
  EXPECT_EQ(training["dtype"], "bf16");
  EXPECT_EQ(training["grad_dtype"], "f32");
  EXPECT_EQ(training["dataset_dtype"], "u16");
  EXPECT_EQ(trireme(s, {"eval", "--weights", "run/weights/final", "--data", "text.txt", "--dtype",
                        "float32"})
                .exit_code,
            0);
  const Outcome half = trireme(
      s, {"eval", "--weights", "run/weights/final", "--data", "text.txt", "--dtype", "float16"});
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_TRUE(contains(half.err, "{fp32,bf16,fp8-tensor,fp8-block}; float16 is not supported"))
      << half.err;
}

// ---- output on a terminal

// Returns the output of the program on a terminal of 40 columns.
std::string on_terminal(const Scratch& s, const std::string& environment) {
  const Outcome outcome =
      shell(s, environment +
                   " script -qec \"stty cols 40; $T train tiny_run.toml --overwrite\" "
                   "/dev/null </dev/null");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  return outcome.out;
}

TEST(ShellTest, escape_codes_are_written_only_to_terminals_that_support_them) {
  const Scratch s;
  if (!has_command(s, "script")) GTEST_SKIP() << "script is not installed";
  write_tiny(s);
  const std::string live = on_terminal(s, "TERM=xterm");
  EXPECT_TRUE(contains(live, "\x1b[K")) << live;
  EXPECT_TRUE(contains(live, "100%")) << live;  // also for a very short run
  const std::string plain = on_terminal(s, "TERM=xterm NO_COLOR=1");
  EXPECT_FALSE(contains(plain, "\x1b")) << plain;
  EXPECT_TRUE(contains(plain, "100%")) << plain;
  const std::string dumb = on_terminal(s, "TERM=dumb");
  EXPECT_FALSE(contains(dumb, "\x1b")) << dumb;
  EXPECT_FALSE(contains(dumb, "ETA")) << dumb;
}

TEST(ShellTest, a_curve_is_drawn_in_the_characters_of_the_locale) {
  const Scratch s;
  write_tiny(s);
  const std::string call = " $T train tiny_run.toml --overwrite --curve --metrics.log_freq=1";
  const Outcome plain = shell(s, "LC_ALL=C" + call);
  EXPECT_TRUE(contains(plain.out, "training loss")) << plain.out;
  EXPECT_TRUE(std::all_of(plain.out.begin(), plain.out.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  })) << plain.out;
  EXPECT_TRUE(contains(shell(s, "LC_ALL=C.UTF-8" + call).out, "\u2502"));
}

}  // namespace
}  // namespace trireme::tests
