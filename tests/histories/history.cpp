// SPDX-License-Identifier: Apache-2.0
#include "tests/histories/history.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <random>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

constexpr int64_t steps = 80;

// The same numbers on every platform.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int below(int end) { return static_cast<int>(random_() % static_cast<uint64_t>(end)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool one_in(int count) { return below(count) == 0; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<int>(values.size())));
  }

 private:
  std::mt19937_64 random_;
};

struct Degrees {
  int replicate = 1, shard = 1, zero = -1, pp = 1, ep = 1, tp = 1, cp = 1;
  int ranks() const { return replicate * shard * pp * tp * cp; }
};

Degrees exact_degrees(Dice& dice) {
  switch (dice.below(6)) {
    case 0:
      return {.replicate = dice.between(2, 4)};
    case 1:
      return {.shard = dice.between(2, 4), .zero = dice.between(1, 3)};
    case 2:
      return {.replicate = 2, .shard = 2, .zero = dice.between(1, 3)};
    case 3:
      return {.replicate = dice.between(1, 2), .pp = 2};
    case 4:
      return {.shard = 2, .zero = dice.between(1, 2), .pp = 2};
    default: {
      Degrees degrees{.shard = dice.of({2, 4}), .zero = dice.between(1, 3), .ep = 2};
      if (degrees.shard == 2) degrees.replicate = dice.between(1, 2);
      return degrees;
    }
  }
}

Degrees near_degrees(Dice& dice) {
  Degrees degrees;
  (dice.one_in(2) ? degrees.tp : degrees.cp) = 2;
  switch (dice.below(4)) {
    case 0:
      break;
    case 1:
      degrees.replicate = 2;
      break;
    case 2:
      degrees.shard = 2;
      degrees.zero = dice.between(1, 3);
      break;
    default:
      degrees.pp = 2;
  }
  return degrees;
}

// Workers whose gradients are summed. Other schedules than 1f1b need one on each data rank.
int workers_of(const Degrees& d, bool is_1f1b) {
  const int data_ranks = d.replicate * d.shard;
  return data_ranks == 3 || !is_1f1b ? data_ranks : 4;
}

std::string parallelism(const Degrees& d, int workers, const std::string& schedule, Dice& dice) {
  std::string text = fmt::format(
      "[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
      "pipeline_parallel_degree = {}\nexpert_parallel_degree = {}\ntensor_parallel_degree = {}\n"
      "context_parallel_degree = {}\nlogical_dp = {}\npipeline_parallel_schedule = \"{}\"\n",
      d.replicate, d.shard, d.pp, d.ep, d.tp, d.cp, workers, schedule);
  if (d.zero >= 0) text += fmt::format("zero_stage = {}\n", d.zero);
  if (d.tp > 1 && dice.one_in(2)) text += "sequence_parallel = true\n";
  if (d.cp > 1) {
    text += fmt::format("context_parallel_kind = \"{}\"\n",
                        dice.of<const char*>({"gather", "ring", "ulysses"}));
  }
  return text;
}

std::string training(int workers, const std::string& dtype, Dice& dice) {
  return fmt::format(
      "local_batch_size = 1\nglobal_batch_size = {}\nseq_len = 32\nsteps = {}\ndtype = \"{}\"\n",
      (workers < 3 ? 4 : workers) * dice.between(1, 2), steps, dtype);
}

std::string config_of(const Degrees& degrees, Dice& dice) {
  std::string text = "[job]\ndump_folder = \"run\"\n[model]\n";
  text += fmt::format("name = \"{}\"\n", degrees.ep > 1 ? "experts.toml" : "tiny.toml");
  const std::string dtype =
      dice.of<const char*>({"fp32", "fp32", "fp32", "bf16", "fp8-delayed", "fp16"});
  const bool is_muon = dtype != "fp8-delayed" && dice.one_in(5);
  text += fmt::format("[optimizer]\nlr = 1e-3\nname = \"{}\"\n", is_muon ? "Muon" : "AdamW");
  const std::string schedule =
      degrees.pp > 1 && degrees.cp == 1 ? dice.of<const char*>({"1f1b", "gpipe", "zb-h1"}) : "1f1b";
  const int workers = workers_of(degrees, schedule == "1f1b");
  text += parallelism(degrees, workers, schedule, dice);
  text += fmt::format("[activation_checkpoint]\nmode = \"{}\"\n",
                      dice.of<const char*>({"none", "none", "selective", "full"}));
  text += fmt::format("[checkpoint]\ninterval = {}\n[elastic]\ndetect_s = 2\npeer_interval = {}\n",
                      dice.between(8, 40), dice.of({0, 1, 3, 10}));
  text += "[validation]\nenable = false\n[metrics]\nlog_freq = 10\n[comm]\ndeadline_s = 60\n";
  text += "[system]\nthreads = 1\ndevice = \"cpu\"\n[training]\n";
  const bool is_mixture = dice.one_in(4);
  if (!is_mixture) text += "dataset_path = \"text.txt\"\n";
  text += training(workers, dtype, dice);
  if (is_mixture) {
    text += "[[training.dataset]]\npath = \"text.txt\"\nname = \"bottles\"\nweight = 2\n";
    text += "[[training.dataset]]\npath = \"other.txt\"\nname = \"other\"\nweight = 1\n";
  }
  if (is_mixture && dice.one_in(2)) {
    text += fmt::format("[[phase]]\nfrom_step = {}\nweights = {{ other = 1 }}\n",
                        dice.between(10, 70));
  }
  return text;
}

