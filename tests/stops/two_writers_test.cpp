// SPDX-License-Identifier: Apache-2.0
// Two starts of one run in one folder: exactly one continues; the other is refused while the first
// is alive, stopped or not, or fences it with --take-over. Nothing that either of them saved is
// damaged, and the final weights are those of an undisturbed run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <random>
#include <regex>

#include "comm/gloo.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t steps = 120;

// How one start ended.
enum class End : uint8_t {
  done,        // it trained to the last step
  came_late,   // it found the last step saved and had nothing to do
  refused,     // and the message names the host and a process of the other start
  locked_out,  // the other start was stopped in the middle of a commit
  fenced,
  other,
};
std::ostream& operator<<(std::ostream& out, End end) {
  constexpr std::array names = {"done",       "came late", "refused",
                                "locked out", "fenced",    "another end"};
  return out << names.at(static_cast<size_t>(end));
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool names_holder(const std::string& log, const Job& holder) {
  if (log.find(host_name()) == std::string::npos) return false;
  for (const pid_t process : holder.seen()) {
    if (std::regex_search(log, std::regex(fmt::format("\\b{}\\b", process)))) return true;
  }
  return false;
}

End end_of(const Outcome& outcome, const std::string& log, const Job& other) {
  if (outcome.exit_code == exit_done) {
    return resumed_step(log) == steps ? End::came_late : End::done;
  }
  if (outcome.exit_code == exit_fenced) return End::fenced;
  const bool is_refusal = outcome.exit_code == exit_failed || outcome.exit_code == exit_bad_call;
  if (!is_refusal) return End::other;
  if (log.find("is starting or committing here") != std::string::npos) return End::locked_out;
  return names_holder(log, other) ? End::refused : End::other;
}

// Returns the names of files that only one of the two has, or that differ. Drafts of checkpoints do
// not count: a run that was stopped in the middle of a save leaves its draft to the run that took
// over.
std::string differing_names(Tree before, Tree after) {
  for (Tree* tree : {&before, &after}) {
    std::erase_if(*tree,
                  [](const auto& file) { return file.first.find(".tmp-") != std::string::npos; });
  }
  std::string names;
  for (const auto& [name, bytes] : before) {
    const auto found = after.find(name);
    if (found == after.end()) names += name + " is gone; ";
    if (found != after.end() && found->second != bytes) names += name + " changed; ";
  }
  for (const auto& [name, bytes] : after) {
    if (!before.contains(name)) names += name + " is new; ";
  }
  return names;
}

struct Attempt {
  bool is_race = false;     // both start at once; otherwise the second one while the first trains
  bool takes_over = false;  // the second one has --take-over
  bool is_paused = false;   // SIGSTOP of the first, and SIGCONT later
  bool sleeps_through = false;  // the SIGCONT is sent when the second one has ended
  std::array<LauncherKind, 2> launchers{};

  std::string text() const {
    return fmt::format("{} then {}: {}{}{}", name_of(launchers[0]), name_of(launchers[1]),
                       is_race ? "at once" : "one while the other trains",
                       takes_over ? ", --take-over" : "",
                       !is_paused       ? ""
                       : sleeps_through ? ", the first stopped until the second has ended"
                                        : ", the first stopped for a while");
  }
};

Attempt drawn_attempt(std::mt19937& random) {
  Attempt attempt{.is_race = random() % 3 == 0,
                  .takes_over = random() % 2 == 0,
                  .is_paused = random() % 3 != 0,
                  .sleeps_through = random() % 3 != 0};
  for (LauncherKind& launcher : attempt.launchers) {
    launcher = is_full() && random() % 4 == 0 ? LauncherKind::launch : LauncherKind::train;
  }
  return attempt;
}

JobOptions options_of(LauncherKind launcher, const Words& more) {
  JobOptions options{
      .launcher = launcher,
      .ranks = launcher == LauncherKind::launch ? 2 : 1,
      .train_words = {"--resume", "auto", fmt::format("--training.steps={}", steps)}};
  options.train_words.insert(options.train_words.end(), more.begin(), more.end());
  return options;
}

class TwoWriters : public testing::Test {
 protected:
  void run(const Attempt& attempt, std::mt19937& random) {
    const auto drawn = [&](double high) {
      return high * static_cast<double>(random() % 1000) / 1000;
    };
    const Scratch scratch;
    write_stops_run(scratch);
    Job first(scratch, options_of(attempt.launchers[0], {}));
    if (!attempt.is_race) {
      const auto from = static_cast<int64_t>(random() % 80);
      ASSERT_TRUE(first.wait_for([&] { return last_step(first.log()).value_or(-1) >= from; }))
          << first.log();
    }
    const Words more = attempt.takes_over ? Words{"--take-over"} : Words{};
    std::unique_ptr<Job> second;
    if (attempt.is_race) {
      second = std::make_unique<Job>(scratch, options_of(attempt.launchers[1], more));
      first.pass(drawn(0.3));
    }
    if (attempt.is_paused) {
      (void)first.ranks();
      first.signal_all(SIGSTOP);
      first.pass(0.02);  // reads what it has logged before
    }
    // If the first one was near its end, it may have ended before the second one checked.
    const int64_t reached = last_step(first.log()).value_or(0);
    const bool is_certain =
        !attempt.is_race && attempt.is_paused && attempt.sleeps_through && reached < steps - 10;
    if (!second) second = std::make_unique<Job>(scratch, options_of(attempt.launchers[1], more));
    Tree left;
    if (attempt.is_paused) {
      if (attempt.sleeps_through) {
        second->wait();
        left = scratch.tree("run");
      } else {
        second->pass(drawn(0.5));
      }
      first.signal_all(SIGCONT);
    }
    for (int look = 0; look < 1500 && !(second->has_ended() && first.has_ended()); ++look) {
      for (Job* job : {&first, second.get()}) {
        (void)job->ranks();  // their process ids, for names_holder()
        job->pass(0.02);
      }
    }
    const Outcome second_outcome = second->wait();
    const Outcome first_outcome = first.wait();
    const std::string logs =
        fmt::format("first, exit code {}:\n{}\nsecond, exit code {}:\n{}", first_outcome.exit_code,
                    first.log(), second_outcome.exit_code, second->log());
    const End first_end = end_of(first_outcome, first.log(), *second);
    const End second_end = end_of(second_outcome, second->log(), first);
    ++count_[static_cast<size_t>(first_end)];
    ++count_[static_cast<size_t>(second_end)];
    EXPECT_TRUE(first_end != End::other && second_end != End::other) << logs;
    EXPECT_EQ((first_end == End::done) + (second_end == End::done), 1) << logs;
    if (is_certain && second_end != End::locked_out) {
      EXPECT_EQ(first_end, attempt.takes_over ? End::fenced : End::done) << logs;
      EXPECT_EQ(second_end, attempt.takes_over ? End::done : End::refused) << logs;
    }
    if (first_end == End::fenced && attempt.sleeps_through && attempt.is_paused) {
      EXPECT_EQ(differing_names(left, scratch.tree("run")), "") << logs;
    }
    const Outcome verified = trireme(scratch, {"ckpt", "verify", "run"});
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
    EXPECT_EQ(newest_checkpoint(scratch), steps) << logs;
    ASSERT_TRUE(scratch.has(final_weights)) << logs;
    EXPECT_EQ(sha256_of(scratch.read(final_weights)), sha256_of(quiet_weights(steps))) << logs;
  }

  std::array<int, 6> count_{};  // by End
};

TEST_F(TwoWriters, one_continues_and_the_other_is_refused_or_fenced) {
  if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
  std::mt19937 random(printed_seed("two writers"));
  const int attempts = is_full() ? 100 : 10;
  for (int i = 0; i < attempts; ++i) {
    const Attempt attempt = drawn_attempt(random);
    SCOPED_TRACE(fmt::format("attempt {}: {}", i, attempt.text()));
    run(attempt, random);
  }
  std::cout << fmt::format("two writers: {} attempts;", attempts);
  for (size_t end = 0; end < count_.size(); ++end) {
    std::cout << " " << count_[end] << " " << static_cast<End>(end);
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace trireme::tests
