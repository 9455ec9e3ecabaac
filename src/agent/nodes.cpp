// SPDX-License-Identifier: Apache-2.0
#include "agent/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "agent/exit_codes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"
#include "comm/world/find_store.h"
#include "comm/world/job_token.h"

namespace trireme::agent {
namespace {

const std::string decision_key = "decision";
std::string outcome_key(int node) { return fmt::format("node/{}/outcome", node); }
std::string confirmed_key(int node) { return fmt::format("node/{}/confirmed", node); }

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Returns the tokens that the store of this epoch may have.
comm::JobTokens tokens_of(const JobOptions& options) {
  if (options.token_folder.empty()) return {{options.token_of_epoch(options.token)}, false};
  const auto written = comm::read_job_token(options.token_folder, options.public_name);
  comm::JobTokens found{.tokens = {}, .is_missing = !written};
  if (written) found.tokens.push_back(options.token_of_epoch(*written));
  // That of a node 0 which has failed before it wrote a token.
  found.tokens.push_back(options.token_of_epoch(options.public_name));
  return found;
}

}  // namespace

std::string node_name(int node) { return fmt::format("node{}", node); }

JobStore open_job_store(const JobOptions& options, double deadline_s, const std::atomic<bool>* stop,
                        const StoreParts& parts) {
  comm::StoreAddress address{.host = "127.0.0.1"};
  if (options.all_nodes() > 1) address = comm::parse_store_address(options.rendezvous);
  JobStore opened;
  opened.token = options.token_of_epoch(options.token);
  if (!address.is_folder && options.node == 0) {
    opened.server = std::make_unique<comm::StoreServer>(
        comm::StoreServer::Options{.host = address.host,
                                   .serves_other_hosts = options.all_nodes() > 1,
                                   .port = address.port,
                                   .token = opened.token,
                                   .log = parts.log,
                                   .sockets = parts.sockets,
                                   .run_register = parts.run_register});
    address.port = opened.server->port();
  } else if (!address.is_folder) {
    opened.token =
        comm::find_store({.who = fmt::format("node {}", options.node),
                          .addresses = {address.text()},
                          .tokens = [&options] { return tokens_of(options); },
                          .deadline_s = deadline_s,
                          .stop = stop,
                          .on_waiting =
                              [&](double waited_s) {
                                base::log_info("waiting for node 0 at {} ({:.0f} s of {:.0f} s)",
                                               address.text(), waited_s, deadline_s);
                              }})
            .token;
  }
  opened.address = address.text();
  opened.run_store = comm::open_store(address, {.deadline_s = deadline_s,
                                                .reply_timeout_s = std::max(30.0, deadline_s),
                                                .outage_s = options.outage_s(),
                                                .is_leaving = stop,
                                                .token = opened.token,
                                                .stop = stop});
  return opened;
}

EpochStore enter_epoch(const comm::Store& run_store, int64_t epoch, int node) {
  EpochStore entered{.store = run_store.another()};
  entered.store->enter(epoch);
  entered.membership = comm::membership_of(*entered.store);
  entered.membership->join(node_name(node));
  return entered;
}

void Agreement::publish(const NodeOutcome& outcome) {
  store_.set(outcome_key(node_), to_text(outcome));
}

bool Agreement::have_all(const std::vector<int>& nodes, std::string (*key_of)(int node)) {
  std::vector<std::string> keys, names;
  for (const int node : nodes) {
    if (node == node_) continue;
    keys.push_back(key_of(node));
    names.push_back(node_name(node));
  }
  if (keys.empty()) return true;
  const auto values = store_.read(keys);
  const auto launchers = comm::membership_of(store_)->members(names, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!values[i] && !launchers[i].departure) return false;
  }
  return true;
}

bool Agreement::has_all_outcomes() { return have_all(deciding_, outcome_key); }

void Agreement::propose(const Progress& progress) {
  TRIREME_CHECK(node_ == 0, "node {} proposes a decision", node_);
  std::vector<std::string> keys;
  for (const int node : deciding_) keys.push_back(outcome_key(node));
  std::vector<NodeOutcome> outcomes;
  for (const auto& value : store_.read(keys)) {
    if (const auto outcome = value ? outcome_from(*value) : std::nullopt) {
      outcomes.push_back(*outcome);
    }
  }
  (void)store_.set_once(decision_key, to_text(decide(outcomes, progress)));
}

void Agreement::propose_end(int exit_code) {
  TRIREME_CHECK(node_ == 0, "node {} proposes a decision", node_);
  (void)store_.set_once(decision_key, to_text(Decision{.exit_code = exit_code}));
}

std::optional<Decision> Agreement::decision() {
  const auto text = store_.try_get(decision_key);
  return text ? decision_from(*text) : std::nullopt;
}

void Agreement::confirm() {
  constexpr double max_wait_s = 5;
  store_.set(confirmed_key(node_), "1");
  const auto begin = comm::Clock::now();
  while (node_ == 0 && comm::seconds_since(begin) < max_wait_s &&
         !have_all(listening_, confirmed_key))
    pause();
}

void tell_other_nodes(const JobOptions& options, const std::string& message, int exit_code) {
  constexpr double max_telling_s = 10;
  try {
    const JobStore opened = open_job_store(options, max_telling_s, nullptr);
    const EpochStore joined = enter_epoch(*opened.run_store, options.epoch, options.node);
    (void)comm::settle_verdict(*joined.store,
                               {.kind = comm::VerdictKind::unfit,
                                .cause = message,
                                .text = fmt::format("node {}: {}", options.node, message)});
    std::vector<int> nodes;
    for (int node = 0; node < options.all_nodes(); ++node) nodes.push_back(node);
    Agreement agreement(*joined.store, options.node, nodes, nodes);
    agreement.publish({.exit_code = exit_code});
    const auto begin = comm::Clock::now();
    while (comm::seconds_since(begin) < max_telling_s && !agreement.decision()) {
      if (options.node == 0 && agreement.has_all_outcomes()) agreement.propose({});
      pause();
    }
    agreement.confirm();
    joined.membership->leave();
  } catch (const base::Error& ignored) {  // the other launchers do not run, or know already
  }
}

}  // namespace trireme::agent