Happening happening_of(Dice& dice, int ranks) {
  static constexpr std::array harms = {
      Harm::kill_rank,      Harm::kill_rank,   Harm::kill_rank,       Harm::kill_rank,
      Harm::kill_two_ranks, Harm::freeze_rank, Harm::kill_supervisor, Harm::kill_supervisor,
      Harm::kill_guardian,  Harm::stop,        Harm::kill_all};
  return {.harm = harms[static_cast<size_t>(dice.below(std::ssize(harms)))],
          .rank = dice.below(ranks),
          .steps_later = dice.between(3, 24),
          .more_seconds = 1e-3 * dice.below(30)};
}

constexpr std::string_view experts_model =
    "family = \"llama\"\nlayers = 2\nhidden = 16\nheads = 2\nffn = 32\nvocab = 256\nmax_seq = 32\n"
    "[moe]\nexperts = 4\nexperts_per_token = 2\nexpert_ffn = 16\nrenormalize = true\n"
    "aux_loss = 0.01\n";

// Halves of it are multiples of 16, as products in 8 bits need.
constexpr std::string_view model =
    "family = \"llama\"\nlayers = 2\nhidden = 32\nheads = 2\nffn = 64\nvocab = 256\n"
    "max_seq = 32\n";

}  // namespace

const char* name_of(Harm harm) {
  switch (harm) {
    case Harm::kill_rank:
      return "kill_rank";
    case Harm::kill_two_ranks:
      return "kill_two_ranks";
    case Harm::freeze_rank:
      return "freeze_rank";
    case Harm::kill_supervisor:
      return "kill_supervisor";
    case Harm::kill_guardian:
      return "kill_guardian";
    case Harm::stop:
      return "stop";
    case Harm::kill_all:
      return "kill_all";
  }
  return "";
}

History history_of(uint64_t seed, LayoutKind kind) {
  Dice dice(seed);
  const Degrees degrees = kind == LayoutKind::exact ? exact_degrees(dice) : near_degrees(dice);
  History history{.seed = seed, .ranks = degrees.ranks(), .steps = steps};
  history.config = config_of(degrees, dice);
  history.spares = dice.one_in(4) ? 1 : 0;
  const int count = dice.between(1, 3);
  for (int i = 0; i < count; ++i) history.happenings.push_back(happening_of(dice, history.ranks));
  // Once at most: epochs without a new step end the run.
  if (count > 1 && dice.one_in(3)) {
    Happening& hasty = history.happenings.back();
    hasty.steps_later = 0;
    hasty.more_seconds *= 10;
  }
  return history;
}

std::string to_text(const History& history) {
  std::string text = fmt::format("ranks {}, spares {}:", history.ranks, history.spares);
  for (const Happening& one : history.happenings) {
    text += fmt::format(" {} {} after {} steps + {:.3f} s;", name_of(one.harm), one.rank,
                        one.steps_later, one.more_seconds);
  }
  return text;
}

void write_files(const History& history, const std::string& folder) {
  std::string other;
  for (int i = 0; i < 100; ++i) other += fmt::format("The number {} follows {}.\n", i + 1, i);
  const auto write = [&](const std::string& name, std::string_view text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  };
  write("history.toml", history.config);
  write("tiny.toml", model);
  write("experts.toml", experts_model);
  write("text.txt", tiny_text(100));
  write("other.txt", other);
}

}  // namespace trireme::tests
