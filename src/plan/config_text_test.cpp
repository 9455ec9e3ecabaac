// SPDX-License-Identifier: Apache-2.0
#include "plan/config_text.h"

#include <gtest/gtest.h>

#include "config/config.h"
#include "config/document.h"
#include "config/files_test.h"
#include "config/job_layout.h"
#include "plan/confirm.h"
#include "plan/layout_text.h"
#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

config::Config loaded(const std::string& text, const Layout& l) {
  const config::TemporaryFolder folder;
  config::LoadOptions options;
  options.model_folders = {source_root() / "configs" / "models"};
  options.world = static_cast<int>(l.processors());
  options.overrides = {"--training.dataset_path=tokens.bin"};
  return config::load(folder.write("plan.toml", text), options);
}

// The plan that `train` would make of it is the one that was priced and confirmed.
TEST(ConfigText, any_runnable_layout_loads_as_itself) {
  const spec::Machine machine = shipped_machine("h100");
  Dice dice(12);
  for (const char* name : {"gpt2-124m", "llama-1b", "llama-8b", "llama3-70b"}) {
    const Job job = job_of(name, 128, 2048);
    for (int i = 0; i < 40; ++i) {
      Layout l = runnable_layout(dice, job);
      l.precision = dice.of<Precision>({Precision::bf16, Precision::fp32});
      Stack stack = trireme_stack();
      const auto either = [&] {
        return dice.of<base::DType>({base::DType::f32, base::DType::bf16});
      };
      keep_grads(stack, either(), either());
      keep_master(stack, dice.of<base::DType>({base::DType::f32, base::DType::u16}));
      const base::DType master = master_of(stack, l.precision);
      const bool bf16_grads = stack.grad_bytes < 4;
      const bool bf16_sums = stack.reduce_bytes < stack.grad_bytes;
      const config::Config config = loaded(
          config_text(job, l,
                      {name, "two\nlines", bf16_grads, bf16_sums, master == base::DType::u16}),
          l);
      const spec::JobLayout layout = config::layout_of(config);
      EXPECT_EQ(layout.ranks(), l.processors()) << to_text(l);
      EXPECT_EQ(layout.rank_microbatches(), l.micro_batches(job)) << to_text(l);
      EXPECT_EQ(config.training.local_batch_size, l.micro_batch);
      EXPECT_EQ(config.training.seq_len, job.seq_len);
      EXPECT_EQ(config.activation_checkpoint.mode, spec::name_of(l.recompute));
      EXPECT_EQ(config.training.dtype, name_of(l.precision));
      EXPECT_EQ(config.training.grad_dtype, bf16_grads ? "bf16" : "f32");
      EXPECT_EQ(config.parallelism.reduce_dtype, bf16_sums ? "bf16" : "f32");
      spec::OneRankOptions one = one_rank_of(job, l);
      one.recipe.grad = base::dtype_from_name(config.training.grad_dtype);
      one.master = base::dtype_from_name(config.optimizer.master_dtype);
      EXPECT_EQ(one.master, master);
      const spec::Plan made = spec::parallel_plan(
          spec::make_model(config.dims), one, config::split_of(config), job.backend);
      EXPECT_TRUE(made == confirm(job, machine, stack, l).plan) << name << ": " << to_text(l);
    }
  }
}

TEST(ConfigText, names_with_quotes_stay_names) {
  const Job job = job_of("gpt2-124m", 8, 1024);
  const std::string text = config_text(job, {}, {R"(a\"b".toml)", ""});
  EXPECT_NE(text.find(R"(name = "a\\\"b\".toml")"), std::string::npos) << text;
}

// A path may have any byte but 0 and '/', and the file that names it must read back.
TEST(ConfigText, names_and_comments_of_any_characters_read_back) {
  const Job job = job_of("gpt2-124m", 8, 1024);
  std::string controls;
  for (char c = 1; c < ' '; ++c) controls += c;
  const config::TemporaryFolder folder;
  const std::string model = config::read_text(source_root() / "configs/models/gpt2-124m.toml");
  for (const std::string& name :
       {controls, std::string("\x7f\x7f"), std::string("\\u0041\\\"'''\\n"),
        std::string("\xc3\xa9\xf0\x9f\x98\x80\xc2\x85"), std::string(" #=[]{}\t")}) {
    const std::string file = folder.write(name + ".toml", model).string();
    const std::string text = config_text(job, {}, {file, "plan " + name + "\xff"});
    EXPECT_EQ(loaded(text, {}).model.name, file) << text;
  }
}

TEST(ConfigText, a_name_that_is_not_utf8_is_refused) {
  const Job job = job_of("gpt2-124m", 8, 1024);
  const std::string message = config::message_of([&] {
    (void)config_text(job, {}, {"models/\xff.toml", ""});
  });
  EXPECT_NE(message.find("not UTF-8"), std::string::npos) << message;
}

TEST(ConfigText, comments_stand_at_the_head) {
  const Job job = job_of("gpt2-124m", 8, 1024);
  const std::string text = config_text(job, {}, {"gpt2-124m", "first\nsecond"});
  EXPECT_TRUE(text.starts_with("# first\n# second\n[model]\n")) << text;
}

}  // namespace
}  // namespace trireme::plan
