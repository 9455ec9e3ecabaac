// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/output.h"

#include <fmt/format.h>

#include <cstdio>

namespace trireme::agent {
namespace {

// Ignores errors: a reader that has gone away must not end the run.
void print_line(std::FILE* to, const std::string& line) {
  const std::string text = line + "\n";
  (void)std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

}  // namespace

void RankOutput::take(int rank, bool is_error, std::string_view line) {
  if (is_error) {
    constexpr size_t max_lines = 5;
    std::deque<std::string>& last = last_lines_[rank];
    last.emplace_back(line);
    if (last.size() > max_lines) last.pop_front();
  }
  Line received{rank, is_error, std::string(line)};
  if (is_holding_) {
    held_.push_back(std::move(received));
  } else {
    show(received);
  }
}

void RankOutput::show(const Line& line) {
  if (!line.is_error && line.rank == 0 && options_.keeps_out) {
    kept_ += line.text + "\n";
    return;
  }
  if (!line.is_error && line.rank != 0 && !options_.shows_all) return;
  print_line(line.is_error ? stderr : stdout,
             (line.rank != 0 ? fmt::format("[rank{}]: ", line.rank) : "") + line.text);
}

void RankOutput::release(const std::string& verdict) {
  is_holding_ = false;
  for (const Line& line : held_) {
    if (verdict.empty() || line.text.find(verdict) == std::string::npos) show(line);
  }
  held_.clear();
}

std::string RankOutput::last_error(int rank) const {
  constexpr std::string_view mark = "error: ";
  const auto found = last_lines_.find(rank);
  if (found == last_lines_.end()) return "";
  for (auto line = found->second.rbegin(); line != found->second.rend(); ++line) {
    if (const size_t at = line->find(mark); at != std::string::npos) {
      return line->substr(at + mark.size());
    }
  }
  return "";
}

void RankOutput::show_last_lines(int rank) {
  if (last_lines_[rank].empty()) return;
  print_line(stderr, fmt::format("the last lines of rank {}:", rank));
  for (const std::string& line : last_lines_[rank]) {
    print_line(stderr, fmt::format("  [rank{}]: {}", rank, line));
  }
}

}  // namespace trireme::agent
