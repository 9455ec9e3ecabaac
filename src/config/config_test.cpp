// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "config/files_test.h"
#include "config/layout.h"
#include "config/schema.h"
#include "config/spelling.h"

namespace trireme::config {
namespace {

LoadOptions with(std::vector<std::string> overrides = {}) {
  return {.overrides = std::move(overrides), .model_folders = {shipped_models()}};
}

Config load_text(const std::string& text, std::vector<std::string> overrides = {}) {
  const TemporaryFolder folder;
  return load_solved(folder.write("run.toml", text), with(std::move(overrides)));
}

// A complete file; the text that a test adds begins at line 3.
std::string small(const std::string& text) { return "[model]\nname = \"llama-15m\"\n" + text; }

std::string refusal(const std::string& text, std::vector<std::string> overrides = {}) {
  return message_of([&] { (void)load_text(text, std::move(overrides)); });
}

int lines_of(const std::string& message) {
  return static_cast<int>(std::count(message.begin(), message.end(), '\n'));
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Config, every_key_of_a_file_is_read) {
  // Each key gets a legal value that differs from its default.
  Config wanted = load_solved("", with({"model.name=llama-15m"}));
  std::string text;
  std::string section;
  for (const Key& key : keys_of(wanted)) {
    if (key.section == "parallelism" || key.section == "moe") continue;  // other tests
    if (auto* const* field = std::get_if<bool*>(&key.field)) **field = !**field;
    if (auto* const* field = std::get_if<int64_t*>(&key.field)) {
      **field = key.name == "seq_len"        ? 17
                : key.name == "max_seq"      ? 99
                : key.name == "peer_buffers" ? 3
                                             : 2 * **field + 2;
    }
    if (auto* const* field = std::get_if<double*>(&key.field)) **field = **field / 2 + 0.125;
    if (auto* const* field = std::get_if<std::string*>(&key.field)) {
      if (key.path() == "model.name") continue;
      **field = key.choices.empty() ? "some \u00e9 text" : std::string(key.choices.back());
    }
  }
  wanted.training.skip_norm_multiple = 3.5;
  wanted.precision.recipe = "bf16";  // the other keys are legal with it
  wanted.validation.steps = 0;       // required with samples
  wanted.alerts.webhook = "https://host/some \u00e9 path";
  wanted.dims.vocab = wanted.model.vocab_size = 300;
  wanted.dims.max_seq = wanted.model.max_seq;
  for (const Key& key : keys_of(wanted)) {
    if (key.section != section) text += fmt::format("[{}]\n", section = key.section);
    text += fmt::format("{} = {}\n", key.name, value_text(key));
  }
  const Config read = load_text(text);
  EXPECT_EQ(to_json(read).dump(1), to_json(wanted).dump(1));
  EXPECT_TRUE(read == wanted);
}

TEST(Config, a_choice_with_true_is_also_a_boolean) {
  EXPECT_EQ(load_text(small("[elastic]\npeer = true\n")).elastic.peer, "true");
  EXPECT_EQ(load_text(small("[elastic]\npeer = false\n")).elastic.peer, "false");
  EXPECT_EQ(load_text(small("[elastic]\npeer = \"auto\"\n")).elastic.peer, "auto");
  EXPECT_THROW(load_text(small("[elastic]\npeer = 1\n")), base::ConfigError);
  EXPECT_THROW(load_text(small("[comm]\nbackend = true\n")), base::ConfigError);
}

TEST(Config, defaults_are_resolved) {
  const Config c = load_text(small("[training]\nlocal_batch_size = 4\nsteps = 77\n"));
  EXPECT_EQ(c.training.global_batch_size, 4);
  EXPECT_EQ(c.training.seq_len, 256);
  EXPECT_EQ(c.lr_scheduler.total_steps, 77);
  EXPECT_EQ(c.parallelism.data_parallel_shard_degree, 1);
  EXPECT_EQ(c.dims.name, "llama-15m");
  EXPECT_EQ(c.dims.vocab, 4096);
  EXPECT_EQ(load_text("model.name = 'llama-8b'").training.seq_len, 2048);
}

// What a call leaves open can be solved again, for other ranks.
TEST(Config, loading_keeps_open_keys_open) {
  const TemporaryFolder folder;
  Config asked = load(folder.write("run.toml", small("[lr_scheduler]\nwarmup_steps = 5000\n")),
                      {.overrides = {"parallelism.tensor_parallel_degree=-1"},
                       .model_folders = {shipped_models()},
                       .world = 2});
  EXPECT_EQ(asked.parallelism.tensor_parallel_degree, -1);
  EXPECT_EQ(asked.lr_scheduler.warmup_steps, 5000);
  EXPECT_TRUE(asked.notes.empty());
  Config defaults;
  const std::vector<Key> keys = keys_of(asked), all = keys_of(defaults);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (asked.origin.places.contains(keys[i].path()) || keys[i].section == "job") continue;
    EXPECT_EQ(value_json(keys[i]), value_json(all[i])) << keys[i].path();
  }
  EXPECT_EQ(asked.origin.places.at("lr_scheduler.warmup_steps"),
            (folder.path() / "run.toml").string() + ":4");
  EXPECT_EQ(solved(asked, 2).parallelism.tensor_parallel_degree, 2);
  EXPECT_EQ(solved(asked, 1).parallelism.tensor_parallel_degree, 1);
  EXPECT_EQ(solved(asked, 1).notes.size(), 1U);
}

TEST(Config, a_validation_has_the_same_samples_for_every_micro_batch) {
  for (const char* micro : {"1", "2", "8"}) {
    const auto samples = [&](const std::string& more) {
      return validation_samples(
          load_text(small(fmt::format("[training]\nlocal_batch_size = {}\nglobal_batch_size = 16\n"
                                      "[validation]\n{}\n",
                                      micro, more))));
    };
    EXPECT_EQ(samples(""), 80);
    EXPECT_EQ(samples("samples = 7"), 7);
    EXPECT_EQ(samples("samples = -1"), -1);
    EXPECT_EQ(samples("steps = 3"), 3 * 16);
    EXPECT_EQ(samples("steps = -1"), -1);
  }
}

TEST(Config, all_spellings_of_toml_are_read) {
  const Config c = load_text(
      "model = { name = 'llama-15m' }\noptimizer.lr = 1\ntraining.steps = 1_000_000\n"
      "training.\"seq_len\" = 0x10\n");
  EXPECT_EQ(c.optimizer.lr, 1);
  EXPECT_EQ(c.training.steps, 1'000'000);
  EXPECT_EQ(c.training.seq_len, 16);
}

TEST(Config, a_gpu_is_cuda) {
  EXPECT_EQ(load_text("[model]\nname = 'llama-11m'\n", {"--system.device=gpu"}).system.device,
            "cuda");
}

TEST(Config, overrides_win_and_later_ones_over_earlier) {
  const Config c = load_text(
      small("[optimizer]\nlr = 1e-3\n"),
      {"--optimizer.lr=2e-3", "training.steps=5", "--training.steps", "7", "--validation.enable",
       "--debug.seed", "3", "--training.document_mask", "true", "--checkpoint.enable=false",
       "--job.description=a=b", "--optimizer.weight_decay=0"});
  EXPECT_EQ(c.optimizer.lr, 2e-3);
  EXPECT_EQ(c.training.steps, 7);
  EXPECT_TRUE(c.validation.enable);
  EXPECT_EQ(c.debug.seed, 3);
  EXPECT_TRUE(c.training.document_mask);
  EXPECT_FALSE(c.checkpoint.enable);
  EXPECT_EQ(c.job.description, "a=b");
  EXPECT_EQ(c.optimizer.weight_decay, 0);
}

TEST(Config, dtype_is_left_to_the_device_unless_it_is_given) {
  const Config open = load_text(small("[optimizer]\nmaster_dtype = \"f32\"\n"));
  EXPECT_EQ(open.precision.recipe, "auto");
  EXPECT_EQ(settle_dtype(open, true).precision.recipe, "bf16");
  EXPECT_EQ(settle_dtype(open, false).precision.recipe, "fp32");
  for (const char* dtype : {"fp32", "bf16"}) {
    Config given = open;
    given.precision.recipe = dtype;
    EXPECT_EQ(settle_dtype(given, true), given);
    EXPECT_EQ(settle_dtype(given, false), given);
  }
  // Split master weights need bf16.
  const Config split = load_text(small("[optimizer]\nmaster_dtype = \"u16\"\n"));
  EXPECT_EQ(settle_dtype(split, true).precision.recipe, "bf16");
  expect_contains(message_of([&] { (void)settle_dtype(split, false); }),
                  "optimizer.master_dtype = u16: must be f32 if precision.recipe = fp32");
}

TEST(Config, model_overrides_change_the_dims) {
  const Config c = load_solved("", with({"--model.name=gpt2-124m", "--model.vocab_size=50304",
                                         "--model.max_seq=2048", "--training.seq_len=2048"}));
  EXPECT_EQ(c.dims.vocab, 50304);
  EXPECT_EQ(c.dims.max_seq, 2048);
}

TEST(Config, the_section_moe_overrides_the_balance_of_the_model) {
  const TemporaryFolder folder;
  const std::string model = text_of(shipped_models() / "kjv-moe.toml") + "router_bias = true\n";
  const std::string path = folder.write("m.toml", model).string();
  const Config c = load_text(
      fmt::format("[model]\nname = '{}'\n[checkpoint]\nexport_folder = ''\n[moe]\naux_loss = 0.5\n"
                  "aux_scope = 'global'\nz_loss = 0.25\nbias_rate = 0.125\nrow_budget = 2\n"
                  "overflow = 'drop'\ncapacity = 1.25\n",
                  path));
  ASSERT_TRUE(c.dims.moe);
  const spec::BalanceSpec wanted{
      .aux = 0.5F, .scope = spec::AuxScope::global, .z = 0.25F, .bias_rate = 0.125F};
  EXPECT_EQ(c.dims.moe->balance, wanted);
  EXPECT_EQ(c.moe.row_budget, 2);
  EXPECT_EQ(c.moe.overflow, "drop");
  EXPECT_EQ(c.moe.capacity, 1.25);
  EXPECT_EQ(load_text("[model]\nname = 'kjv-moe'\n").dims.moe->balance.aux, 0.01F);
  expect_contains(refusal("[model]\nname = 'kjv-llama'\n[moe]\naux_loss = 0.1\n"),
                  "run.toml:4: moe.aux_loss: model 'kjv-llama' has no experts");
  expect_contains(refusal("[model]\nname = 'kjv-moe'\n[moe]\nbias_rate = 0.1\n"),
                  "run.toml:4: moe.bias_rate = 0.1: the router of model 'kjv-moe' has no bias");
}

TEST(Config, resolved_form_reads_back_without_model_files) {
  for (const char* name : {"llama-1b", "gpt2-10m", "qwen3-0.6b", "qwen2-0.5b", "kjv-moe"}) {
    const Config first =
        load_solved("", with({fmt::format("model.name={}", name), "model.vocab_size=512",
                              "optimizer.lr=0.0012345678901234567", "debug.seed=77"}));
    const TemporaryFolder folder;
    const auto file = folder.write("config.json", to_json(first).dump(2));
    const Config second = load_solved(file, {});
    EXPECT_EQ(to_json(first).dump(), to_json(second).dump());
    EXPECT_TRUE(first == second);
    EXPECT_TRUE(spec::make_model(first.dims) == spec::make_model(second.dims));
  }
}

TEST(Config, resolved_form_accepts_overrides) {
  const TemporaryFolder folder;
  const auto file = folder.write(
      "config.json",
      to_json(load_solved("", with({"--model.name=llama-15m", "--training.steps=9"}))).dump());
  const Config c = load_solved(file, with({"--optimizer.lr=1e-2", "--model.vocab_size=999"}));
  EXPECT_EQ(c.optimizer.lr, 1e-2);
  EXPECT_EQ(c.training.steps, 9);
  EXPECT_EQ(c.dims.vocab, 999);
  EXPECT_FALSE(c == load_solved(file, {}));
  EXPECT_EQ(load_solved(file, with({"--model.name=gpt2-10m"})).dims.family, spec::Family::gpt2);
}

TEST(Config, models_are_found_beside_the_file_and_by_path) {
  const TemporaryFolder folder;
  folder.write("models/mine.toml",
               "family = 'gpt2'\nlayers = 1\nhidden = 8\nheads = 2\nffn = 8\nvocab = 9\n"
               "max_seq = 4\n");
  EXPECT_EQ(load_solved(folder.write("a.toml", "[model]\nname = 'mine'"), {}).dims.name, "mine");
  EXPECT_EQ(
      load_solved(folder.write("b.toml", "[model]\nname = 'models/mine.toml'"), {}).dims.vocab, 9);
  const auto path = (folder.path() / "models" / "mine.toml").string();
  EXPECT_EQ(load_solved("", {.overrides = {"model.name=" + path}}).dims.hidden, 8);
}

TEST(Config, the_model_of_init_from_is_the_default) {
  const TemporaryFolder folder;
  folder.write("weights/config.json",
               R"({"model_type":"gpt2","vocab_size":50,"n_embd":8,"n_layer":1,"n_head":2})");
  const auto path = (folder.path() / "weights").string();
  const Config c = load_solved("", {.overrides = {"training.init_from=" + path}});
  EXPECT_EQ(c.model.name, path);
  EXPECT_EQ(c.dims.vocab, 50);
  EXPECT_EQ(c.dims.name, "weights");
}

TEST(Config, shipped_files_load) {
  for (const char* name : {"kjv", "llama-11m", "gpt2-124m", "long"}) {
    const Config c = load_solved(source_root() / "configs" / (std::string(name) + ".toml"), {});
    EXPECT_FALSE(c.training.dataset_path.empty()) << name;
  }
  const Config ranks = load_solved(source_root() / "configs" / "llama-8b-128k.toml", {.world = 16});
  EXPECT_EQ(ranks.parallelism.data_parallel_shard_degree, 2);
  EXPECT_EQ(settled_layout(ranks).ulysses, 8);
}

TEST(Config, the_documentation_page_is_the_schema) {
  EXPECT_EQ(text_of(source_root() / "docs" / "configuration.md"), configuration_page());
}

TEST(Config, help_names_every_key) {
  Config defaults;
  const std::string help = help_text();
  for (const Key& key : keys_of(defaults)) {
    EXPECT_FALSE(key.help.empty());
    expect_contains(help, fmt::format("  {} = {}  ({}", key.name, value_text(key), type_name(key)));
  }
}

TEST(Config, defaults_obey_their_rules) {
  Config defaults;
  for (const Key& key : keys_of(defaults)) {
    if (auto* const* field = std::get_if<int64_t*>(&key.field)) {
      EXPECT_TRUE(key.range.contains(static_cast<double>(**field))) << key.path();
    }
    if (auto* const* field = std::get_if<double*>(&key.field)) {
      EXPECT_TRUE(key.range.contains(**field)) << key.path();
    }
    if (!key.choices.empty()) {
      EXPECT_EQ(
          std::count(key.choices.begin(), key.choices.end(), *std::get<std::string*>(key.field)), 1)
          << key.path();
    }
  }
}

// ---- derived values

TEST(Config, name_and_folder_follow_from_each_other) {
  const auto job = [](std::vector<std::string> overrides) {
    overrides.emplace_back("model.name=llama-15m");
    const Job found = load_solved("", with(overrides)).job;
    return found.name + " in " + found.dump_folder;
  };
  EXPECT_EQ(job({}), "llama-15m in runs/llama-15m");
  EXPECT_EQ(job({"job.name=a b"}), "a b in runs/a b");
  EXPECT_EQ(job({"job.dump_folder=x/y/"}), "y in x/y/");
  EXPECT_EQ(job({"job.dump_folder=x/y/../z/."}), "z in x/y/../z/.");
  EXPECT_EQ(job({"job.dump_folder=x", "job.name=n"}), "n in x");
  EXPECT_EQ(job({"job.dump_folder=/"}), "run in /");
}

TEST(Config, a_warm_up_is_shortened_to_the_last_step) {
  const Config cut =
      load_text(small("[lr_scheduler]\nwarmup_steps = 1000\n"), {"training.steps=20"});
  EXPECT_EQ(cut.lr_scheduler.warmup_steps, 19);
  ASSERT_EQ(cut.notes.size(), 1U);
  EXPECT_EQ(cut.notes[0],
            "lr_scheduler.warmup_steps is shortened from 1000 to 19, because training.steps is 20");
  const Config once = load_text(small("[lr_scheduler]\nwarmup_steps = 1\n[training]\nsteps = 1\n"));
  EXPECT_EQ(once.lr_scheduler.warmup_steps, 0);
  EXPECT_TRUE(load_text(small("[lr_scheduler]\nwarmup_steps = 999\n")).notes.empty());
}

// The learning rates of the first steps do not depend on where the run ends.
TEST(Config, an_explicit_schedule_keeps_its_warm_up) {
  const Config short_run = load_text(
      small("[lr_scheduler]\nwarmup_steps = 50\ntotal_steps = 3000\n"), {"training.steps=20"});
  EXPECT_EQ(short_run.lr_scheduler.warmup_steps, 50);
  EXPECT_TRUE(short_run.notes.empty());
}

TEST(Config, types_have_one_spelling_after_reading) {
  const Config config = load_text(small(
      "[training]\ndtype = \"bfloat16\"\ngrad_dtype = \"fp32\"\ndataset_dtype = \"uint32\"\n"
      "[optimizer]\nmaster_dtype = \"torch.uint16\"\n[parallelism]\nreduce_dtype = \"BF16\"\n"));
  EXPECT_EQ(config.precision.recipe, "bf16");
  EXPECT_EQ(config.training.grad_dtype, "f32");
  EXPECT_EQ(config.training.dataset_dtype, "u32");
  EXPECT_EQ(config.optimizer.master_dtype, "u16");
  EXPECT_EQ(config.parallelism.reduce_dtype, "bf16");
}

struct Bad {
  std::string text;  // from line 3 on
  std::string wanted;
};

TEST(ConfigRefusal, names_line_key_and_remedy) {
  const std::vector<Bad> cases = {
      // Unknown names.
      {"[optimiser]\nlr = 1\n",
       "run.toml:3: [optimiser]: unknown section; did you mean 'optimizer'?"},
      {"[quantize.linear.float8]\nx = 1\n", "run.toml:3: [quantize]: unknown section"},
      {"[compile]\n", "run.toml:3: [compile]: unknown section"},
      {"[optimizer]\n\nlrr = 1\n", "run.toml:5: optimizer.lrr: unknown key; did you mean 'lr'?"},
      {"[training]\nwarmup_steps = 3\n",
       "run.toml:4: training.warmup_steps: unknown key; did you mean 'warmup_steps' of section "
       "[lr_scheduler]?"},
      {"[activation_checkpoint]\nmemory_budget = 3\n",
       "run.toml:4: activation_checkpoint.memory_budget: unknown key; allowed are mode"},
      {"[training]\nsqe_len = 3\n",
       "run.toml:4: training.sqe_len: unknown key; did you mean 'seq_len'?"},
      // Wrong types.
      {"[training]\nsteps = \"many\"\n",
       "run.toml:4: training.steps: found the string \"many\", expected an integer"},
      {"[training]\nsteps = 10.5\n",
       "run.toml:4: training.steps: found the number 10.5, expected an integer"},
      {"[training]\nsteps = [1]\n",
       "run.toml:4: training.steps: found an array, expected an integer"},
      {"[training]\nsteps.a = 1\n",
       "run.toml:4: training.steps: found a table, expected an integer"},
      {"[training]\nsteps = 1979-05-27\n",
       "run.toml:4: training.steps: found a date or time, expected an integer"},
      {"[optimizer]\nlr = \"3e-4\"\n",
       "run.toml:4: optimizer.lr: found the string \"3e-4\", expected a number"},
      {"[checkpoint]\nenable = 1\n",
       "run.toml:4: checkpoint.enable: found the integer 1, expected a boolean"},
      {"[job]\ndump_folder = true\n",
       "run.toml:4: job.dump_folder: found the boolean true, expected a string"},
      // Ranges and choices.
      {"[training]\nsteps = 0\n", "run.toml:4: training.steps = 0: must be at least 1; nearest: 1"},
      {"[training]\nsteps = 9000000000000\n",
       "run.toml:4: training.steps = 9000000000000: must be at most 1000000000000"},
      {"[training]\nlocal_batch_size = -2\n",
       "run.toml:4: training.local_batch_size = -2: must be from 1 to 1048576; nearest: 1"},
      {"[training]\nseq_len = -3\n", "run.toml:4: training.seq_len = -3: must be -1 or from 1 to"},
      {"[optimizer]\nlr = 0\n", "run.toml:4: optimizer.lr = 0: must be above 0, at most 1000"},
      {"[optimizer]\nlr = nan\n", "run.toml:4: optimizer.lr = nan: must be finite"},
      {"[optimizer]\nlr = -inf\n", "run.toml:4: optimizer.lr = -inf: must be finite"},
      {"[optimizer]\nbeta2 = 1.0\n",
       "run.toml:4: optimizer.beta2 = 1: must be at least 0, below 1"},
      {"[optimizer]\nweight_decay = -0.1\n",
       "run.toml:4: optimizer.weight_decay = -0.1: must be from 0 to 1000; nearest: 0"},
      {"[optimizer]\nname = \"adam\"\n",
       "run.toml:4: optimizer.name = \"adam\": must be one of AdamW, Muon; did you mean 'AdamW'?"},
      {"[training]\ndtype = \"fp4\"\n",
       "run.toml:4: training.dtype = \"fp4\": must be one of auto, fp32, bf16"},
      {"[training]\ndataset_format = \"megatrom\"\n", "; did you mean 'megatron'?"},
      {"[lr_scheduler]\ndecay_type = \"sqrt\"\n", "must be one of constant, linear, cosine, wsd"},
      {"[lr_scheduler]\nmin_lr_factor = 1.5\n", "must be from 0 to 1; nearest: 1"},
      {"[lr_scheduler]\ndecay_ratio = 0\n",
       "lr_scheduler.decay_ratio = 0: must be above 0, at most 1"},
      {"[validation]\nsplit = 0.7\n",
       "run.toml:4: validation.split = 0.7: must be from 0 to 0.5; nearest: 0.5"},
      {"[validation]\nsamples = 0\n",
       "validation.samples = 0: must be -1 or at least 1; nearest: 1"},
      {"[validation]\nsteps = -2\n", "validation.steps = -2: must be from -1 to"},
      {"[validation]\nsamples = 7\nsteps = 3\n",
       "validation.steps = 3 and validation.samples = 7: give one of them"},
      {"[system]\ndevice = \"npu\"\n",
       "run.toml:4: system.device = \"npu\": must be one of auto, cuda, gpu, cpu"},
      {"[system]\ndeterminism = \"l2\"\n", "system.determinism = \"l2\": must be one of l1, fast"},
      {"[system]\ngpu = -1\n", "system.gpu = -1: must be from 0 to 1023; nearest: 0"},
      {"[system]\nthreads = 100000\n",
       "system.threads = 100000: must be from 0 to 4096; nearest: 4096"},
      {"[activation_checkpoint]\nmode = \"all\"\n", "must be one of none, selective, full"},
      {"[checkpoint]\nfolder = \"a\\u0000b\"\n",
       "checkpoint.folder: the string contains a zero byte"},
      {"[debug]\nseed = -1\n", "run.toml:4: debug.seed = -1: must be at least 0; nearest: 0"},
      // Rules between keys.
      {"[training]\nlocal_batch_size = 8\nglobal_batch_size = 20\n",
       "run.toml:5: training.global_batch_size = 20: must be a multiple of "
       "training.local_batch_size = 8; nearest: 16 or 24"},
      {"[training]\nglobal_batch_size = 3\n",
       "run.toml:4: training.global_batch_size = 3: must be a "
       "multiple of training.local_batch_size = 8; nearest: 8"},
      {"[training]\nseq_len = 512\n",
       "run.toml:4: training.seq_len = 512: must be at most the model's max_seq = 256; nearest: "
       "256"},
      {"[lr_scheduler]\nwarmup_steps = 100\ntotal_steps = 50\n",
       "run.toml:5: lr_scheduler.total_steps = 50: must be above lr_scheduler.warmup_steps = 100; "
       "nearest: 101"},
      {"[activation_checkpoint]\nblocks = 99\n",
       "run.toml:4: activation_checkpoint.blocks = 99: the model has"},
      {"[optimizer]\nmaster_dtype = \"u16\"\n[training]\ndtype = \"fp32\"\n",
       "run.toml:4: optimizer.master_dtype = u16: must be f32 if training.dtype = fp32"},
      {"[job]\nname = \"a/b\"\n", "run.toml:4: job.name: must have at most 128 bytes, no slash"},
      {"[job]\nname = \"a\\tb\"\n", "run.toml:4: job.name: must have at most 128 bytes"},
      {"[job]\nname = \"..\"\n", "run.toml:4: job.name: must have at most 128 bytes"},
      {"[job]\nname = \"" + std::string(129, 'x') + "\"\n", "run.toml:4: job.name: must have"},
      {"[training]\ndtype = \"float64\"\n",
       "run.toml:4: training.dtype = \"float64\": must be one of auto, fp32, bf16, fp16, "
       "fp8-tensor, fp8-block, fp8-delayed; float64 is not supported here"},
      {"[checkpoint]\nfolder = \"\"\n", "run.toml:4: checkpoint.folder = \"\": must name a folder"},
      {"[checkpoint]\nexport_folder = \"./checkpoint\"\n",
       "run.toml:4: checkpoint.export_folder = \"./checkpoint\": must not be the folder of "
       "checkpoints"},
      {"[checkpoint]\nexport_folder = \"x/../checkpoint/.\"\n",
       "run.toml:4: checkpoint.export_folder = \"x/../checkpoint/.\": must not be the folder of "
       "checkpoints"},
      {"[checkpoint]\nfolder = \"a\"\nexport_folder = \"a//\"\n",
       "run.toml:5: checkpoint.export_folder = \"a//\": must not be the folder of checkpoints"},
      {"[checkpoint]\nexport_folder = \".\"\n",
       "run.toml:4: checkpoint.export_folder = \".\": must not be the run's folder or one that "
       "contains it"},
      {"[checkpoint]\nexport_folder = \"x/../..\"\n",
       "run.toml:4: checkpoint.export_folder = \"x/../..\": must not be the run's folder"},
      {"[checkpoint]\nexport_folder = \"/\"\n",
       "run.toml:4: checkpoint.export_folder = \"/\": must not be the run's folder"},
      {"[metrics]\nsave_tb_folder = \"checkpoint/\"\n",
       "run.toml:4: metrics.save_tb_folder = \"checkpoint/\": must not be the folder of "
       "checkpoints"},
      {"[metrics]\nsave_tb_folder = \"./weights\"\n",
       "run.toml:4: metrics.save_tb_folder = \"./weights\": must not be the folder of checkpoints"},
      {"[metrics]\nsave_tb_folder = \"\"\n",
       "run.toml:4: metrics.save_tb_folder = \"\": must name"},
      {"[validation]\nenable = true\nsplit = 0\n",
       "run.toml:5: validation.split = 0: must be above 0"},
      {"[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_slices = \"thin\"\n",
       "run.toml:5: parallelism.context_parallel_slices"},
      {"[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_ulysses_degree = 2\n",
       "run.toml:5: parallelism.context_parallel_ulysses_degree = 2: with "
       "parallelism.context_parallel_kind = gather no ranks exchange heads; nearest: 1, or "
       "parallelism.context_parallel_kind = ulysses_gather"},
      {"[parallelism]\npipeline_parallel_first_layers = [0, 1.5]\n",
       "run.toml:4: parallelism.pipeline_parallel_first_layers: found an array, expected a list of "
       "integers"},
      {"[parallelism]\npipeline_parallel_first_layers = 3\n",
       "run.toml:4: parallelism.pipeline_parallel_first_layers: found the integer 3, expected a "
       "list of integers"},
      {"[parallelism]\npipeline_parallel_first_layers = [0, -3]\n",
       "run.toml:4: parallelism.pipeline_parallel_first_layers = -3: must be from 0 to 1048576"},
      {"[parallelism]\ntensor_parallel_degree = 5\n",
       "run.toml:4: parallelism.tensor_parallel_degree = 5: heads = 6, kv_heads = 2 and ffn = 1024 "
       "do not divide by it; nearest: 2"},
      {"[parallelism]\ndata_parallel_shard_degree = 2\nzero_stage = 0\n",
       "run.toml:5: parallelism.zero_stage = 0: shards nothing"},
      {"[parallelism]\npipeline_parallel_degree = 0\n",
       "run.toml:4: parallelism.pipeline_parallel_degree = 0: must be -1 or from 1 to 4096"},
      {"[parallelism]\ntensor_parallel_degree = -1\ncontext_parallel_degree = -1\n",
       "run.toml:5: parallelism.context_parallel_degree = -1: only one degree can be -1 (the "
       "remaining ranks), but "
       "parallelism.tensor_parallel_degree is -1 too"},
      // Syntax.
      {"[training\n", "run.toml:3: not TOML"},
      {"[[[training]\nsteps = 1\n", "run.toml:3: not TOML"},
      {"[debug]\n[[[training]", "run.toml:4: not TOML"},
      {"[training]\nsteps = \n", "run.toml:4: not TOML"},
      {"[training]\nsteps = 1\nsteps = 2\n", "run.toml:5: not TOML"},
      {"[job]\ndescription = \"\xff\xfe\"\n", "run.toml:4: not TOML"},
      {"\u00e9 = 1\n", "run.toml:3: not TOML"},
      {"\ufe7f = 1\n", "run.toml:3: not TOML"},
  };
  for (const Bad& bad : cases) {
    const std::string message = refusal(small(bad.text));
    expect_contains(message, bad.wanted);
    // One mistake, one problem.
    EXPECT_LE(lines_of(message), 1) << message;
  }
}

TEST(ConfigRefusal, of_names_outside_of_sections) {
  expect_contains(refusal("lr = 1\n" + small("")),
                  "run.toml:1: lr: unknown key; did you mean 'lr' of section [optimizer]?");
  expect_contains(refusal("optimizer = 3\n" + small("")),
                  "run.toml:1: optimizer: found the integer 3, expected the section [optimizer]");
  expect_contains(refusal("[[optimizer]]\nlr = 3\n" + small("")),
                  "run.toml:1: optimizer: found an array, expected the section [optimizer]");
  expect_contains(refusal("\"\" = 3\n" + small("")), "unknown key; keys belong to sections");
  expect_contains(refusal("[\"\"]\nx = 1\n" + small("")), "run.toml:1: []: unknown section");
}

TEST(ConfigRefusal, of_models) {
  expect_contains(refusal(""), "model.name: required, but not given; models are gpt2-1.5b, ");
  expect_contains(refusal("[model]\nname = \"llama15m\"\n"),
                  "run.toml:2: model.name: no model 'llama15m'; did you mean 'llama-11m'?");
  expect_contains(refusal("[model]\nname = \"nowhere/x.toml\"\n"),
                  "run.toml:2: model.name: nowhere/x.toml: no such file");
  expect_contains(refusal("[model]\nname = 3\n"),
                  "run.toml:2: model.name: found the integer 3, expected a string");
  // llama-15m with a billion token ids and a step of 2^48 tokens.
  expect_contains(refusal(small("vocab_size = 1073741824\nmax_seq = 16777216\n[training]\n"
                                "seq_len = 16777216\nglobal_batch_size = 16777216\n")),
                  "training.global_batch_size = 16777216: with training.seq_len = 16777216 model ");
  expect_contains(refusal(small("vocab_size = 1\n")),
                  "run.toml:3: model.vocab_size = 1: must be 0 or from 2 to 1073741824");
  const TemporaryFolder folder;
  folder.write("models/bad.toml",
               "family = 'llama'\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 3\nffn = 8\n"
               "vocab = 9\nmax_seq = 4\n");
  const auto file = folder.write("run.toml", "[model]\nname = 'bad'\n[training]\nsteps = 0\n");
  const std::string message = message_of([&] { (void)load(file, {}); });
  expect_contains(message, "run.toml:2: model.name: ");
  expect_contains(message, "bad.toml:5: kv_heads = 3: must divide heads = 4");
  expect_contains(message, "run.toml:4: training.steps = 0");
}

TEST(ConfigRefusal, of_overrides) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--training.steps=many",
       "override --training.steps=many: training.steps: found the string \"many\", expected an "
       "integer"},
      {"--training.steps=1e3", "training.steps: found the number 1000, expected an integer"},
      {"--training.steps=", "training.steps: found the string \"\", expected an integer"},
      {"--training.steps", "override --training.steps: no value; write --section.key=value"},
      {"training.steps", "override training.steps: no value"},
      {"--steps=3",
       "override --steps=3: steps: unknown key; did you mean 'steps' of section [training]?"},
      {"--trainin.steps=3",
       "override --trainin.steps=3: [trainin]: unknown section; did you mean 'training'?"},
      {"--training.step=3", "training.step: unknown key; did you mean 'steps'?"},
      {"--validation.enable=yes",
       "validation.enable: found the string \"yes\", expected a boolean"},
      {"--optimizer.lr=1x", "optimizer.lr: found the string \"1x\", expected a number"},
      {"--optimizer.lr=inf", "optimizer.lr = inf: must be finite"},
      {"--training.seq_len=300",
       "override --training.seq_len=300: training.seq_len = 300: must be at most"},
      {"--training.steps=99999999999999999999", "training.steps"},
      {"=3", "no value"},
      {"", "no value"},
  };
  for (const auto& [override_text, wanted] : cases) {
    const std::string message = refusal(small(""), {override_text});
    expect_contains(message, wanted);
    EXPECT_LE(lines_of(message), 1) << message;
  }
}

