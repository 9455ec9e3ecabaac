// SPDX-License-Identifier: Apache-2.0
#include "config/lists/phases.h"

#include <gtest/gtest.h>

#include "base/text/json.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

Config load_lists(const std::string& text, std::vector<std::string> overrides = {}) {
  const TemporaryFolder folder;
  return load_solved(folder.write("run.toml", "[model]\nname = \"llama-15m\"\n" + text),
                     {.overrides = std::move(overrides), .model_folders = {shipped_models()}});
}

std::string list_refusal(const std::string& text, std::vector<std::string> overrides = {}) {
  return message_of([&] { (void)load_lists(text, std::move(overrides)); });
}

const std::string two_sets =
    "[training]\nseq_len = 64\nlocal_batch_size = 4\n"
    "[[training.dataset]]\npath = \"data/web.bin\"\nweight = 3\n"
    "[[training.dataset]]\npath = \"code\"\nname = \"programs\"\nmax_epochs = 2\n";

TEST(Phases, a_configuration_without_phases_has_one) {
  const Config c = load_lists("[training]\ndataset_path = \"a/b.bin\"\nseq_len = 32\n");
  const std::vector<PhaseSettings> phases = phases_of(c);
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].seq_len, 32);
  EXPECT_EQ(phases[0].weights, std::vector<double>{1});
  EXPECT_EQ(dataset_list(c).front().name, "b");
}

TEST(Phases, a_phase_changes_what_it_names_and_keeps_the_rest) {
  const Config c = load_lists(
      two_sets +
      "[[phase]]\nfrom_step = 11\nseq_len = 128\nlr_factor = 0.5\n"
      "[[phase]]\nname = \"end\"\nfrom_tokens = 1000000\nweights = { programs = 1 }\nlr = 1e-5\n");
  const std::vector<PhaseSettings> phases = phases_of(c);
  ASSERT_EQ(phases.size(), 3U);
  EXPECT_EQ(phases[0].name, "phase 1");
  EXPECT_EQ(phases[0].weights, (std::vector<double>{3, 1}));
  EXPECT_EQ(phases[1].name, "phase 2");
  EXPECT_EQ(phases[1].from_step, 11);
  EXPECT_EQ(phases[1].seq_len, 128);
  EXPECT_EQ(phases[1].lr_factor, 0.5);
  EXPECT_EQ(phases[1].weights, (std::vector<double>{3, 1}));
  EXPECT_EQ(phases[2].name, "end");
  EXPECT_EQ(phases[2].seq_len, 128);
  EXPECT_EQ(phases[2].weights, (std::vector<double>{0, 1}));
  EXPECT_EQ(phases[2].lr, 1e-5);
  EXPECT_EQ(c.training.dataset[0].name, "web");
  const Config changed = with_phase(c, phases[1]);
  EXPECT_EQ(changed.training.seq_len, 128);
}

TEST(Phases, a_phase_from_the_first_step_replaces_the_first_one) {
  const Config c = load_lists(two_sets + "[[phase]]\nfrom_step = 1\nweights = { web = 1 }\n");
  const std::vector<PhaseSettings> phases = phases_of(c);
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].weights, (std::vector<double>{1, 0}));
}

TEST(Phases, lists_survive_the_resolved_form_and_overrides) {
  const Config c = load_lists(two_sets + "[[phase]]\nfrom_step = 5\nweights = { web = 1.5 }\n",
                              {"--training.dataset[1].weight=0.25", "--phase[0].from_step=7",
                               "--phase[0].weights=web=2,programs=4"});
  EXPECT_EQ(c.training.dataset[1].weight, 0.25);
  EXPECT_EQ(c.phase[0].from_step, 7);
  EXPECT_EQ(c.phase[0].weights, (NamedNumbers{{"web", 2}, {"programs", 4}}));
  const TemporaryFolder folder;
  const Config again = load_solved(folder.write("run.json", to_json(c).dump()), {});
  EXPECT_TRUE(again == c);
  EXPECT_EQ(again.phase[0].weights, c.phase[0].weights);
}

