// SPDX-License-Identifier: Apache-2.0
#include "config/config_text.h"

#include <gtest/gtest.h>

#include "base/text/json.h"
#include "config/config.h"
#include "config/document.h"
#include "config/files/model_file.h"
#include "config/files_test.h"
#include "config/layout.h"
#include "spec/layout/layout_samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::config {
namespace {

constexpr spec::Workload one_step{.seq_len = 1024};
spec::Layout one_rank() { return spec::filled({}, {.seq_len = 1024}); }

Config loaded(const std::string& text, const spec::Layout& l) {
  const TemporaryFolder folder;
  LoadOptions options;
  options.model_folders = {shipped_models()};
  options.world = static_cast<int>(l.ranks());
  options.overrides = {"--training.dataset_path=tokens.bin"};
  return load_solved(folder.write("plan.toml", text), options);
}

// The plan that `train` makes of it equals the solved one, field by field.
TEST(ConfigText, any_layout_loads_as_itself) {
  spec::LayoutDice dice(12);
  for (const char* name : {"gpt2-124m", "llama-1b", "llama-8b"}) {
    const spec::ModelSizes sizes =
        spec::sizes_of(spec::make_model(model_from_file(name, {shipped_models()})));
    for (int i = 0; i < 60; ++i) {
      const spec::Layout l = spec::any_layout(dice, sizes, 1024);
      const spec::Workload work{.seq_len = 1024, .document_mask = dice.either()};
      const Config config = loaded(config_text(work, l, {name, "two\nlines"}), l);
      EXPECT_EQ(settled_layout(config), l) << spec::to_text(l);
      EXPECT_EQ(workload_of(config).seq_len, work.seq_len);
      EXPECT_EQ(workload_of(config).document_mask, work.document_mask);
      EXPECT_EQ(config.training.global_batch_size, l.global_batch());
      // A resolved configuration is the same.
      Config other;
      set_layout(other, l);
      EXPECT_EQ(layout_of(other).tp, l.tp);
      const TemporaryFolder folder;
      const Config again =
          load_solved(folder.write("run.json", to_json(config).dump()),
                      {.model_folders = {shipped_models()}, .world = static_cast<int>(l.ranks())});
      EXPECT_EQ(settled_layout(again), l) << spec::to_text(l);
    }
  }
}

TEST(ConfigText, names_with_quotes_stay_names) {
  const std::string text = config_text(one_step, one_rank(), {R"(a\"b".toml)", ""});
  EXPECT_NE(text.find(R"(name = "a\\\"b\".toml")"), std::string::npos) << text;
}

// A path may have any byte except 0 and '/', and the file that names it must read back.
TEST(ConfigText, names_and_comments_of_any_characters_read_back) {
  std::string controls;
  for (char c = 1; c < ' '; ++c) controls += c;
  const TemporaryFolder folder;
  const std::string model = read_text(shipped_models() / "gpt2-124m.toml");
  for (const std::string& name :
       {controls, std::string("\x7f\x7f"), std::string("\\u0041\\\"'''\\n"),
        std::string("\xc3\xa9\xf0\x9f\x98\x80\xc2\x85"), std::string(" #=[]{}\t")}) {
    const std::string file = folder.write(name + ".toml", model).string();
    const std::string text = config_text(one_step, one_rank(), {file, "plan " + name + "\xff"});
    EXPECT_EQ(loaded(text, one_rank()).model.name, file) << text;
  }
}

TEST(ConfigText, a_name_that_is_not_utf8_is_refused) {
  const std::string message = message_of([&] {
    (void)config_text(one_step, one_rank(), {"models/\xff.toml", ""});
  });
  EXPECT_NE(message.find("not UTF-8"), std::string::npos) << message;
}

TEST(ConfigText, comments_are_at_the_head) {
  const std::string text = config_text(one_step, one_rank(), {"gpt2-124m", "first\nsecond"});
  EXPECT_TRUE(text.starts_with("# first\n# second\n[model]\n")) << text;
}

// Keys of every kind, elements of lists and a model of no file read back as they were written.
TEST(ConfigText, any_keys_load_as_themselves) {
  const TemporaryFolder folder;
  Config config = load(folder.write("given.toml", R"([model]
name = "llama3.1-8b"
vocab_size = 1000
[optimizer]
lr = 3e-05
[precision]
recipe = "fp8-tensor"
bf16_blocks = [1, 3]
[checkpoint]
enable = false
[[training.dataset]]
path = "a \"b\"/c"
weight = 0.25
[[training.dataset]]
path = "d"
)"),
                       {.model_folders = {shipped_models()}});
  for (const bool has_dims : {false, true}) {
    for (const bool is_above : {false, true}) {
      WrittenKeys written{.comment = "head", .notes_above = is_above};
      written.notes["debug.seed"] = "a default that is written";
      written.notes["optimizer.lr"] = "was 3e-5";
      if (has_dims) written.dims = config.dims;
      const std::string text = toml_text(config, written);
      LoadOptions options;
      if (!has_dims) options.model_folders = {shipped_models()};
      Config again = load(folder.write("again.toml", text), options);
      EXPECT_TRUE(to_json(again) == to_json(config)) << text;
      EXPECT_NE(text.find("seed = 0"), std::string::npos) << text;
      EXPECT_NE(text.find(is_above ? "# was 3e-5\nlr" : "lr = 3e-05  # was 3e-5"),
                std::string::npos)
          << text;
    }
  }
}

TEST(ConfigText, the_sizes_of_a_model_may_be_in_the_file) {
  const TemporaryFolder folder;
  const std::string sizes = R"(
layers = 2
hidden = 64
heads = 4
ffn = 128
vocab = 100
max_seq = 32
)";
  const auto loaded_dims = [&](const std::string& text) {
    return load(folder.write("own.toml", text), {}).dims;
  };
  const spec::ModelDims named =
      loaded_dims("[model]\nname = \"mine\"\n[model.dims]\nfamily = \"llama\"" + sizes +
                  "[model.dims.rope_scaling]\nfactor = 4\n");
  EXPECT_EQ(named.name, "mine");
  EXPECT_EQ(named.hidden, 64);
  EXPECT_EQ(named.rope.scaling->factor, 4);
  EXPECT_EQ(loaded_dims("[model.dims]\nfamily = \"gpt2\"" + sizes).name, "model");
  const std::string wrong =
      message_of([&] { (void)loaded_dims("[model.dims]\nfamily = \"gpt2\"\nlayer = 1" + sizes); });
  EXPECT_NE(wrong.find("own.toml:3: layer: unknown key"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace trireme::config
