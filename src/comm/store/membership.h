// SPDX-License-Identifier: Apache-2.0
// Membership: who takes part in an epoch of a run, beside the values of the Store. A member joins
// under a name, announces its state again and again, and leaves; one that ends otherwise is found
// to have gone. Whether a member is alive is a pure function of these facts and of the time, which
// callers give: seconds of any steady clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/store/store.h"

namespace trireme::comm {

struct MemberFacts {
  std::string name;
  std::optional<std::string> state;  // what it announced last; none: it never did
  double seen_at = 0;                // when that was
  // The order in which members ended without leaving; none: it is not known to have ended so.
  std::optional<int64_t> departure;

  bool operator==(const MemberFacts&) const = default;
};

// Members that have announced themselves, were seen less than `detect_s` ago and have not gone.
bool is_alive(const MemberFacts&, double now, double detect_s);
std::vector<std::string> alive(std::span<const MemberFacts>, double now, double detect_s);

// Throws CommAborted if the store does not reply, and Fenced as the store does.
class Membership {
 public:
  Membership() = default;
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Throws CommAborted if another live process has the name.
  virtual void join(const std::string& name) = 0;
  // REQUIRES: join() was called.
  virtual void announce(const std::string& state) = 0;
  virtual void leave() = 0;
  // Returns what is known of these members, in their order.
  virtual std::vector<MemberFacts> members(std::span<const std::string> names, double now) = 0;
  // Returns when a member last went without leaving; none: all are there.
  virtual std::optional<double> changed(double now) = 0;
};

// Members hold a connection to the store's server, which sees it close. A folder does not see a
// member go: only its announcements stop. The store must outlive the result.
std::unique_ptr<Membership> membership_of(Store&);

}  // namespace trireme::comm