TEST(Phases, the_resolved_form_without_lists_has_no_lists) {
  const base::Json json = to_json(load_lists("[training]\nseq_len = 32\n"));
  EXPECT_FALSE(json.contains("phase"));
  EXPECT_FALSE(json.at("training").contains("dataset"));
  EXPECT_FALSE(json.at("validation").contains("dataset"));
}

TEST(Phases, bad_lists_are_refused_with_place_and_reason) {
  const struct {
    std::string text, message;
  } cases[] = {
      {two_sets + "[training.dataset]\n", "not TOML"},
      {"[[training.datasets]]\npath = \"a\"\n",
       "run.toml:3: [[training.datasets]]: unknown list; did you mean 'training.dataset'?"},
      {"[phase]\nfrom_step = 3\n", "run.toml:3: [phase]: this is a list; write [[phase]]"},
      {"[training]\ndataset = 3\n", "training.dataset: this is a list; write [[training.dataset]]"},
      {"[[training.dataset]]\nweight = 1\n", "training.dataset[0].path: required, but not given"},
      {"[[training.dataset]]\npath = \"a\"\nweigth = 1\n",
       "run.toml:5: training.dataset[0].weigth: unknown key; did you mean 'weight'?"},
      {"[[training.dataset]]\npath = \"a\"\nweight = -1\n",
       "training.dataset[0].weight = -1: must be"},
      {"[[training.dataset]]\npath = \"a\"\nweight = 0\n", "all weights are 0"},
      {two_sets + "[[training.dataset]]\npath = \"x\"\nname = \"programs\"\n",
       "another element of [[training.dataset]] has this name"},
      {"[training]\ndataset_path = \"x\"\n[[training.dataset]]\npath = \"a\"\n",
       "training.dataset_path = \"x\": [[training.dataset]] is given, too"},
      {"[validation]\ndataset_path = \"x\"\n[[validation.dataset]]\npath = \"a\"\n",
       "[[validation.dataset]] is given, too"},
      {two_sets + "[[phase]]\nseq_len = 64\n", "phase[0]: give one of from_step and from_tokens"},
      {two_sets + "[[phase]]\nfrom_step = 3\nfrom_tokens = 5\n", "give only one of from_step"},
      {two_sets + "[[phase]]\nfrom_step = 9\n[[phase]]\nfrom_step = 9\n",
       "phase[1].from_step = 9: must be above 9"},
      {two_sets + "[[phase]]\nfrom_step = 9\nweights = { wbe = 1 }\n",
       "no [[training.dataset]] has the name 'wbe'; names are web, programs"},
      {two_sets + "[[phase]]\nfrom_step = 9\nweights = { web = \"x\" }\n",
       "phase[0].weights: found a table, expected a table of numbers"},
      {two_sets + "[[phase]]\nfrom_step = 9\nweights = { web = 0 }\n", "all weights are 0"},
      {two_sets + "[[phase]]\nfrom_step = 9\nseq_len = 96\n",
       "a seq_len of 64 does not divide the largest one, 96"},
      {two_sets + "[[phase]]\nfrom_step = 9\nseq_len = 4096\n",
       "phase[0].seq_len = 4096: must be at most the model's max_seq"},
      {two_sets + "[[phase]]\nfrom_step = 9\nglobal_batch_size = 6\n",
       "phase[0].global_batch_size = 6"},
      {two_sets + "[[phase]]\nfrom_step = 9\nlr = 0.1\nlr_factor = 2\n",
       "lr is a constant rate, so lr_factor has no effect"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_NE(list_refusal(text).find(message), std::string::npos) << text << "\n"
                                                                   << list_refusal(text);
  }
}

}  // namespace
}  // namespace trireme::config