TEST(ConfigRefusal, reports_every_problem_at_once_in_the_order_of_the_file) {
  const std::string message =
      refusal("[model]\nname = \"nothing\"\n[training]\nsteps = 0\nseqlen = 3\ndtype = 5\n[zzz]\n",
              {"--optimizer.lr=-1", "--parallelism.context_parallel_degree=8",
               "--parallelism.context_parallel_ulysses_degree=3"});
  size_t at = 0;
  for (const char* part :
       {"7 problems", ":4: training.steps", ":5: training.seqlen", ":6: training.dtype",
        ":7: [zzz]", "override --optimizer.lr=-1", "model.name: no model 'nothing'",
        "context_parallel_ulysses_degree = 3"}) {
    const size_t found = message.find(part, at);
    EXPECT_NE(found, std::string::npos) << part << "\n" << message;
    if (found != std::string::npos) at = found;
  }
}

TEST(ConfigRefusal, of_resolved_files) {
  const TemporaryFolder folder;
  const base::Json good = to_json(load_solved("", with({"model.name=llama-15m"})));
  const auto refused = [&](const std::string& text) {
    const auto file = folder.write("config.json", text);
    const std::string message = message_of([&] { (void)load(file, {}); });
    expect_contains(message, "config.json");
    return message;
  };
  base::Json bad = good;
  bad["version"] = 2;
  expect_contains(refused(bad.dump()), "version: this program reads version 1");
  bad = good;
  bad["training"]["seq_length"] = 3;
  expect_contains(refused(bad.dump()), "training.seq_length: unknown key; did you mean 'seq_len'?");
  bad = good;
  bad["training"]["steps"] = nullptr;
  expect_contains(refused(bad.dump()), "training.steps: found null, expected an integer");
  bad["training"]["steps"] = uint64_t{1} << 63;
  expect_contains(refused(bad.dump()),
                  "found the integer 9223372036854775808, which is above 2^63 - 1");
  bad = good;
  bad["model"]["dims"]["heads"] = 5;
  expect_contains(refused(bad.dump()), "kv_heads = 2: must divide heads = 5");
  bad["model"]["dims"].erase("heads");
  expect_contains(refused(bad.dump()), "heads: required, but not given");
  bad["model"]["dims"] = 3;
  expect_contains(refused(bad.dump()), "model.dims: expected an object");
  expect_contains(refused("{\"training\":{\"steps\":1,\"steps\":2}}"), "duplicate key 'steps'");
  expect_contains(refused("{\"training\":"), "not JSON");
  expect_contains(refused("{\"model_type\":\"llama\"}"), "give its path as model.name");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  expect_contains(refused(deep), "nested deeper than 32");
  std::string wide = "{\"a\":1";
  for (int i = 0; i < 1'000'000; ++i) wide += fmt::format(",\"{}\":1", i);
  expect_contains(refused(wide + "}"), "more than 10000 keys in one object");
}

TEST(ConfigRefusal, of_keys_that_nest_deep) {
  std::string deep = "a";
  for (int i = 0; i < 1'000'000; ++i) deep += ".a";
  expect_contains(refusal(deep + " = 1\n"), "run.toml: 1000000 dots; a configuration has at most");
}

TEST(ConfigRefusal, of_files_that_cannot_be_read) {
  const TemporaryFolder folder;
  EXPECT_THROW((void)load(folder.path() / "gone.toml", {}), base::ConfigError);
  EXPECT_THROW((void)load(folder.path(), {}), base::IoError);
  expect_contains(message_of([&] { (void)load(folder.path() / "gone.toml", {}); }),
                  "gone.toml: no such file");
}

TEST(Spelling, distance_counts_typing_errors) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(nearest("setps", {"seed", "steps"}), "steps");
  EXPECT_EQ(nearest("xy", {"lr", "eps"}), std::nullopt);
  EXPECT_EQ(nearest(std::string(1000, 'a'), {"aaa"}), std::nullopt);
}

}  // namespace
}  // namespace trireme::config
