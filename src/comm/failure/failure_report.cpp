// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_server.h"
#include "comm/world/rendezvous.h"

namespace trireme::comm {
namespace {

const std::string reporter_key = "report/rank";  // the rank that reports
const std::string reported_key = "report/done";  // the text that was reported

// Set by a rank when it knows that the failure has been reported.
std::string informed_key(int rank) { return fmt::format("report/informed/{}", rank); }

Verdict early_verdict(int rank, const std::string& text) {
  return {.kind = VerdictKind::failed,
          .ranks = {rank},
          .cause = text,
          .text = fmt::format("rank {} failed: {}", rank, text)};
}

// Waits until every other rank knows that the failure has been reported, or has left the run: the
// store ends with rank 0, and a rank without it cannot know.
void wait_until_informed(Store& store, const RankInfo& info, double max_wait_s) {
  const auto begin = Clock::now();
  std::vector<std::string> keys;
  for (int rank = 0; rank < info.world; ++rank) keys.push_back(informed_key(rank));
  while (seconds_since(begin) < max_wait_s && (info.stop == nullptr || !info.stop->load())) {
    const auto informed = store.read(keys);
    const std::vector<RankReport> reports = read_reports(store, info.world);
    bool are_all = true;
    for (size_t rank = 1; rank < reports.size(); ++rank) {
      const RankReport& report = reports[rank];
      are_all = are_all && (informed[rank] || !report.ended.empty() ||
                            (report.position && report.position->has_left));
    }
    if (are_all) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void lead_before_joining(const RankInfo& info, const std::string& text,
                         const FailureReporter& reporter, const ReportTimeouts& timeouts) {
  reporter.print();  // first: launchers may kill this rank when another ends
  Rendezvous found = rendezvous_to_report(info, timeouts.joining_s);
  const StoreAddress address = parse_store_address(found.info.store);
  if (found.server == nullptr) {
    found.server = std::make_unique<StoreServer>(store_options(found.info));
  }
  const std::unique_ptr<Store> store =
      open_store(address, {.deadline_s = timeouts.joining_s, .token = found.info.token});
  store->enter(info.epoch);
  store->set(reporter_key, "0");
  store->set(reported_key, text);
  store->set(verdict_key, stored_form(early_verdict(0, text)));
  wait_until_informed(*store, info, timeouts.joining_s);
}

void follow_before_joining(const RankInfo& info, const std::string& text,
                           const FailureReporter& reporter, const ReportTimeouts& timeouts) {
  std::unique_ptr<Store> store;
  try {
    const Rendezvous found = rendezvous_to_report(info, timeouts.joining_s);
    store = open_store(
        parse_store_address(found.info.store),
        {.deadline_s = timeouts.joining_s, .token = found.info.token, .stop = info.stop});
    store->enter(info.epoch);
  } catch (const base::Error&) {
    reporter.print_line();
    return;
  }
  std::string reported;
  try {
    (void)settle_verdict(*store, early_verdict(info.rank, text));
    reported = report_once(*store, info, text, reporter, timeouts);
  } catch (const base::Error&) {  // the store is gone: unknown
  }
  // The report was about another failure; a verdict is one line.
  if (!reported.ends_with(text) && !reported.ends_with(verdict_text(text))) reporter.print_line();
}

}  // namespace

std::string report_once(Store& store, const RankInfo& info, const std::string& text,
                        const FailureReporter& reporter, const ReportTimeouts& timeouts) {
  if (info.rank != 0) (void)store.wait({&reporter_key, 1}, timeouts.rank_zero_s);
  const std::string own = std::to_string(info.rank);
  if (store.set_once(reporter_key, own) == own) {
    reporter.print();
    store.set(reported_key, text);
  } else {
    (void)store.wait({&reported_key, 1}, timeouts.printing_s);
  }
  const std::string reported = store.try_get(reported_key).value_or("");
  store.set(informed_key(info.rank), "1");
  if (info.hosts_store) wait_until_informed(store, info, timeouts.printing_s);
  return reported;
}

void report_before_joining(const RankInfo& info, const std::string& text,
                           const FailureReporter& reporter, const ReportTimeouts& timeouts) {
  try {
    if (info.rank == 0) {
      lead_before_joining(info, text, reporter, timeouts);
    } else {
      follow_before_joining(info, text, reporter, timeouts);
    }
  } catch (const base::Error&) {  // reported already, or the store is gone
  }
}

}  // namespace trireme::comm
