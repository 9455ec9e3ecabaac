// SPDX-License-Identifier: Apache-2.0
// What newcomers stumble over: a wrong name, a file from elsewhere, a run that is continued with a
// change. Every test is one of these, with the message or the result that helps.
#include <algorithm>
#include <cmath>

#include "base/text/json.h"
#include "tests/cli/front_door/front_door.h"

namespace trireme::tests {
namespace {

using base::Json;

// Writes a data set of byte pairs with a vocabulary of 260, and its tokenizer.
void with_tokens(const Scratch& s, const std::string& name, const std::string& text) {
  s.write(name + ".src.txt", text);
  run_line(s, "data tokenizer train " + name + ".src.txt --output " + name + ".tok --vocab 260");
}

TEST(FrontDoor, a_file_that_does_not_exist_is_not_tried_again) {
  const Scratch s;
  write_tiny(s);
  expect_refused(s, "train gone.toml", {"gone.toml: no such file"});
  expect_refused(s, "launch -n 2 gone.toml", {"gone.toml: no such file"});
  expect_refused(s, "train tiny_run.toml --training.dataset_path=gone", {"gone: does not exist"});
  expect_refused(s, "data inspect gone", {"gone: does not exist"});
}

TEST(FrontDoor, a_token_outside_the_vocabulary_names_the_key_and_the_value) {
  const Scratch s;
  write_tiny(s);
  run_line(s, "data synth --output big --documents 4 --tokens 500 --vocab 700");
  const Outcome refused = run_line(s, "train tiny_run.toml --training.dataset_path=big", 1);
  EXPECT_TRUE(has(refused.err, "the model's vocabulary is 256")) << refused.err;
  EXPECT_TRUE(has(refused.err, "set --model.vocab_size=")) << refused.err;
  const size_t at = refused.err.find("--model.vocab_size=");
  const std::string key = refused.err.substr(at, refused.err.find(',', at) - at);
  run_line(s, "train tiny_run.toml --training.dataset_path=big " + key);
}

TEST(FrontDoor, weights_refuse_the_tokenizer_of_another_model) {
  const Scratch s;
  write_tiny(s);
  with_tokens(s, "a", tiny_text(40));
  with_tokens(s, "b", "zebras zoom zigzag, zebras zoom again and again\n");
  run_line(s, "data build a.src.txt --output a --tokenizer a.tok");
  run_line(s, "train tiny_run.toml --training.dataset_path=a --model.vocab_size=260");
  run_line(s, "generate run --prompt bottles --tokens 3 --tokenizer a.tok");
  expect_refused(s, "generate run --prompt bottles --tokens 3 --tokenizer b.tok",
                 {"--tokenizer b.tok: its fingerprint is", "the model was trained with"});
}

TEST(FrontDoor, a_byte_order_mark_is_no_text_and_utf_16_is_named) {
  const Scratch s;
  s.write("plain.txt", "abcd");
  s.write("marked.txt",
          "\xEF\xBB\xBF"
          "abcd");
  s.write("wide.txt", std::string("\xFF\xFE"
                                  "a\0b\0",
                                  6));
  EXPECT_EQ(trireme_json(s, {"data", "inspect", "marked.txt"}).at("tokens"),
            trireme_json(s, {"data", "inspect", "plain.txt"}).at("tokens"));
  const Outcome refused = run_line(s, "data inspect wide.txt", 1);
  EXPECT_TRUE(has(refused.err, "iconv -f UTF-16 -t UTF-8")) << refused.err;
}

TEST(FrontDoor, the_place_to_write_to_has_one_name_and_its_aliases) {
  const Scratch s;
  write_tiny(s);
  run_line(s, "train tiny_run.toml");
  run_line(s, "data build text.txt --into=text");
  for (const char* name : {"--out", "--output", "--into"}) {
    const std::string to = std::string(" ") + name + " ";
    const std::string tag = std::string(name).substr(2);
    run_line(s, "ckpt export run" + to + tag + "_hf");
    run_line(s, "ckpt import " + tag + "_hf" + to + tag + "_in");
    run_line(s, "data convert text --format llmc" + to + tag + "_data");
    EXPECT_TRUE(s.has(tag + "_hf/config.json") && s.has(tag + "_data.bin")) << name;
  }
  run_line(s, "ckpt reshard run --into=cut --parallelism.tensor_parallel_degree=2");
  const std::string help = run_line(s, "ckpt import --help").out;
  EXPECT_TRUE(has(help, "--out ")) << help;
  EXPECT_FALSE(has(help, "--into")) << help;
}

TEST(FrontDoor, a_run_continues_by_its_run_json_from_another_folder) {
  const Scratch s;
  write_tiny(s);
  s.write("elsewhere/empty", "");
  run_line(s, "train tiny_run.toml");
  Running away(s.at("elsewhere"), trireme_command({"train", "../run/run.json", "--resume", "auto",
                                                   "--training.steps=6"}));
  const Outcome outcome = away.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.err + outcome.out, "step 6")) << outcome.err << outcome.out;
  EXPECT_FALSE(s.has("elsewhere/run"));
}

