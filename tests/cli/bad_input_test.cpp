// SPDX-License-Identifier: Apache-2.0
// What a user gets wrong: each case ends with one clear message on stderr and an exit code that is
// not 0, and leaves every file as it was. With --json, stdout is one object that says the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <ostream>

#include "base/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

constexpr int failed = 1, wrong_call = 2;  // exit codes

struct BadCase {
  const char* name;
  std::string command;  // after `trireme`
  int exit_code;
  std::vector<std::string> wanted;                   // parts of the message
  std::function<void(const Scratch&)> prepare = {};  // after write_tiny()
  int64_t most_file_bytes = 0;
  // Files that the run may have written before it failed, all whole.
  std::vector<std::string> may_leave = {};
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.command; }

class BadInputTest : public testing::TestWithParam<BadCase> {};

bool is_allowed(const std::string& name, const BadCase& bad) {
  for (const std::string& allowed : bad.may_leave) {
    if (name == allowed ||
        (allowed.ends_with('*') && name.starts_with(allowed.substr(0, allowed.size() - 1)))) {
      return true;
    }
  }
  return false;
}

TEST_P(BadInputTest, is_refused_in_one_message_and_leaves_nothing) {
  const BadCase& bad = GetParam();
  for (const bool json : {false, true}) {
    const Scratch scratch;
    write_tiny(scratch);
    if (bad.prepare) bad.prepare(scratch);
    const Tree before = scratch.tree();
    std::vector<std::string> args = words_of(bad.command);
    if (json) {
      // Before the other options: the last one may lack its value.
      const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
      args.insert(std::find_if(args.begin(), args.end(), is_option), "--json");
    }
    const Outcome outcome = trireme(scratch, args, {.most_file_bytes = bad.most_file_bytes});

    EXPECT_EQ(outcome.exit_code, bad.exit_code) << outcome.err;
    std::string said = outcome.err;
    if (json) {
      const base::Json object = only_object(outcome.out);
      EXPECT_EQ(object.value("ok", true), false) << outcome.out;
      said = object.value("error", "");
    } else {
      EXPECT_EQ(outcome.out, "");
    }
    for (const std::string& part : bad.wanted) {
      EXPECT_NE(said.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << said;
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

// Changes the configuration, or another file, of write_tiny().
std::function<void(const Scratch&)> with(std::string from, std::string to,
                                         std::string file = "tiny_run.toml") {
  return [=](const Scratch& s) { s.write(file, replaced(s.read(file), from, to)); };
}

std::function<void(const Scratch&)> with_file(std::string name, std::string bytes) {
  return [=](const Scratch& s) { s.write(name, bytes); };
}

// Trained weights in w/.
void with_weights(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--training.steps=1"}).exit_code, 0);
  fs::rename(s.at("run/weights/final"), s.at("w"));
  fs::remove_all(s.at("run"));
}

std::function<void(const Scratch&)> with_weights_then(std::function<void(const Scratch&)> change) {
  return [=](const Scratch& s) {
    with_weights(s);
    change(s);
  };
}

// d.bin and d.idx, made of the text.
void with_megatron(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"data", "build", "text.txt", "--output", "d"}).exit_code, 0);
}

void with_large_ids(const Scratch& s) {
  ASSERT_EQ(trireme(s, {"data", "synth", "--output", "d", "--vocab", "300", "--documents", "3",
                        "--tokens", "200"})
                .exit_code,
            0);
}

// An llm.c file of u16 tokens that says it has `count` of them.
std::string llmc_file(int32_t magic, int32_t count, size_t token_bytes) {
  std::string bytes(1024 + token_bytes, '\0');
  const int32_t header[3] = {magic, 1, count};
  std::memcpy(bytes.data(), header, sizeof(header));
  return bytes;
}
constexpr int32_t llmc_magic = 20240520;

const std::string run = "train tiny_run.toml ";
const std::vector<std::string> started_run = {
    "run/", "run/run.json", "run/plan.json", "run/metrics.jsonl", "run/tb/*", "run/weights/"};

const std::vector<BadCase> configuration = {
    {"unknown_key",
     run,
     wrong_call,
     {"tiny_run.toml:11", "training.stepz", "did you mean 'steps'?"},
     with("steps = 4", "stepz = 4")},
    {"unknown_section",
     run,
     wrong_call,
     {"tiny_run.toml:12", "[metric]", "did you mean 'metrics'?", "Sections are job"},
     with("[metrics]", "[metric]")},
    {"wrong_type",
     run,
     wrong_call,
     {"tiny_run.toml:11", "training.steps", "the string \"four\"", "expected an integer"},
     with("steps = 4", "steps = \"four\"")},
    {"value_out_of_range",
     run,
     wrong_call,
     {"tiny_run.toml:6", "optimizer.lr = -1", "above 0"},
     with("lr = 1e-2", "lr = -1")},
    {"every_problem_at_once",
     run + "--training.dtype=fp17",
     wrong_call,
     {"2 problems", "training.stepz", "training.dtype"},
     with("steps = 4", "stepz = 4")},
    {"heads_that_do_not_divide",
     run,
     wrong_call,
     {"tiny.toml:4", "heads = 3", "must divide hidden = 16"},
     with("heads = 2", "heads = 3", "tiny.toml")},
    {"model_key_missing",
     run,
     wrong_call,
     {"tiny.toml", "ffn", "required"},
     with("ffn = 32\n", "", "tiny.toml")},
    {"sequence_longer_than_the_model",
     run + "--training.seq_len=64",
     wrong_call,
     {"training.seq_len = 64", "max_seq = 32"}},
    {"batch_not_a_multiple",
     run + "--training.global_batch_size=3",
     wrong_call,
     {"training.global_batch_size = 3", "training.local_batch_size = 2", "nearest: 2 or 4"}},
    {"heads_that_tp_does_not_divide",
     run + "--parallelism.tensor_parallel_degree=3",
     wrong_call,
     {"parallelism.tensor_parallel_degree = 3", "heads = 2", "nearest: 2"}},
    {"batch_of_data_ranks",
     run + "--parallelism.data_parallel_replicate_degree=2 --training.global_batch_size=6",
     wrong_call,
     {"training.global_batch_size = 6", "2 x 2 data ranks = 4", "nearest: 4 or 8"}},
    {"axis_that_is_not_cut",
     run + "--parallelism.context_parallel_degree=2",
     wrong_call,
     {"parallelism.context_parallel_degree = 2", "does not cut", "nearest: 1"}},
    {"pipeline_of_an_unknown_schedule",
     run + "--parallelism.pipeline_parallel_degree=2 --parallelism.pipeline_parallel_schedule=2f2b",
     wrong_call,
     {"parallelism.pipeline_parallel_schedule = 2f2b", "zb-h1", "dualpipe-v"}},
    {"pipeline_of_two_lanes",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule=DualPipe",
     wrong_call,
     {"parallelism.pipeline_parallel_schedule = DualPipe", "two lanes", "nearest: dualpipe-v"}},
    {"pipeline_with_too_few_micro_batches",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule=dualpipev --training.local_batch_size=1 "
           "--training.global_batch_size=2",
     wrong_call,
     {"training.global_batch_size = 2", "needs at least 4",
      "nearest: training.global_batch_size "
      "= 4"}},
    {"pipeline_with_more_stages_than_layers",
     run + "--parallelism.pipeline_parallel_degree=64",
     wrong_call,
     {"parallelism.pipeline_parallel_degree = 64", "64 stages",
      "nearest: parallelism.pipeline_parallel_degree ="}},
    {"pipeline_with_a_cut_that_does_not_rise",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_first_layers=0,0",
     wrong_call,
     {"parallelism.pipeline_parallel_first_layers = [0, 0]", "first layers of the 2 stages"}},
    {"pipeline_of_sharded_gradients",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule=zb-h1 "
           "--parallelism.data_parallel_shard_degree=2",
     wrong_call,
     {"parallelism.pipeline_parallel_schedule = zb-h1", "parallelism.zero_stage = 3",
      "nearest: parallelism.zero_stage = 1"}},
    {"pipeline_schedule_that_is_malformed",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule_file=mine.txt",
     wrong_call,
     {"mine.txt: line 2, column 6"},
     with_file("mine.txt", "0F0 0BW0\n1F0 1BX0\n")},
    {"pipeline_schedule_of_other_ranks",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule_file=mine.txt",
     wrong_call,
     {"it is for 1 ranks", "parallelism.pipeline_parallel_degree = 2"},
     with_file("mine.txt", "0F0 0BW0\n")},
    {"pipeline_schedule_with_a_fault",
     run + "--parallelism.pipeline_parallel_degree=2 "
           "--parallelism.pipeline_parallel_schedule_file=mine.txt",
     wrong_call,
     {"rank 1", "its F has not run"},
     with_file("mine.txt", "0F0 0BW0\n1BW0 1F0\n")},
    {"every_degree_at_once",
     run + "--parallelism.tensor_parallel_degree=3 --parallelism.sequence_parallel "
           "--training.seq_len=10 --parallelism.data_parallel_replicate_degree=2 "
           "--parallelism.logical_dp=3 --parallelism.context_parallel_degree=2",
     wrong_call,
     {"4 problems", "heads = 2", "seq_len = 10", "nearest: 9 or 12", "logical_dp = 3",
      "nearest: 2 or 4", "context_parallel_degree = 2"}},
    {"fp8",
     run + "--training.dtype=fp8",
     wrong_call,
     {"training.dtype = \"fp8\"", "one of fp32, bf16"}},
    {"warm_up_longer_than_the_run",
     run + "--lr_scheduler.warmup_steps=9",
     wrong_call,
     {"lr_scheduler.warmup_steps = 9", "below training.steps = 4"}},
    {"no_configuration", "train nosuch.toml", failed, {"nosuch.toml", "no such file"}},
    {"configuration_is_a_folder", "train .", failed, {".: not a file"}},
    {"not_toml",
     run,
     wrong_call,
     {"tiny_run.toml:1", "not TOML"},
     with_file("tiny_run.toml", "[job\ndump_folder\n")},
    {"not_json",
     "train run.json",
     wrong_call,
     {"run.json", "not JSON"},
     with_file("run.json", "{\"job\": {\n")},
    {"model_name_unknown",
     run + "--model.name=gpt2-10mm",
     wrong_call,
     {"gpt2-10mm", "did you mean 'gpt2-10m'?", "llama-15m"}},
    {"model_file_missing",
     run + "--model.name=other.toml",
     wrong_call,
     {"model.name", "other.toml", "no such file"}},
    {"override_without_value",
     run + "--training.steps",
     wrong_call,
     {"--training.steps", "no value", "--section.key=value"}},
    {"override_that_is_no_option",
     run + "--overwrit",
     wrong_call,
     {"--overwrit", "not an option", "--section.key=value"}},
};
INSTANTIATE_TEST_SUITE_P(Configuration, BadInputTest, testing::ValuesIn(configuration),
                         [](const auto& one) { return one.param.name; });

const std::vector<BadCase> data = {
    {"none_given",
     run + "--training.dataset_path=",
     wrong_call,
     {"training.dataset_path", "trireme data build"}},
    {"missing", run + "--training.dataset_path=gone.bin", failed, {"gone.bin", "does not exist"}},
    {"prefix_of_nothing",
     run + "--training.dataset_path=gone",
     failed,
     {"gone.bin", "gone.idx", "does not exist"}},
    {"truncated_llmc",
     run + "--training.dataset_path=d.bin",
     failed,
     {"d.bin", "100 tokens of u16 take 1224 bytes", "the file has 1150"},
     with_file("d.bin", llmc_file(llmc_magic, 100, 126))},
    {"truncated_header",
     run + "--training.dataset_path=d.bin",
     failed,
     {"d.bin", "truncated: 100 bytes", "1024"},
     with_file("d.bin", llmc_file(llmc_magic, 100, 0).substr(0, 100))},
    {"wrong_magic_llmc",
     run + "--training.dataset_path=d.bin --training.dataset_format=llmc",
     failed,
     {"d.bin", "starts with the number 77", "20240520"},
     with_file("d.bin", llmc_file(77, 100, 200))},
    {"another_file_of_llmc",
     run + "--training.dataset_path=d.bin",
     failed,
     {"d.bin", "a GPT-2 model", "not tokens"},
     with_file("d.bin", llmc_file(20240326, 100, 200))},
    {"zero_length",
     run + "--training.dataset_path=d.bin --training.dataset_format=llmc",
     failed,
     {"d.bin", "truncated: 0 bytes"},
     with_file("d.bin", "")},
    {"no_header_known",
     run + "--training.dataset_path=d.bin",
     failed,
     {"d.bin", "no header that is known", "u16 or u32"},
     with_file("d.bin", "some bytes")},
    {"wrong_magic_index",
     run + "--training.dataset_path=d",
     failed,
     {"d.idx", "starts with", "MMIDIDX"},
     [](const Scratch& s) {
       with_megatron(s);
       s.write("d.idx", "NMIDIDX" + s.read("d.idx").substr(7));
     }},
    {"truncated_index",
     run + "--training.dataset_path=d",
     failed,
     {"d.idx", "truncated: 40 bytes"},
     [](const Scratch& s) {
       with_megatron(s);
       s.write("d.idx", s.read("d.idx").substr(0, 40));
     }},
    {"index_of_other_tokens",
     run + "--training.dataset_path=d",
     failed,
     {"d.idx", "bytes; the .bin has"},
     [](const Scratch& s) {
       with_megatron(s);
       s.write("d.bin", s.read("d.bin") + "more");
     }},
    {"index_missing",
     run + "--training.dataset_path=d",
     failed,
     {"d.idx", "cannot be read"},
     [](const Scratch& s) {
       with_megatron(s);
       fs::remove(s.at("d.idx"));
     }},
    {"token_above_the_vocabulary",
     run + "--training.dataset_path=d",
     failed,
     {"d.bin", "of document", "vocabulary is 256", "ids 0 .. 255"},
     with_large_ids},
    {"empty",
     run + "--training.dataset_path=empty.txt",
     wrong_call,
     {"empty.txt", "holds no tokens"},
     with_file("empty.txt", "")},
    {"shorter_than_a_sequence",
     run + "--training.dataset_path=short.txt",
     wrong_call,
     {"short.txt", "5 tokens", "seq_len 16 takes 17"},
     with_file("short.txt", "short")},
    {"all_held_out",
     run + "--training.dataset_path=short.txt --validation.enable",
     wrong_call,
     {"short.txt", "validation fraction", "less than one sample"},
     with_file("short.txt", "not much longer than a sample")},
    {"not_utf8",
     run + "--training.dataset_path=latin.txt",
     failed,
     {"latin.txt", "not UTF-8", "0xe9 at offset 3"},
     with_file("latin.txt", "caf\xe9 au lait")},
    {"is_a_folder",
     "data inspect folder",
     failed,
     {"folder", "not a data set"},
     with_file("folder/file", "")},
    {"ngram_of_large_ids", "data ngram d", failed, {"d.bin", "vocabulary is 256"}, with_large_ids},
    {"ngram_context",
     "data ngram text.txt --context 9",
     wrong_call,
     {"--context 9", "from 0 to 4"}},
    {"build_not_utf8",
     "data build latin.txt --output d",
     failed,
     {"latin.txt", "not UTF-8", "0xe9 at offset 3", "raw bytes"},
     with_file("latin.txt", "caf\xe9 au lait")},
    {"build_broken_line",
     "data build a.jsonl --output d",
     failed,
     {"a.jsonl:2", "not JSON"},
     with_file("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\n{\"text\": \"three\"}\n")},
    {"build_key_missing",
     "data build a.jsonl --output d",
     failed,
     {"a.jsonl:1", "no key \"text\"", "found: body"},
     with_file("a.jsonl", "{\"body\": \"one\"}\n")},
    {"build_input_missing",
     "data build text.txt gone.txt --output d",
     failed,
     {"gone.txt", "cannot be read"}},
    {"build_other_input",
     "data build tiny.toml --output d",
     wrong_call,
     {"tiny.toml", ".txt or .jsonl"}},
    {"build_nothing",
     "data build empty.txt --output d",
     failed,
     {"hold no text"},
     with_file("empty.txt", "")},
    {"build_text_with_the_end_token",
     "data build text.txt --output d --eod 32",
     failed,
     {"text.txt:1", "byte 32", "256 is no byte"}},
    {"build_to_a_missing_folder",
     "data build text.txt --output nowhere/d",
     failed,
     {"nowhere/d.bin", "cannot be written", "No such file or directory"}},
    {"build_to_no_name",
     "data build text.txt --output ''",
     wrong_call,
     {"names no file", "prefix"}},
    {"build_to_a_folder",
     "data build text.txt --output ./",
     wrong_call,
     {"'./' names no file", "prefix"}},
    {"build_below_a_file",
     "data build text.txt --output tiny.toml/d",
     failed,
     {"tiny.toml/d.bin", "cannot be written", "Not a directory"}},
    {"build_on_a_full_disk",
     "data build text.txt --output d",
     failed,
     {"d.", "cannot be written", "File too large"},
     {},
     1000},
    {"build_on_a_full_disk_keeps_the_old",
     "data build text.txt tiny.toml.txt --output d",
     failed,
     {"d.", "cannot be written"},
     [](const Scratch& s) {
       with_megatron(s);
       s.write("tiny.toml.txt", tiny_model);
     },
     1000},
    {"synth_with_too_many_contexts",
     "data synth --output d --vocab 1000 --order 5",
     wrong_call,
     {"vocab 1000 with order 5", "allowed"}},
    {"synth_vocabulary_too_large",
     "data synth --output d --vocab 4294967298",
     wrong_call,
     {"--vocab 4294967298", "from"}},
};
INSTANTIATE_TEST_SUITE_P(Data, BadInputTest, testing::ValuesIn(data),
                         [](const auto& one) { return one.param.name; });

const std::vector<BadCase> folders = {
    {"below_a_file",
     run + "--job.dump_folder=text.txt/run",
     failed,
     {"text.txt/run", "Not a directory"}},
    {"is_a_file",
     run + "--job.dump_folder=text.txt",
     failed,
     {"text.txt", "this is a file", "give another name"}},
    {"is_a_device", run + "--job.dump_folder=/dev/full", failed, {"/dev/full", "this is a file"}},
    {"holds_a_run",
     run,
     failed,
     {"run", "already holds a run", "overwrite"},
     with_file("run/run.json", "{}\n")},
    {"full_disk_at_the_start",
     run,
     failed,
     {"run/run.json", "cannot be written", "File too large"},
     {},
     200,
     {"run/"}},
    {"full_disk_when_saving",
     run + "--metrics.enable_tensorboard=false",
     failed,
     {"run/weights/final", "File too large"},
     {},
     20000,
     started_run},
    {"weights_folder_is_a_file",
     run,
     failed,
     {"run/weights", "weights"},
     with_file("run/weights", "a file of the user"),
     0,
     started_run},
    {"weights_folder_holds_other_things",
     run,
     failed,
     {"run/weights/final", "thesis.txt", "would be lost"},
     with_file("run/weights/final/thesis.txt", "a file of the user"),
     0,
     started_run},
};
INSTANTIATE_TEST_SUITE_P(Folders, BadInputTest, testing::ValuesIn(folders),
                         [](const auto& one) { return one.param.name; });

const std::string eval = "eval --weights w --data text.txt ";
const std::vector<BadCase> weights = {
    {"missing",
     "eval --weights gone --data text.txt",
     failed,
     {"gone", "no such folder", "config.json"}},
    {"missing_for_generate", "generate runs/gone", failed, {"runs/gone", "no such folder"}},
    {"without_config_json",
     eval,
     failed,
     {"w", "without config.json"},
     with_weights_then([](const Scratch& s) { fs::remove(s.at("w/config.json")); })},
    {"without_safetensors",
     eval,
     failed,
     {"w", "neither model.safetensors nor"},
     with_weights_then([](const Scratch& s) { fs::remove(s.at("w/model.safetensors")); })},
    {"truncated",
     eval,
     failed,
     {"w/model.safetensors", "bytes after the header"},
     with_weights_then([](const Scratch& s) {
       const std::string bytes = s.read("w/model.safetensors");
       s.write("w/model.safetensors", bytes.substr(0, bytes.size() - 100));
     })},
    {"zero_length",
     eval,
     failed,
     {"w/model.safetensors", "0 bytes"},
     with_weights_then([](const Scratch& s) { s.write("w/model.safetensors", ""); })},
    {"of_another_shape",
     eval,
     failed,
     {"w/model.safetensors", "mlp.up_proj.weight' is [32, 16]", "the model wants [48, 16]"},
     with_weights_then(
         with("\"intermediate_size\": 32", "\"intermediate_size\": 48", "w/config.json"))},
    {"config_json_broken",
     eval,
     wrong_call,
     {"w/config.json", "not JSON"},
     with_weights_then(with_file("w/config.json", "{\"model_type\": "))},
    {"of_an_unknown_family",
     eval,
     wrong_call,
     {"w/config.json", "mamba"},
     with_weights_then(
         with("\"model_type\": \"llama\"", "\"model_type\": \"mamba\"", "w/config.json"))},
    {"init_from_another_shape",
     "train tiny_run.toml --init-from w",
     failed,
     {"w", "the model wants"},
     with_weights_then(with("hidden = 16", "hidden = 32", "tiny.toml"))},
    {"init_from_missing", "train tiny_run.toml --init-from gone", failed, {"gone"}},
    {"eval_sequence_too_long",
     eval + "--seq 64",
     wrong_call,
     {"seq_len = 64", "the model's 32"},
     with_weights},
    {"eval_batch_of_none",
     eval + "--batch 0",
     wrong_call,
     {"0 sequences", "at least 1"},
     with_weights},
    {"eval_token_above_the_vocabulary",
     "eval --weights w --data d",
     failed,
     {"d.bin", "vocabulary is 256"},
     with_weights_then(with_large_ids)},
    {"eval_one_token",
     "eval --weights w --data one.txt",
     wrong_call,
     {"one.txt", "1 tokens", "at least 2"},
     with_weights_then(with_file("one.txt", "1"))},
    {"eval_threads",
     eval + "--threads 1000000000",
     wrong_call,
     {"1000000000 threads", "4096"},
     with_weights},
    {"generate_empty_prompt",
     "generate w --prompt ''",
     wrong_call,
     {"prompt is empty"},
     with_weights},
    {"generate_temperature",
     "generate w --temperature -1",
     wrong_call,
     {"temperature = -1", "0 or above"},
     with_weights},
    {"generate_top_p",
     "generate w --top-p 1.5",
     wrong_call,
     {"top_p = 1.5", "above 0, at most 1"},
     with_weights},
    {"generate_top_k",
     "generate w --top-k -2",
     wrong_call,
     {"top_k = -2", "0 (all) or above"},
     with_weights},
    {"generate_tokens",
     "generate w --tokens -1",
     wrong_call,
     {"--tokens -1", "0 or above"},
     with_weights},
    {"generate_id_above_the_vocabulary",
     "generate w --prompt-ids 1,256",
     wrong_call,
     {"--prompt-ids", "256", "vocabulary of 256"},
     with_weights},
    {"generate_id_with_letters",
     "generate w --prompt-ids 1x",
     wrong_call,
     {"--prompt-ids", "'1x' is not a token id"},
     with_weights},
    {"generate_id_that_is_no_number",
     "generate w --prompt-ids 1,x",
     wrong_call,
     {"--prompt-ids", "'x'", "17,4,99"},
     with_weights},
};
INSTANTIATE_TEST_SUITE_P(Weights, BadInputTest, testing::ValuesIn(weights),
                         [](const auto& one) { return one.param.name; });

const std::string bench = "bench train --model tiny.toml --steps 1 ";
const std::vector<BadCase> calls = {
    {"unknown_verb",
     "trian tiny_run.toml",
     wrong_call,
     {"'trian'", "did you mean 'train'?", "eval, generate"}},
    {"unknown_verb_of_a_group",
     "data inspekt text.txt",
     wrong_call,
     {"'data inspekt'", "did you mean 'data inspect'?"}},
    {"group_without_verb", "data", wrong_call, {"subcommand is required", "--help"}},
    {"nothing", "", wrong_call, {"subcommand is required", "--help"}},
    {"unknown_option", "data inspect text.txt --sort", wrong_call, {"--sort", "--help"}},
    {"one_argument_too_many", "data inspect text.txt more.txt", wrong_call, {"more.txt"}},
    {"required_option_missing", "data build text.txt", wrong_call, {"--output is required"}},
    {"required_argument_missing",
     "train",
     wrong_call,
     {"no configuration file is given", "configs/kjv.toml"}},
    {"option_without_value", "data build text.txt --output", wrong_call, {"--output"}},
    {"option_given_twice", "data inspect text.txt --eod 1 --eod 2", wrong_call, {"--eod"}},
    {"text_for_an_integer",
     bench + "--warmup abc",
     wrong_call,
     {"--warmup", "'abc' is not an integer"}},
    {"hexadecimal", bench + "--warmup 0x10", wrong_call, {"--warmup", "'0x10' is not an integer"}},
    {"integer_too_large",
     bench + "--warmup 99999999999999999999",
     wrong_call,
     {"--warmup", "is not an integer"}},
    {"text_for_a_number",
     bench + "--peak-tflops fast",
     wrong_call,
     {"--peak-tflops", "'fast' is not a number"}},
    {"unknown_choice", bench + "--dtype fp8", wrong_call, {"--dtype", "fp8", "bf16"}},
    {"bench_without_steps",
     "bench train --model tiny.toml --steps 0",
     wrong_call,
     {"--steps 0", "at least 1"}},
    {"bench_sequence_too_long", bench + "--seq 64", wrong_call, {"seq_len = 64", "the model's 32"}},
    {"bench_empty_batch", bench + "--micro-batch 0", wrong_call, {"0 sequences", "at least 1"}},
    {"bench_batch_too_large",
     bench + "--seq 32 --micro-batch 1000000000000",
     wrong_call,
     {"1000000000000 sequences of 32 tokens", "at most 2147483647"}},
    {"bench_unknown_determinism", bench + "--determinism l9", wrong_call, {"l9", "l1", "fast"}},
    {"bench_negative_gpu", bench + "--gpu -1", wrong_call, {"--gpu -1", "0 or above"}},
    {"bench_negative_chunk", bench + "--head-chunk -1", wrong_call, {"--head-chunk -1", "0"}},
    {"train_unknown_device",
     run + "--device gpu",
     wrong_call,
     {"system.device = \"gpu\"", "auto, cuda, cpu"}},
    {"trace_of_no_steps",
     run + "--trace-steps 3",
     wrong_call,
     {"--trace-steps 3", "first:last", "from 1 to 4"}},
    {"trace_after_the_run", run + "--trace-steps 3:5", wrong_call, {"--trace-steps 3:5", "to 4"}},
    {"bench_unknown_device", bench + "--device gpu", wrong_call, {"device 'gpu'", "cpu"}},
    {"bench_unknown_model",
     "bench train --model llama-15mm",
     wrong_call,
     {"llama-15mm", "did you mean 'llama-15m'?"}},
};
INSTANTIATE_TEST_SUITE_P(Calls, BadInputTest, testing::ValuesIn(calls),
                         [](const auto& one) { return one.param.name; });

const std::string on_two = "plan --model tiny.toml --machine cpu --gpus 2 ";
const std::string plan = on_two + "--batch 4 --seq-len 16 --out p.toml ";
const std::string sizes = "--num-layers 2 --hidden-size 16 --num-attention-heads 2 ";
const std::vector<BadCase> planning = {
    {"nothing_to_plan",
     "plan",
     wrong_call,
     {"give a configuration, --model, --from-hf, --from-megatron or --from-torchtitan"}},
    {"everything_missing",
     "plan --model tiny.toml",
     wrong_call,
     {"--gpus N", "--batch SEQUENCES or --batch-tokens N", "--machine NAME", "a100-80gb, "}},
    {"two_things_to_plan",
     plan + "--from-hf w",
     wrong_call,
     {"--model and --from-hf", "give one of them"}},
    {"override_without_configuration",
     plan + "--training.steps=9",
     wrong_call,
     {"--training.steps=9", "changes a configuration, and none is given"}},
    {"unknown_machine",
     "plan --model tiny.toml --machine h20 --gpus 2 --batch 4",
     wrong_call,
     {"no machine 'h20'", "did you mean 'h200'?", "a100-80gb", "gb200", "machines/README.md",
      "trireme calibrate"}},
    {"machine_file_missing",
     "plan --model tiny.toml --machine gone.toml --gpus 2 --batch 4",
     failed,
     {"gone.toml: no such file"}},
    {"machine_file_of_a_model",
     "plan --model tiny.toml --machine tiny.toml --gpus 2 --batch 4",
     wrong_call,
     {"tiny.toml", "family"}},
    {"more_than_the_machine_has",
     "plan --model tiny.toml --machine cpu --gpus 4 --batch 4",
     wrong_call,
     {"4 processors", "cpu has 2 in a domain", "[network]", "at most 2"}},
    {"no_gpus",
     "plan --model tiny.toml --machine cpu --gpus 0 --batch 4",
     wrong_call,
     {"--gpus 0", "from 1"}},
    {"negative_gpus",
     "plan --model tiny.toml --machine cpu --gpus -8 --batch 4",
     wrong_call,
     {"--gpus -8", "from 1"}},
    {"too_many_gpus",
     "plan --model tiny.toml --machine h100 --gpus 99999999 --batch 4",
     wrong_call,
     {"--gpus 99999999", "to 1048576"}},
    {"batch_negative", on_two + "--batch -4", wrong_call, {"--batch -4", "from 1"}},
    {"batch_far_too_large",
     on_two + "--batch 9223372036854775807",
     wrong_call,
     {"--batch 9223372036854775807", "to 1073741824"}},
    {"batch_tokens_far_too_many",
     on_two + "--batch-tokens 1e30",
     wrong_call,
     {"--batch-tokens 1e30", "to 1073741824 sequences of 32"}},
    {"batch_tokens_of_no_sequence",
     on_two + "--batch-tokens 3",
     wrong_call,
     {"--batch-tokens 3", "from 1"}},
    {"batch_tokens_nan", on_two + "--batch-tokens nan", wrong_call, {"--batch-tokens nan"}},
    {"batch_said_twice",
     plan + "--batch-tokens 64",
     wrong_call,
     {"--batch and --batch-tokens say the same"}},
    {"batch_that_no_layout_divides",
     "plan --model gpt3-175b --machine a100-80gb --gpus 4096 --tp 8 --batch 7",
     wrong_call,
     {"a batch of 7", "nearest: 8"}},
    {"critical_batch_negative",
     plan + "--critical-batch -1",
     wrong_call,
     {"--critical-batch -1", "above 0"}},
    {"plan_of_a_sequence_too_long",
     on_two + "--batch 4 --seq-len 64 --out p.toml",
     wrong_call,
     {"--seq-len 64", "max_seq = 32"}},
    {"plan_of_no_tokens", on_two + "--batch 4 --seq-len 0", wrong_call, {"--seq-len 0", "from 1"}},
    {"memory_fraction_none",
     plan + "--memory-fraction 0",
     wrong_call,
     {"--memory-fraction 0", "above 0, at most 1"}},
    {"memory_fraction_above_all",
     plan + "--memory-fraction 1.5",
     wrong_call,
     {"--memory-fraction 1.5", "at most 1"}},
    {"unknown_stack",
     plan + "--stack nanotron",
     wrong_call,
     {"--stack nanotron", "trireme, megatron-2021", "fsdp"}},
    {"tp_that_heads_do_not_divide",
     "plan --model llama3-70b --machine h100 --gpus 1536 --batch 1536 --tp 3",
     wrong_call,
     {"1536 processors and 64 heads", "1, 2, 4, 8, 16, 32, 64 do; not 3"}},
    {"limits_that_are_too_many_ranks",
     plan + "--tp 2 --pp 2",
     wrong_call,
     {"tp x pp x cp must divide 2 processors", "with tp 2 pp may be 1"}},
    {"limits_that_exclude_each_other",
     plan + "--pp 2 --schedule 1f1b --chunks 3",
     wrong_call,
     {"schedule, chunks", "lift one"}},
    {"limit_that_is_no_number", plan + "--tp two", wrong_call, {"--tp two", "whole numbers"}},
    {"limit_that_ends_early", plan + "--tp 1,", wrong_call, {"--tp 1,", "whole numbers"}},
    {"limit_that_is_empty", plan + "--tp ''", wrong_call, {"--tp ''", "whole numbers"}},
    {"limit_on_zero", plan + "--zero 4", wrong_call, {"--zero 4", "from 0 to 3"}},
    {"limit_of_an_unknown_schedule",
     plan + "--schedule 2f2b",
     wrong_call,
     {"--schedule 2f2b", "zb-h1"}},
    {"fp8_of_the_engine",
     "plan --model tiny.toml --machine h100 --gpus 2 --batch 4 --precision fp8",
     wrong_call,
     {"fp8 is not in the engine yet", "--unaudited"}},
    {"cp_of_the_engine", plan + "--cp 2", wrong_call, {"--cp 2", "--unaudited"}},
    {"fp8_of_a_machine_without",
     plan + "--unaudited --precision fp8",
     wrong_call,
     {"the file of cpu states no processor.fp8_tflops"}},
    {"explain_of_one",
     plan + "--explain tp=1",
     wrong_call,
     {"--explain: two layouts, each as one text, not 1"}},
    {"explain_of_what_does_not_divide",
     plan + "--explain tp=1 --explain tp=3",
     wrong_call,
     {"layout 'tp=3'", "2 processors do not divide by tp x cp x pp = 3"}},
    {"explain_of_a_broken_rule",
     plan + "--explain tp=1 --explain micro=3",
     wrong_call,
     {"layout 'micro=3'", "batch = 4 does not divide by dp x micro-batch = 2 x 3"}},
    {"explain_of_an_unknown_word",
     plan + "--explain tp=1 --explain 'tp=2 fast'",
     wrong_call,
     {"'fast' is none of tp=N", "zb-h1"}},
    {"layout_of_other_processors",
     plan + "--layout 'tp=2 dp=2'",
     wrong_call,
     {"layout 'tp=2 dp=2'", "are not the 2 processors"}},
    {"layout_in_fp8",
     plan + "--layout fp8",
     wrong_call,
     {"the file of cpu states no processor.fp8_tflops"}},
    {"megatron_flags_missing",
     "plan --machine h100 --gpus 8 --from-megatron '" + sizes + "'",
     wrong_call,
     {"2 problems", "--micro-batch-size: required", "--seq-length: required"}},
    {"megatron_heads",
     "plan --machine h100 --gpus 9 --from-megatron '" + sizes +
         "--micro-batch-size 1 --seq-length 16 --max-position-embeddings 16 --vocab-size 256 "
         "--global-batch-size 9 --tensor-model-parallel-size 3'",
     wrong_call,
     {"--tensor-model-parallel-size", "3 does not divide --num-attention-heads 2"}},
    {"titan_missing",
     "plan --machine h100 --gpus 8 --from-torchtitan gone.toml",
     failed,
     {"gone.toml: no such file"}},
    {"titan_unknown_flavor",
     "plan --machine h100 --gpus 8 --from-torchtitan titan.toml",
     wrong_call,
     {"titan.toml:2", "model.flavor", "llama3 9B", "8B, 70B and 405B", "--from-hf"},
     with_file("titan.toml", "[model]\nflavor = \"9B\"\n")},
    {"hf_unsupported",
     "plan --machine h100 --gpus 8 --batch 8 --from-hf config.json",
     wrong_call,
     {"config.json", "model_type: mamba is not supported", "llama, qwen2"},
     with_file("config.json", "{\"model_type\": \"mamba\"}")},
    {"hf_missing",
     "plan --machine h100 --gpus 8 --batch 8 --from-hf gone",
     failed,
     {"gone: no such file"}},
    {"validate_missing", "plan --validate gone.jsonl", failed, {"gone.jsonl: no such file"}},
    {"validate_broken_line",
     "plan --validate a.jsonl",
     wrong_call,
     {"a.jsonl:3: not JSON"},
     with_file("a.jsonl", "{\"id\": \"one\"}\n\n{\"id\": \n")},
    {"validate_of_no_object",
     "plan --validate a.jsonl",
     wrong_call,
     {"a.jsonl:1: not a JSON object"},
     with_file("a.jsonl", "[1]\n")},
    {"validate_without_id",
     "plan --validate a.jsonl",
     wrong_call,
     {"a.jsonl:1: a run without id"},
     with_file("a.jsonl", "{}\n")},
    {"validate_empty",
     "plan --validate a.jsonl",
     wrong_call,
     {"a.jsonl: holds no run"},
     with_file("a.jsonl", "\n")},
    {"out_there_already",
     plan,
     failed,
     {"p.toml: there already", "--overwrite"},
     with_file("p.toml", "a file of the user")},
    {"out_to_a_missing_folder",
     on_two + "--batch 4 --out nowhere/p.toml",
     failed,
     {"nowhere/p.toml", "cannot be written"}},
    {"out_is_a_folder",
     on_two + "--batch 4 --overwrite --out folder",
     failed,
     {"folder: cannot be written"},
     with_file("folder/file", "")},
    {"out_on_a_full_disk",
     plan,
     failed,
     {"p.toml", "cannot be written", "File too large"},
     {},
     100},
    {"out_of_a_model_without_file",
     "plan --machine h100 --gpus 8 --from-torchtitan titan.toml --out p.toml",
     wrong_call,
     {"--out", "names its model by a file", "--model or --from-hf"},
     with_file("titan.toml", "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n")},
    {"calibrate_unknown_device",
     "calibrate --device tpu",
     wrong_call,
     {"device 'tpu'", "auto, cuda, cpu"}},
    {"calibrate_threads",
     "calibrate --device cpu --threads -1",
     wrong_call,
     {"-1 threads", "from 1 to 4096"}},
    {"calibrate_negative_gpu", "calibrate --gpu -1", wrong_call, {"--gpu -1", "0 or above"}},
    {"calibrate_unknown_like",
     "calibrate --device cpu --like a100",
     wrong_call,
     {"no machine 'a100'", "a100-80gb", "machines/README.md"}},
    {"calibrate_out_there_already",
     "calibrate --device cpu --out tiny.toml",
     wrong_call,
     {"tiny.toml: exists", "--overwrite"}},
    {"calibrate_out_to_a_missing_folder",
     "calibrate --device cpu --out nowhere/m.toml",
     wrong_call,
     {"nowhere/m.toml", "the folder nowhere is not there"}},
    {"calibrate_out_is_a_folder",
     "calibrate --device cpu --out . --overwrite",
     wrong_call,
     {".: is not a file"}},
};
INSTANTIATE_TEST_SUITE_P(Planning, BadInputTest, testing::ValuesIn(planning),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace trireme::tests
