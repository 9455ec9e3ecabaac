// SPDX-License-Identifier: Apache-2.0
// A run whose store is attacked while it trains: it ends with the weights of an undisturbed run, no
// verdict, bounded memory in the launcher; the time of a step with and without attack is printed.
// TRIREME_FULL=1 attacks for ten minutes, TRIREME_ATTACK_SECONDS for that many seconds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/text/json.h"
#include "comm/gloo.h"
#include "tests/stops/stops_rig.h"
#include "tests/stops/store_attackers.h"

namespace trireme::tests {
namespace {

double attack_seconds() {
  if (const char* given = std::getenv("TRIREME_ATTACK_SECONDS")) return std::atof(given);
  return is_full() ? 600 : 4;
}

double time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string proc_text(pid_t process, const std::string& name) {
  std::ifstream in(fmt::format("/proc/{}/{}", process, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string variable(const std::string& environment, const std::string& name) {
  const std::string all = '\0' + environment, wanted = '\0' + name + '=';
  const size_t at = all.find(wanted);
  if (at == std::string::npos) return "";
  const size_t begin = at + wanted.size();
  return all.substr(begin, all.find('\0', begin) - begin);
}

int64_t resident_kib(pid_t process) {
  const std::string status = proc_text(process, "status");
  const size_t at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::atoll(status.c_str() + at + 6);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Span {
  double begin = 0, end = 0;
  bool is_attack = false;
};

// Returns the seconds between the lines of successive steps within one span, by kind of span.
std::array<std::vector<double>, 2> step_seconds(const std::string& metrics,
                                                const std::vector<Span>& spans) {
  std::array<std::vector<double>, 2> seconds;
  std::istringstream lines(metrics);
  double last = 0;
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("kind", "") != "train") continue;
    const double time = json.at("time");
    for (const Span& span : spans) {
      if (last >= span.begin && time <= span.end) {
        seconds[span.is_attack ? 1 : 0].push_back(time - last);
      }
    }
    last = time;
  }
  return seconds;
}

const Words step_words = {"--training.local_batch_size=16", "--training.global_batch_size=64",
                          "--checkpoint.interval=1000"};

TEST(StoreAttack, an_attacked_run_trains_to_the_same_weights) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  std::mt19937 random(printed_seed("attack"));
  const Scratch scratch;
  write_stops_run(scratch);
  const double total = attack_seconds(), phase = std::min(5.0, total / 4);
  JobOptions options{.ranks = 2, .train_words = step_words, .deadline_seconds = 3 * total + 300};
  options.train_words.push_back("--metrics.log_freq=1");
  std::vector<Span> spans;
  int64_t connections = 0, admissions = 0, largest_kib = 0;
  {
    Job job(scratch, options);
    ASSERT_TRUE(job.wait_for_step()) << job.log();
    const std::string environment = proc_text(job.ranks().front(), "environ");
    const StoreAttackers::Target target = {
        comm::parse_store_address(variable(environment, "TRIREME_STORE")),
        variable(environment, "TRIREME_TOKEN")};
    ASSERT_GE(target.token.size(), 32U);
    for (double attacked = 0; attacked < total; attacked += phase) {
      for (const bool is_attack : {false, true}) {
        std::unique_ptr<StoreAttackers> attackers;
        if (is_attack) attackers = std::make_unique<StoreAttackers>(target, random());
        const double begin = time_now();
        job.pass(is_attack ? phase : phase / 3);
        spans.push_back({begin, time_now(), is_attack});
        if (is_attack) {
          largest_kib = std::max(largest_kib, resident_kib(*job.seen().begin()));
          connections += attackers->connections();
          admissions += attackers->admissions();
          // On a busy machine idle threads may end late; the job's log is read in the meantime.
          const auto ended = std::async(std::launch::async, [&attackers] { attackers.reset(); });
          while (ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
            job.pass(0.05);
          }
        }
        ASSERT_FALSE(job.has_ended()) << job.log();
      }
    }
    job.stop(Stop::terminate, random);
    const Outcome outcome = job.wait();
    ASSERT_EQ(outcome.exit_code, exit_stopped) << job.log();
    EXPECT_EQ(job.log().find("error"), std::string::npos) << job.log();
    ASSERT_TRUE(saved_step(job.log())) << job.log();
  }
  EXPECT_EQ(admissions, 0);
  EXPECT_LT(largest_kib, 700 << 10);
  const auto seconds = step_seconds(scratch.read("run/metrics.jsonl"), spans);
  const int64_t steps = newest_checkpoint(scratch);
  std::cout << fmt::format(
      "attack: {:.0f} s, {} connections, {} steps; median step {:.3f} ms quiet, {:.3f} ms "
      "attacked, "
      "{:.3f} times; launcher at most {} MiB\n",
      total, connections, steps, 1e3 * median(seconds[0]), 1e3 * median(seconds[1]),
      median(seconds[1]) / median(seconds[0]), largest_kib >> 10);

  // Ten more steps, and the same on one rank without any attack.
  const std::string last = fmt::format("--training.steps={}", steps + 10);
  options.train_words = step_words;
  options.train_words.insert(options.train_words.end(), {"--resume", "auto", last});
  Job rest(scratch, options);
  ASSERT_EQ(rest.wait().exit_code, exit_done) << rest.log();
  const Scratch quiet;
  write_stops_run(quiet);
  Words words = {"train", "stops.toml", last, "--metrics.log_freq=1000"};
  words.insert(words.end(), step_words.begin(), step_words.end());
  const Outcome outcome = trireme(quiet, words, {.deadline_seconds = 2 * total + 300});
  ASSERT_EQ(outcome.exit_code, exit_done) << outcome.err;
  EXPECT_EQ(sha256_of(scratch.read(final_weights)), sha256_of(quiet.read(final_weights)));
}

}  // namespace
}  // namespace trireme::tests
