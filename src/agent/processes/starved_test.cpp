// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/starved.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace trireme::agent {
namespace {

// A process that calls `body` until it is killed.
class Child {
 public:
  explicit Child(void (*body)()) : id_(::fork()) {
    for (; id_ == 0;) body();
  }
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t id() const { return id_; }
  // Also once a signal has reached it.
  bool is_ready_within(double seconds, bool expected) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) {
      if (has_ready_thread(id_) == expected) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  pid_t id_;
};

TEST(StarvedTest, a_process_that_computes_is_ready_until_it_is_stopped) {
  const Child child([] {
    static volatile int sum = 0;
    sum = sum + 1;
  });
  EXPECT_TRUE(child.is_ready_within(10, true));
  ASSERT_EQ(::kill(child.id(), SIGSTOP), 0);
  EXPECT_TRUE(child.is_ready_within(10, false));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(has_ready_thread(child.id()));
}

TEST(StarvedTest, a_process_that_waits_is_not_ready) {
  const Child child([] { ::pause(); });
  EXPECT_TRUE(child.is_ready_within(10, false));
}

TEST(StarvedTest, a_process_that_has_ended_is_not_ready) {
  pid_t ended = 0;
  {
    const Child child([] {
      static volatile int sum = 0;
      sum = sum + 1;
    });
    ended = child.id();
  }
  EXPECT_FALSE(has_ready_thread(ended));
}

}  // namespace
}  // namespace trireme::agent
