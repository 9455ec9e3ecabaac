// SPDX-License-Identifier: Apache-2.0
#include "comm/store/membership.h"

#include <algorithm>

#include "base/check.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

bool is_alive(const MemberFacts& facts, double now, double detect_s) {
  return facts.state && !facts.departure && now - facts.seen_at < detect_s;
}

std::vector<std::string> alive(std::span<const MemberFacts> members, double now, double detect_s) {
  std::vector<std::string> names;
  for (const MemberFacts& facts : members) {
    if (is_alive(facts, now, detect_s)) names.push_back(facts.name);
  }
  return names;
}

class StoreMembership final : public Membership {
 public:
  explicit StoreMembership(Store& store) : store_(store) {}

  void join(const std::string& name) override {
    store_.join(name);
    name_ = name;
  }
  void announce(const std::string& state) override {
    TRIREME_CHECK(!name_.empty(), "a member announces itself before it has joined");
    store_.set(state_key(name_), state);
  }
  void leave() override { store_.leave(); }

  std::vector<MemberFacts> members(std::span<const std::string> names, double now) override {
    std::vector<MemberFacts> all;
    // In parts: a reply of the store has a maximum size, and other clients are served in between.
    constexpr size_t part_members = 512;
    for (size_t begin = 0; begin < names.size(); begin += part_members) {
      const auto part = names.subspan(begin, std::min(part_members, names.size() - begin));
      std::vector<std::string> keys;
      for (const std::string& name : part) {
        keys.push_back(state_key(name));
        keys.push_back(gone_key(name));
      }
      const std::vector<std::optional<Store::Aged>> values = store_.read_aged(keys);
      for (size_t i = 0; i < part.size(); ++i) {
        MemberFacts facts{.name = part[i]};
        if (const auto& state = values[2 * i]) {
          facts.state = state->text;
          facts.seen_at = now - state->age_s;
        }
        if (const auto& gone = values[2 * i + 1]) {
          facts.departure = integer_from(gone->text).value_or(0);
        }
        all.push_back(std::move(facts));
      }
    }
    return all;
  }

  std::optional<double> changed(double now) override {
    const std::string key = any_gone_key;
    const auto gone = store_.read_aged({&key, 1}).front();
    if (!gone) return std::nullopt;
    return now - gone->age_s;
  }

 private:
  static std::string state_key(const std::string& name) { return "member/" + name; }

  Store& store_;
  std::string name_;
};

std::unique_ptr<Membership> membership_of(Store& store) {
  return std::make_unique<StoreMembership>(store);
}

}  // namespace trireme::comm
