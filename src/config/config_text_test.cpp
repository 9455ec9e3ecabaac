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

}  // namespace
}  // namespace trireme::config
