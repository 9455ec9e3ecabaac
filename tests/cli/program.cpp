// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text/json.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Runs in the child before exec: only calls that are safe after a fork.
[[noreturn]] void become(const fs::path& folder, char* const* words, const RunOptions& options,
                         const int (&streams)[2]) {
  const int nothing = ::open("/dev/null", O_RDONLY);
  bool is_ready = nothing >= 0 && ::dup2(nothing, 0) >= 0 && ::dup2(streams[0], 1) >= 0 &&
                  ::dup2(streams[1], 2) >= 0 && ::chdir(folder.c_str()) == 0;
  // A shell ignores SIGINT in background jobs, and nohup ignores SIGHUP.
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  if (options.max_file_bytes > 0) {
    // SIGXFSZ is ignored, so that a write fails with an error, as on a full disk.
    std::signal(SIGXFSZ, SIG_IGN);
    const auto most = static_cast<rlim_t>(options.max_file_bytes);
    const rlimit limit{most, most};
    is_ready = is_ready && ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
  }
  if (is_ready) ::execv(words[0], words);
  ::_exit(126);
}

}  // namespace

Scratch::Scratch() {
  std::string name = (fs::temp_directory_path() / "trireme_cli_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("mkdtemp");
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Scratch::write(const std::string& name, std::string_view bytes) const {
  fs::create_directories(at(name).parent_path());
  std::ofstream out(at(name), std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error(name + " could not be written");
}

std::string Scratch::read(const std::string& name) const {
  std::ifstream in(at(name), std::ios::binary);
  if (!in) throw std::runtime_error(name + " is not there");
  return {std::istreambuf_iterator<char>(in), {}};
}

Tree Scratch::tree(const std::string& below) const {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(path_ / below)) {
    const std::string name = fs::relative(entry.path(), path_ / below).string();
    if (entry.is_directory()) {
      tree[name + "/"] = "";
    } else {
      tree[name] = read((fs::path(below) / name).string());
    }
  }
  return tree;
}

Running::Running(const fs::path& folder, std::vector<std::string> command,
                 const RunOptions& options)
    : end_seconds_(now_seconds() + options.deadline_seconds) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) fail("pipe2");
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  process_ = ::fork();
  if (process_ < 0) fail("fork");
  if (process_ == 0) become(folder, words.data(), options, {out[1], err[1]});
  ::close(out[1]);
  ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Running::~Running() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  for (const int stream : {out_, err_}) {
    if (stream >= 0) ::close(stream);
  }
}

void Running::signal(int number) const {
  ASSERT_GT(process_, 0);
  ASSERT_EQ(::kill(process_, number), 0);
}

bool Running::is_late() const { return now_seconds() > end_seconds_; }

bool Running::read_streams(int wait_ms) {
  std::array<pollfd, 2> polled = {{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};  // poll() skips -1
  if (::poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) fail("poll");
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    int& stream = i == 0 ? out_ : err_;
    std::string& text = i == 0 ? outcome_.out : outcome_.err;
    std::array<char, 4096> part;
    const ssize_t count = ::read(stream, part.data(), part.size());
    if (count > 0) {
      text.append(part.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      ::close(std::exchange(stream, -1));
    }
  }
  return out_ >= 0 || err_ >= 0;
}

bool Running::wait_for(const std::function<bool()>& holds) {
  while (!holds()) {
    if (!read_streams(5) || is_late()) return holds();
  }
  return true;
}

Outcome Running::wait() {
  while (read_streams(20) && !is_late()) {
  }
  while (!has_ended()) {
    if (is_late()) {
      ADD_FAILURE() << "ran past the deadline; stderr so far:\n" << outcome_.err;
      return outcome_;  // the destructor kills it
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return outcome_;
}

bool Running::has_ended() {
  if (process_ < 0) return true;
  int status = 0;
  if (::waitpid(process_, &status, WNOHANG) == 0) return false;
  process_ = -1;
  outcome_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

void Running::close_streams() {
  for (int* stream : {&out_, &err_}) {
    if (*stream >= 0) ::close(std::exchange(*stream, -1));
  }
}

std::vector<std::string> trireme_command(const std::vector<std::string>& args) {
  std::vector<std::string> command = {TRIREME_PROGRAM};
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

bool wait_until(const std::function<bool()>& holds) {
  constexpr double max_seconds = 60;
  const double end = now_seconds() + max_seconds;
  while (!holds()) {
    if (now_seconds() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool handles(pid_t process, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word;) {
    if (word != "SigCgt:" || !(status >> word)) continue;
    return (std::stoull(word, nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

Outcome trireme(const Scratch& scratch, const std::vector<std::string>& args,
                const RunOptions& options) {
  return Running(scratch.path(), trireme_command(args), options).wait();
}

base::Json trireme_json(const Scratch& scratch, std::vector<std::string> args) {
  args.emplace_back("--json");
  const Outcome outcome = trireme(scratch, args);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  base::Json object = only_object(outcome.out);
  EXPECT_EQ(object.value("ok", false), true) << outcome.out;
  return object;
}

base::Json only_object(const std::string& text) {
  base::Json object = base::Json::parse(text, nullptr, false);
  if (!object.is_object()) {
    ADD_FAILURE() << "not one JSON object: '" << text << "'";
    return base::Json::object();
  }
  return object;
}

const std::string_view tiny_model =
    "family = \"llama\"\n"
    "layers = 2\n"
    "hidden = 16\n"
    "heads = 2\n"
    "ffn = 32\n"
    "vocab = 256\n"
    "max_seq = 32\n";

const std::string_view tiny_config =
    "[job]\n"
    "dump_folder = \"run\"\n"
    "[model]\n"
    "name = \"tiny.toml\"\n"
    "[optimizer]\n"
    "lr = 1e-2\n"
    "[training]\n"
    "dataset_path = \"text.txt\"\n"
    "local_batch_size = 2\n"
    "seq_len = 16\n"
    "steps = 4\n"
    "dtype = \"fp32\"\n"  // also on a machine with a GPU
    "[metrics]\n"
    "log_freq = 1\n"
    "[system]\n"
    "threads = 1\n";

std::string tiny_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += fmt::format("{} bottles stand on the wall.\n", i);
  return text;
}

void write_tiny(const Scratch& scratch) {
  scratch.write("tiny.toml", tiny_model);
  scratch.write("text.txt", tiny_text(100));
  scratch.write("tiny_run.toml", tiny_config);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const size_t at = result.find(from);
  if (at == std::string::npos) throw std::runtime_error(fmt::format("'{}' is not there", from));
  return result.replace(at, from.size(), to);
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  bool is_quoted = false, is_open = false;
  for (const char c : line) {
    if (c == '\'') {
      is_quoted = !is_quoted;
      if (!is_open) words.emplace_back();
      is_open = true;
    } else if (c == ' ' && !is_quoted) {
      is_open = false;
    } else {
      if (!is_open) words.emplace_back();
      is_open = true;
      words.back() += c;
    }
  }
  return words;
}

}  // namespace trireme::tests
