// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/report.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_wire.h"
#include "comm/world/find_store.h"
#include "comm/world/job_token.h"

namespace trireme::cli {
namespace {

const std::string job_key = "job/outcome";
std::string outcome_key(int node) { return fmt::format("node/{}/outcome", node); }
std::string informed_key(int node) { return fmt::format("node/{}/informed", node); }

std::string text_of(const NodeOutcome& outcome) {
  return fmt::format("{} {}", outcome.exit_code, outcome.may_restart ? 1 : 0);
}

std::optional<NodeOutcome> outcome_from(const std::string& text) {
  const size_t blank = text.find(' ');
  const auto code = comm::integer_from(std::string_view(text).substr(0, blank));
  if (!code || blank == std::string::npos) return std::nullopt;
  return NodeOutcome{static_cast<int>(*code), text.substr(blank + 1) == "1"};
}

// Waits until every other node has set its key or its launcher has ended.
void wait_for_nodes(comm::Store& store, const NodePlace& place, std::string (*key_of)(int node),
                    double max_wait_s) {
  std::vector<std::string> keys, names;
  for (int node = 0; node < place.nodes; ++node) {
    if (node == place.node) continue;
    keys.push_back(key_of(node));
    names.push_back(node_name(node));
  }
  const auto membership = comm::membership_of(store);
  const auto begin = comm::Clock::now();
  while (comm::seconds_since(begin) < max_wait_s && (place.stop == nullptr || !*place.stop)) {
    const auto values = store.read(keys);
    bool are_all = true;
    const auto nodes = membership->members(names, 0);
    for (size_t i = 0; i < nodes.size(); ++i)
      are_all = are_all && (values[i] || nodes[i].departure);
    if (are_all) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Returns the tokens that the store of this attempt may have.
comm::JobTokens tokens_of(const LaunchOptions& options) {
  if (options.token_folder.empty()) return {{options.token_of_attempt(options.token)}, false};
  const auto written = comm::read_job_token(options.token_folder, options.public_name);
  comm::JobTokens found{.tokens = {}, .is_missing = !written};
  if (written) found.tokens.push_back(options.token_of_attempt(*written));
  // That of a node 0 which has failed before it wrote a token.
  found.tokens.push_back(options.token_of_attempt(options.public_name));
  return found;
}

// Node 0 collects the outcomes and publishes that of the job.
NodeOutcome collect(comm::Store& store, const NodePlace& place, const NodeOutcome& own) {
  wait_for_nodes(store, place, outcome_key, place.max_wait_s);
  std::vector<std::string> keys;
  for (int node = 1; node < place.nodes; ++node) keys.push_back(outcome_key(node));
  std::vector<NodeOutcome> nodes = {own};
  for (const auto& value : store.read(keys)) {
    if (const auto outcome = value ? outcome_from(*value) : std::nullopt) {
      nodes.push_back(*outcome);
    }
  }
  const NodeOutcome job = outcome_of_job(nodes);
  store.set(job_key, text_of(job));
  constexpr double max_informing_s = 5;  // the store ends with this process
  wait_for_nodes(store, place, informed_key, max_informing_s);
  return job;
}

}  // namespace

LaunchStore open_launch_store(const LaunchOptions& options, double deadline_s,
                              const std::atomic<bool>* stop) {
  comm::StoreAddress address{.host = "127.0.0.1"};
  if (options.nodes > 1) address = comm::parse_store_address(options.rendezvous);
  LaunchStore opened;
  opened.token = options.token_of_attempt(options.token);
  if (!address.is_folder && options.node == 0) {
    opened.server = std::make_unique<comm::StoreServer>(
        comm::StoreServer::Options{.host = address.host,
                                   .serves_other_hosts = options.nodes > 1,
                                   .port = address.port,
                                   .token = opened.token});
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
  opened.store = comm::open_store(address, {.deadline_s = deadline_s,
                                            .reply_timeout_s = std::max(30.0, deadline_s),
                                            .token = opened.token,
                                            .stop = stop});
  opened.store->enter(options.restart);
  opened.membership = comm::membership_of(*opened.store);
  return opened;
}

std::string node_name(int node) { return fmt::format("node{}", node); }

NodeOutcome outcome_of_job(const std::vector<NodeOutcome>& nodes) {
  // By rank: the later ones count more.
  constexpr std::array order = {exit_done, exit_stopped, exit_failed, exit_bad_call,
                                exit_do_not_requeue};
  const auto weight = [&](int code) {
    const auto found = std::find(order.begin(), order.end(), code);
    return found == order.end() ? 2 : found - order.begin();  // unknown: failed
  };
  NodeOutcome job{.exit_code = exit_done, .may_restart = true};
  for (const NodeOutcome& node : nodes) {
    if (weight(node.exit_code) > weight(job.exit_code)) job.exit_code = node.exit_code;
    job.may_restart = job.may_restart && node.may_restart;
  }
  return job;
}

NodeOutcome agree_on_outcome(comm::Store& store, const NodePlace& place, const NodeOutcome& own) {
  if (place.node == 0) return collect(store, place, own);
  store.set(outcome_key(place.node), text_of(own));
  const auto begin = comm::Clock::now();
  std::optional<NodeOutcome> job;
  // Node 0 waits for the slowest node.
  while (!job && comm::seconds_since(begin) < 2 * place.max_wait_s &&
         (place.stop == nullptr || !*place.stop)) {
    if (!store.wait({&job_key, 1}, 0.1)) continue;
    job = outcome_from(store.try_get(job_key).value_or(""));
  }
  store.set(informed_key(place.node), "1");
  return job.value_or(own);
}

void tell_other_nodes(const LaunchOptions& options, const std::exception& error) {
  constexpr double max_telling_s = 10;
  const NodeOutcome own{.exit_code = exit_code_of(error), .may_restart = false};
  try {
    LaunchStore joined = open_launch_store(options, max_telling_s, nullptr);
    joined.membership->join(node_name(options.node));
    (void)comm::settle_verdict(
        *joined.store, {.kind = comm::VerdictKind::unfit,
                        .cause = message_of(error),
                        .text = fmt::format("node {}: {}", options.node, message_of(error))});
    (void)agree_on_outcome(
        *joined.store, {.node = options.node, .nodes = options.nodes, .max_wait_s = max_telling_s},
        own);
    joined.membership->leave();
  } catch (const base::Error& ignored) {  // the other launchers do not run, or know already
  }
}

}  // namespace trireme::cli
