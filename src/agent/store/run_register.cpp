// SPDX-License-Identifier: Apache-2.0
#include "agent/store/run_register.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "agent/nodes.h"
#include "base/error.h"
#include "base/result.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

// Returns whether it was missing.
bool create(const fs::path& folder) {
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  if (error) throw base::IoError(fmt::format("{}: {}", folder.string(), error.message()));
  return is_new;
}

comm::RunRecord record_in(const comm::RegisterState& state) {
  return state.revision == 0 ? comm::RunRecord{} : comm::run_record_from(state.value);
}

// This launcher alone changes epochs, but a rank may commit at the same time.
template <class Next>
int64_t change(comm::Register& run_register, const Next& next) {
  while (true) {
    const comm::RegisterState state = run_register.read();
    const base::Result<comm::RunRecord> record = next(state);
    if (!record) throw base::IoError("the record of the run: " + record.reason());
    const std::string id =
        fmt::format("{}/epoch of revision {}", comm::own_incarnation(), state.revision);
    if (run_register.swap(state.revision, to_text(record.value()), id).is_done) {
      return record.value().epoch;
    }
  }
}

}  // namespace

RunRegister::RunRegister(const fs::path& folder)
    : folder_(fs::absolute(folder)),
      is_own_folder_(create(folder_)),
      is_own_journal_(!fs::exists(folder_ / "register.journal")),
      register_(comm::open_journal_register(folder_)) {}

RunRegister::~RunRegister() {
  std::error_code ignored;  // files that stay do no harm
  if (!is_own_journal_ || fs::exists(folder_ / "owner.json", ignored)) return;
  fs::remove(folder_ / "register.journal", ignored);
  fs::remove(folder_ / "register.lock", ignored);
  if (is_own_folder_) fs::remove(folder_, ignored);  // if it is empty
}

comm::EpochChange RunRegister::change_to(const Roles& roles, const comm::RunRecord& before,
                                         int64_t revision) const {
  comm::EpochChange change{.seen_epoch = before.epoch,
                           .plan_digest = before.plan_digest,
                           .layout = before.layout,
                           .resume = {std::max<int64_t>(before.last_commit.step, 0), "to be found"},
                           .reason = roles.reason};
  const auto process = [&](int node, const std::string& what) {
    return comm::RunMember{
        .node = node_name(node),
        .incarnation = fmt::format("{}/{}/{}", comm::own_incarnation(), revision, what)};
  };
  const std::vector<int>& nodes = roles.placement.node_of;
  for (int rank = 0; rank < std::ssize(nodes); ++rank) {
    const auto slot = static_cast<size_t>(rank);
    const bool is_known = slot < before.members.size() && !roles.fresh.contains(rank);
    change.members.push_back(is_known ? before.members[slot]
                                      : process(nodes[slot], fmt::format("rank {}", rank)));
  }
  for (int node = 0; node < std::ssize(roles.spares); ++node) {
    for (int spare = 0; spare < roles.spares[static_cast<size_t>(node)]; ++spare) {
      change.spares.push_back(process(node, fmt::format("spare {} of node {}", spare, node)));
    }
  }
  return change;
}

int64_t RunRegister::begin(const Roles& roles) {
  return change(*register_, [&](const comm::RegisterState& state) {
    const comm::EpochChange first = change_to(roles, {}, state.revision);
    const std::string run = fmt::format("{}/{}", comm::own_incarnation(), state.revision);
    return state.revision == 0 ? comm::first_epoch(run, first)
                               : comm::next_start(record_in(state), run, first);
  });
}

int64_t RunRegister::next(const Roles& roles) {
  return change(*register_, [&](const comm::RegisterState& state) {
    const comm::RunRecord now = record_in(state);
    return comm::next_epoch(now, change_to(roles, now, state.revision));
  });
}

}  // namespace trireme::agent