TEST(FrontDoor, numbers_have_suffixes_and_machines_any_case) {
  const Scratch s;
  write_tiny(s);
  const Json plan = trireme_json(
      s, words_of("plan --model gpt2-124m --machine H100 --gpus 1 --tokens 1B --batch-tokens 64k"));
  EXPECT_EQ(plan.at("machine"), "h100");
  run_line(s, "train tiny_run.toml --training.steps=0.002k");
  expect_refused(s, "train tiny_run.toml --training.steps=2x", {"2x", "expected an integer"});
}

TEST(FrontDoor, a_refused_resume_names_the_one_value_that_differs) {
  const Scratch s;
  write_tiny(s);
  s.write("phases.toml", std::string(tiny_config) +
                             "[[phase]]\nfrom_step = 2\nseq_len = 8\n"
                             "[[phase]]\nfrom_step = 3\nseq_len = 16\n");
  run_line(s, "train phases.toml");
  s.write("phases.toml", replaced(s.read("phases.toml"), "from_step = 3", "from_step = 4"));
  const Outcome refused =
      run_line(s, "train phases.toml --training.steps=6 --resume auto", wrong_call);
  EXPECT_TRUE(has(refused.err, "phases[2].first_step: was 2, is 3\n")) << refused.err;
  EXPECT_FALSE(has(refused.err, "[{")) << refused.err;
}

TEST(FrontDoor, a_file_of_torchtitan_names_its_importer) {
  const Scratch s;
  write_tiny(s);
  s.write("titan.toml",
          "[job]\ndump_folder = \"./outputs\"\n[profiling]\nenable_profiling = false\n"
          "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\ndataset = \"c4\"\n");
  expect_refused(s, "train titan.toml",
                 {"titan.toml:4: profiling.enable_profiling is a key of TorchTitan",
                  "--from-torchtitan titan.toml", "trireme convert-config"});
  const Outcome refused = run_line(s, "train titan.toml", wrong_call);
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
}

TEST(FrontDoor, sim_takes_the_speed_of_a_configuration_from_its_machine) {
  const Scratch s;
  write_tiny(s);
  const Outcome sim =
      run_line(s, "sim tiny_run.toml --machine h100 --parallelism.pipeline_parallel_degree=2");
  EXPECT_TRUE(has(sim.out, "h100")) << sim.out;
}

TEST(FrontDoor, a_tokenizer_with_a_well_known_name_comes_with_its_address) {
  const Scratch s;
  write_tiny(s);
  for (const char* name : {"gpt2", "llama3", "cl100k_base"}) {
    expect_refused(s, std::string("data build text.txt --output d --tokenizer ") + name,
                   {"the file does not exist", "https://huggingface.co/", "tokenizer.json"});
  }
  expect_refused(s, "data build text.txt --output d --tokenizer mine", {"the file does not exist"});
}

TEST(FrontDoor, eval_of_a_run_over_bytes_has_bits_per_byte) {
  const Scratch s;
  write_tiny(s);
  run_line(s, "train tiny_run.toml --validation.enable --validation.samples=2");
  const Json eval = trireme_json(s, {"eval", "run", "--limit", "2"});
  EXPECT_NEAR(eval.at("bits_per_byte").get<double>(), eval.at("loss").get<double>() / std::log(2.0),
              1e-9);
}

TEST(FrontDoor, schedules_have_the_names_of_torchtitan_and_one_spelling) {
  const Scratch s;
  write_tiny(s);
  const std::string two_ranks =
      "train tiny_run.toml --parallelism.pipeline_parallel_degree=2 --training.global_batch_size=8 "
      "--parallelism.pipeline_parallel_schedule=";
  run_line(s, two_ranks + "ZBVZeroBubble --training.steps=1");
  const Outcome resumed = run_line(s, two_ranks + "zb-v --training.steps=2 --resume auto");
  EXPECT_FALSE(has(resumed.err + resumed.out, "pipeline_parallel_schedule")) << resumed.err;
}

TEST(FrontDoor, names_are_suggested_in_their_present_form) {
  const Scratch s;
  write_tiny(s);
  const Outcome refused = run_line(s, "train tiny_run.toml --model.name=llama3", wrong_call);
  EXPECT_TRUE(has(refused.err, "did you mean 'llama3")) << refused.err;
  EXPECT_FALSE(has(refused.err, "'llama-3b'")) << refused.err;
  EXPECT_FALSE(has(run_line(s, "plan --help").out, "llama-1b"));
  expect_refused(s, "train --modle tiny.toml --data text.txt",
                 {"--modle", "did you mean --model?"});
}

TEST(FrontDoor, an_own_checkpoint_that_is_moved_aside_is_not_called_another_runs) {
  const Scratch s;
  write_tiny(s);
  run_line(s, "train tiny_run.toml --checkpoint.interval=2");
  const Outcome resumed = run_line(s, "train tiny_run.toml --resume 2");
  EXPECT_FALSE(has(resumed.err + resumed.out, "of another run")) << resumed.err;
}

TEST(FrontDoor, data_that_was_built_opens_by_its_prefix_in_every_format) {
  const Scratch s;
  write_tiny(s);
  for (const char* format : {"megatron", "llmc", "nanogpt"}) {
    const std::string name = std::string("new/d_") + format;
    run_line(s, "data build text.txt --output " + name + " --format " + format);
    const Json report = trireme_json(s, {"data", "inspect", name});
    // The last one ends the document.
    EXPECT_EQ(report.at("tokens"), std::ssize(tiny_text(100)) + 1) << format;
  }
}

}  // namespace
}  // namespace trireme::tests
