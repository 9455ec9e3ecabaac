// SPDX-License-Identifier: Apache-2.0
// Keeper: a supervisor's side of its guardian. What is put here, a supervisor that is started after
// the death of this one finds. If the guardian dies or freezes, another one is started.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/guardian/kept.h"
#include "agent/guardian/link.h"
#include "agent/guardian/role.h"
#include "base/text/json.h"

namespace trireme::agent {

class Keeper {
 public:
  // Without a guardian: nothing is kept.
  Keeper() = default;
  // `call`: of this program.
  Keeper(ProgramCall call, Inheritance inherited);
  // The guardian is notified that the work is done.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  bool is_guarded() const { return link_ != nullptr; }
  pid_t guardian() const;  // 0: none

  // All of it by any thread.
  void put(const std::string& name, const base::Json& what, std::span<const int> descriptors = {});
  void erase(const std::string& name);
  // Erases all names that begin so.
  void erase_all(const std::string& prefix);

  struct Found {
    std::string name;  // without the prefix
    base::Json what;
    std::vector<int> descriptors;  // as long as the entry is there
  };
  // In the order of their names.
  std::vector<Found> all(const std::string& prefix) const;
  std::optional<Found> find(const std::string& name) const;

 private:
  void keep_company();
  // REQUIRES: mutex_ is held.
  void replace_guardian();
  void send(LinkMessage::Kind kind, const std::string& name = "", const std::string& text = "",
            std::span<const int> descriptors = {});

  ProgramCall call_;
  mutable std::mutex mutex_;  // guards all below
  Kept kept_;
  std::unique_ptr<Link> link_;
  pid_t guardian_ = 0;
  bool is_own_child_ = false;  // the guardian
  double heard_ = 0;
  bool is_ending_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace trireme::agent
