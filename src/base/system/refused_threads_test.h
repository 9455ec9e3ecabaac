// SPDX-License-Identifier: Apache-2.0
// During its lifetime the system refuses new threads, because their stacks would be larger than the
// address space. The error is that of a limit of tasks, and root gets it, too.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

namespace trireme::base {

class RefusedThreads {
 public:
  RefusedThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(::pthread_getattr_default_np(&huge), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&huge, size_t{1} << 48), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~RefusedThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace trireme::base
