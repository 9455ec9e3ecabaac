// SPDX-License-Identifier: Apache-2.0
// Reports of fatal signals (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT): a handler writes to stderr
// which signal it was, at which address, what the failing thread worked on (rank_activity.h) and a
// backtrace that addr2line understands. Then the signal takes its default action, so that the exit
// status is that of the signal.
//
// An access to a mapped file that was truncated (mapped_ranges.h) is no bug: one line names the
// file, and the process ends with exit code 1.
//
// All state is global, because a signal handler has no other access to it.
#pragma once

#include <memory>
#include <string>

namespace trireme::base {

// Installs the handlers; called once, at the start of main(). `exit` ends the process at once
// (::_exit). Builds with a sanitizer report faults themselves: in them only lost mappings of files
// are handled.
void report_fatal_signals(void (*exit)(int code));

// While it exists, the handler also appends its report to a file, as one line of JSON: `begin`, the
// first members of an object with a comma after the last one, then "time", "step" and "rank" if
// they are known, "text", and "data" with "reason", "signal", "name", "op" and, if the process ends
// by itself, "exit_code". The file exists. A second log beside the first has no effect, nor has one
// with a name or a beginning of more than 4,000 bytes.
class FatalSignalLog {
 public:
  FatalSignalLog(const std::string& file, const std::string& begin);
  ~FatalSignalLog();
  FatalSignalLog(const FatalSignalLog&) = delete;
  FatalSignalLog& operator=(const FatalSignalLog&) = delete;

 private:
  bool is_used_ = false;
};

// Provides the calling thread with a stack for the handlers, which can then report an overflow of
// the thread's stack, too. Does nothing if no handlers are installed.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace trireme::base
