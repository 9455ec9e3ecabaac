// SPDX-License-Identifier: Apache-2.0
#include "base/system/fatal_signals.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>

#include "base/system/line_writer.h"
#include "base/system/mapped_ranges.h"
#include "base/system/rank_activity.h"

namespace trireme::base {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool has_sanitizer = true;
#elif defined(__has_feature)
constexpr bool has_sanitizer = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool has_sanitizer = false;
#endif

constexpr size_t max_frames = 64, max_name = 4000, max_other_ranks = 16;

struct FatalSignal {
  int number;
  std::string_view name, meaning;
};
constexpr std::array signals = {
    FatalSignal{SIGSEGV, "SIGSEGV", "invalid memory access"},
    FatalSignal{SIGBUS, "SIGBUS", "memory that cannot be accessed"},
    FatalSignal{SIGILL, "SIGILL", "illegal instruction"},
    FatalSignal{SIGFPE, "SIGFPE", "arithmetic error"},
    FatalSignal{SIGABRT, "SIGABRT", "abort"},
};

// ---- what the handler needs, prepared before
std::atomic<bool> is_installed{false};
void (*exit_process)(int code) = nullptr;
std::array<char, max_name> program = {};  // path of the executable
const void* program_base = nullptr;

std::array<char, max_name + 1> log_file = {}, log_begin = {};  // change only while there is no log
std::atomic<bool> has_log{false}, log_is_taken{false};

std::atomic<pid_t> reporter{0};  // the thread that reports; 0: none yet

// ---- all below is async-signal-safe, except that backtrace() and dladdr() may take locks of the
// dynamic loader: give_up_after() bounds a wait for them

pid_t this_thread() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

// The system ends the process if it has not ended by then.
void give_up_after(unsigned seconds) noexcept {
  std::signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  ::alarm(seconds);
}

FatalSignal signal_of(int number) noexcept {
  for (const FatalSignal& signal : signals) {
    if (signal.number == number) return signal;
  }
  return {number, "signal", "fatal"};
}

const void* counter_of(const void* context) noexcept {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  (void)machine;
  return nullptr;
#endif
}

// "gemm 256 x 64 x 128"
void add_op(LineWriter& line, const RankActivity::Op& op) noexcept {
  line.add(op.name == nullptr ? "none" : op.name);
  bool is_first = true;
  for (const int64_t size : {op.m, op.n, op.k}) {
    if (op.name == nullptr || size <= 0) continue;
    line.add(is_first ? " " : " x ");
    line.add_signed(size);
    is_first = false;
  }
}

// "rank 1, step 57, last op gemm 256 x 64 x 128"
void add_activity(LineWriter& line, const RankActivity& activity) noexcept {
  if (activity.rank() < 0) {
    line.add("a thread of no rank");
  } else {
    line.add("rank ");
    line.add_signed(activity.rank());
  }
  if (activity.step() > 0) {
    line.add(", step ");
    line.add_signed(activity.step());
  }
  line.add(", last op ");
  add_op(line, activity.op());
}

// "signal 11 (SIGSEGV, invalid memory access) at address 0x10"
void add_cause(LineWriter& line, const FatalSignal& signal, const siginfo_t& info) noexcept {
  line.add("signal ");
  line.add_signed(signal.number);
  line.add(" (");
  line.add(signal.name);
  line.add(", ");
  line.add(signal.meaning);
  line.add(")");
  const bool is_fault = info.si_code > 0 && info.si_code != SI_KERNEL;
  if (is_fault) {
    line.add(" at address ");
    line.add_hex(reinterpret_cast<uintptr_t>(info.si_addr));
  } else if (info.si_pid != 0 && info.si_pid != ::getpid()) {
    line.add(" sent by process ");
    line.add_signed(info.si_pid);
  }
}

void report_other_ranks(const RankActivity& failing) noexcept {
  size_t others = 0;
  for (const RankActivity& activity : RankActivity::all()) {
    if (activity.rank() < 0 || &activity == &failing || ++others > max_other_ranks) continue;
    std::array<char, 512> buffer;
    LineWriter line(buffer);
    line.add("  beside it: ");
    add_activity(line, activity);
    line.add("\n");
    write_all(STDERR_FILENO, line.text());
  }
}

// Returns the addresses of the failing thread's calls, innermost first, as addresses of the calling
// instruction.
std::span<const char*> calls(std::span<const char*, max_frames> place, const void* at) noexcept {
  std::array<void*, max_frames> frames;
  const int found = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  const std::span<void*> all(frames.data(), static_cast<size_t>(std::max(found, 0)));
  // The frames before `at` are those of the handler.
  const auto begin = std::find(all.begin(), all.end(), at);
  const std::span<void*> known = begin == all.end() ? all : std::span<void*>(begin, all.end());
  for (size_t i = 0; i < known.size(); ++i) {
    // A return address may belong to the next function already.
    place[i] = static_cast<const char*>(known[i]) - (known[i] == at ? 0 : 1);
  }
  return place.first(known.size());
}

// One line a call, "  #3 /usr/bin/trireme(+0x1234)", then the command that names the functions.
void report_calls(const void* at) noexcept {
  std::array<const char*, max_frames> place;
  std::array<char, max_name + 64> buffer;
  std::array<char, max_name + 24 * max_frames> command_buffer;
  LineWriter command(command_buffer);
  command.add("  functions: addr2line -Cfpie ");
  command.add(program.data());
  size_t number = 0;
  for (const char* call : calls(place, at)) {
    LineWriter line(buffer);
    line.add("  #");
    line.add_number(number++);
    line.add(" ");
    Dl_info module{};
    if (::dladdr(call, &module) != 0 && module.dli_fname != nullptr) {
      const bool is_program = module.dli_fbase == program_base;
      const auto offset = static_cast<uint64_t>(call - static_cast<const char*>(module.dli_fbase));
      line.add(is_program ? program.data() : module.dli_fname);
      line.add("(+");
      line.add_hex(offset);
      line.add(")");
      if (is_program) {
        command.add(" ");
        command.add_hex(offset);
      }
    } else {
      line.add_hex(reinterpret_cast<uintptr_t>(call));
    }
    line.add("\n");
    write_all(STDERR_FILENO, line.text());
  }
  command.add("\n");
  write_all(STDERR_FILENO, command.text());
}

// Appends the report to the log. `exit_code` < 0: the signal ends the process.
void write_log(const FatalSignal& signal, std::string_view text, const RankActivity& activity,
               int exit_code) noexcept {
  if (!has_log) return;
  const int file = ::open(log_file.data(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;
  std::array<char, 6 * max_name> buffer;
  LineWriter line(buffer);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  line.add(log_begin.data());
  line.add("\"time\":");
  line.add_signed(now.tv_sec);
  const int64_t milliseconds = now.tv_nsec / 1'000'000;
  line.add(milliseconds < 10 ? ".00" : milliseconds < 100 ? ".0" : ".");
  line.add_signed(milliseconds);
  if (activity.step() > 0) {
    line.add(",\"step\":");
    line.add_signed(activity.step());
  }
  if (activity.rank() >= 0) {
    line.add(",\"rank\":");
    line.add_signed(activity.rank());
  }
  for (const std::string_view key : {",\"text\":\"", "\",\"data\":{\"reason\":\""}) {
    line.add(key);
    line.add_json(text);
  }
  line.add("\",\"signal\":");
  line.add_signed(signal.number);
  line.add(",\"name\":\"");
  line.add(signal.name);
  line.add("\",\"op\":\"");
  std::array<char, 256> op_buffer;
  LineWriter op(op_buffer);
  add_op(op, activity.op());
  line.add_json(op.text());
  line.add("\"");
  if (exit_code >= 0) {
    line.add(",\"exit_code\":");
    line.add_signed(exit_code);
  }
  line.add("}}\n");
  write_all(file, line.text());
  ::fsync(file);
  ::close(file);
}

// Returns whether the signal was an access to a mapped file that can no longer be read.
bool report_lost_file(const FatalSignal& signal, const siginfo_t& info) noexcept {
  std::array<char, max_name> buffer;
  const std::span<char> text(buffer);
  const size_t size = describe_mapping_fault(info.si_addr, text);
  if (size == 0) return false;
  const std::string_view lost(text.data(), size);
  write_all(STDERR_FILENO, "error: ");
  write_all(STDERR_FILENO, lost);
  write_all(STDERR_FILENO, "\n");
  write_log(signal, lost, RankActivity::current(), 1);
  return true;
}

void report(const FatalSignal& signal, const siginfo_t& info, const void* context) noexcept {
  const RankActivity& activity = RankActivity::current();
  std::array<char, 1024> buffer;
  LineWriter line(buffer);
  add_cause(line, signal, info);
  line.add(" in ");
  add_activity(line, activity);
  write_log(signal, line.text(), activity, -1);
  write_all(STDERR_FILENO, "error: ");
  line.add(", process ");
  line.add_signed(::getpid());
  line.add(", thread ");
  line.add_signed(this_thread());
  line.add("\n");
  write_all(STDERR_FILENO, line.text());
  report_other_ranks(activity);
  report_calls(counter_of(context));
}

// The signal takes its default action when the handler returns.
void use_default(int number, bool is_fault) noexcept {
  std::signal(number, SIG_DFL);
  if (!is_fault) std::raise(number);  // else the access is repeated
}

void on_fatal_signal(int number, siginfo_t* info, void* context) {
  const bool is_fault = info->si_code > 0;  // not sent by a process
  const pid_t thread = this_thread();
  pid_t first = 0;
  if (!reporter.compare_exchange_strong(first, thread)) {
    // The first thread ends the process when it has reported; a fault of its report ends it, too.
    while (first != thread) ::pause();
    use_default(number, is_fault);
    return;
  }
  const FatalSignal signal = signal_of(number);
  if (number == SIGBUS && is_fault && report_lost_file(signal, *info)) exit_process(1);
  if (!has_sanitizer) {
    give_up_after(10);
    report(signal, *info, context);
    ::alarm(0);
  }
  use_default(number, is_fault);
}

}  // namespace

void report_fatal_signals(void (*exit)(int code)) {
  exit_process = exit;
  std::array<void*, 4> frames;
  (void)::backtrace(frames.data(), static_cast<int>(frames.size()));  // loads libgcc_s
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) program[0] = '\0';
  Dl_info module{};
  if (::dladdr(reinterpret_cast<const void*>(&report_fatal_signals), &module) != 0) {
    program_base = module.dli_fbase;
  }
  struct sigaction action {};
  action.sa_sigaction = on_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const FatalSignal& signal : signals) {
    if (!has_sanitizer || signal.number == SIGBUS) ::sigaction(signal.number, &action, nullptr);
  }
  is_installed = true;
}

FatalSignalLog::FatalSignalLog(const std::string& file, const std::string& begin) {
  if (file.size() > max_name || begin.size() > max_name || log_is_taken.exchange(true)) return;
  is_used_ = true;
  std::memcpy(log_file.data(), file.c_str(), file.size() + 1);
  std::memcpy(log_begin.data(), begin.c_str(), begin.size() + 1);
  has_log = true;
}

FatalSignalLog::~FatalSignalLog() {
  if (!is_used_) return;
  has_log = false;
  log_is_taken = false;
}

SignalStack::SignalStack() {
  // The frame of the handler has the vector registers, up to 11 KiB; backtrace() and the texts take
  // the rest.
  constexpr size_t bytes = size_t{192} << 10U;
  if (has_sanitizer || !is_installed) return;
  memory_ = std::make_unique<char[]>(bytes);
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = bytes;
  ::sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

}  // namespace trireme::base
