// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/rank_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/launch/torchrun_error.h"
#include "cli/shell/environment.h"
#include "cli/shell/report.h"
#include "comm/failure/failure_report.h"
#include "comm/failure/verdict.h"
#include "comm/world/process_world.h"

namespace trireme::cli {
namespace {

bool was_stopped(const std::exception& error) {
  return dynamic_cast<const base::Stopped*>(&error) != nullptr;
}
// A verdict, which every rank receives.
bool is_verdict(const std::exception& error) {
  return dynamic_cast<const base::CommAborted*>(&error) != nullptr ||
         dynamic_cast<const base::Fenced*>(&error) != nullptr;
}

// Returns the first rank that the verdict blames; none if it blames none, or this rank has failed.
std::optional<int> blamed_rank(const std::exception& error) {
  const auto* aborted = dynamic_cast<const comm::Aborted*>(&error);
  if (aborted == nullptr || aborted->verdict.ranks.empty()) return std::nullopt;
  return aborted->verdict.ranks.front();
}

// If ranks cannot agree on a reporter, because the store died with rank 0 or was never reached, two
// ranks of every host report: the first, and the second in case the first is the one that died.
bool reports_for_host(const comm::RankInfo& info) { return info.local_rank <= 1; }

// Returns whether ranks can agree on a reporter.
bool has_shared_store(const comm::RankInfo& info) {
  return info.pmi_descriptor >= 0 ||
         (!info.store.empty() && !comm::parse_store_address(info.store).is_folder);
}

class RankErrors {
 public:
  RankErrors(const comm::RankInfo& info, const RankErrorOptions& options)
      : info_(info), options_(options), wants_json_(options.wants_json) {}

  // Reports an error after this rank has joined the run.
  void report_joined(comm::ProcessWorld& world, const std::exception& error) {
    is_reported_ = true;
    if (was_stopped(error)) {
      if (info_.rank == 0) report_error(error, wants_json_);
      return;
    }
    write_torchrun_error(info_, error.what(), blamed_rank(error));
    try {
      if (!is_verdict(error)) {
        const auto verdict = comm::stored_verdict(world.store());
        // Ranks that fail in the same way are reported by the verdict of the first.
        if (!verdict || verdict->cause != comm::verdict_text(error.what())) print_line(error);
      }
      comm::report_once(world.store(), world.info(), error.what(), reporter(error));
    } catch (const base::CommAborted&) {
      if (has_printed_ || !reports_for_host(info_)) return;
      report_error(error, wants_json_ && info_.rank == 1);
    }
  }

  // Reports an error before this rank has joined, or if it could not join.
  void report_alone(const std::exception& error) {
    if (was_stopped(error)) {
      report_error(error, wants_json_ && info_.rank == 0);
      return;
    }
    write_torchrun_error(info_, error.what(), blamed_rank(error));
    if (is_verdict(error) || !has_shared_store(info_)) {
      if (info_.rank == 0 || reports_for_host(info_)) {
        report_error(error, wants_json_ && info_.rank == 0);
      }
      return;
    }
    comm::RankInfo info = info_;
    if (options_.run_folder) info.run_folder = options_.run_folder();
    comm::report_before_joining(info, error.what(), reporter(error));
  }

  bool is_reported() const { return is_reported_; }

 private:
  comm::FailureReporter reporter(const std::exception& error) {
    return {.print =
                [this, &error] {
                  has_printed_ = true;
                  report_error(error, wants_json_);
                },
            .print_line = [this, &error] { print_line(error); }};
  }
  void print_line(const std::exception& error) {
    has_printed_ = true;
    report(fmt::format("rank {}: {}", info_.rank, message_of(error)), false, 0);
  }

  const comm::RankInfo info_;
  const RankErrorOptions options_;
  const bool wants_json_;
  bool is_reported_ = false;
  bool has_printed_ = false;
};

}  // namespace

int run_rank(comm::RankInfo info, const RankErrorOptions& options,
             const std::function<int(const comm::RankInfo&)>& body) {
  if (info.world == 1 || info.is_watched) return body(info);
  RankErrors errors(info, options);
  info.failed = [&errors](comm::ProcessWorld& world, const std::exception& error) {
    errors.report_joined(world, error);
  };
  try {
    return body(info);
  } catch (const std::exception& error) {
    if (!errors.is_reported()) errors.report_alone(error);
    return exit_code_of(error);
  }
}

bool is_reported_by_rank_zero() {
  try {
    const comm::RankInfo info = comm::detect_rank(process_environment());
    return info.rank > 0 && !info.is_watched;
  } catch (const base::ConfigError&) {
    return false;  // the variables of a launcher contradict each other: every process reports it
  }
}

}  // namespace trireme::cli
