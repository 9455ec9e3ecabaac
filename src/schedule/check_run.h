// SPDX-License-Identifier: Apache-2.0
// The abstract run that check() uses. Each rank runs its program in order and waits only for
// messages, so the result does not depend on the order in which ranks are visited.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

// REQUIRES: every action is on the rank of its lane, with the right peer.
class CheckRun {
 public:
  CheckRun(const Schedule& schedule, int send_buffers);
  std::optional<Fault> play();

 private:
  // What has happened to one micro-batch on one stage.
  struct Done {
    bool f = false, b = false, w = false, r = false;
    bool sent_y = false, received_x = false, sent_dx = false, received_dy = false;
  };
  enum class Kind : uint8_t { activations, gradients };
  struct Channel {
    size_t from = 0, to = 0;
    Kind kind = Kind::activations;
    auto operator<=>(const Channel&) const = default;
  };
  struct Message {
    int stage = 0, microbatch = 0;  // of the sender's action
    size_t position = 0;            // in the sender's program
  };
  enum class Outcome : uint8_t { next, posted, waits };

  // Runs one action of `rank`; stores a fault in fault_.
  Outcome step(size_t rank);
  Outcome forward(size_t rank, const Action& action);
  Outcome backward(size_t rank, const Action& action);
  Outcome send(size_t rank, const Action& action);
  Outcome receive(size_t rank, const Action& action);
  Outcome reduce(size_t rank, const Action& action);
  // Unless `condition` holds, records a fault of the current action of `rank`; the first fault is
  // kept. Always returns Outcome::next: play() stops at a fault.
  Outcome expect(bool condition, size_t rank, std::string_view what);

  std::optional<Fault> deadlock() const;
  std::optional<Fault> left_over() const;
  std::optional<Fault> incomplete() const;

  Fault at_end(size_t rank, std::string_view what) const;

  Done& done(int stage, int microbatch);
  const Done& done(int stage, int microbatch) const;
  bool gradients_ready(size_t rank, int stage) const;

  const Schedule& schedule_;
  const size_t send_buffers_;
  std::vector<size_t> position_;  // by rank
  std::vector<bool> posted_;      // by rank: with rendezvous, its send waits in the channel
  std::vector<Done> done_;        // by micro-batch and stage
  std::map<std::pair<size_t, int>, bool> reduced_;  // by rank and stage
  std::map<Channel, std::deque<Message>> channels_;
  std::optional<Fault> fault_;
};

// "rank 1, action 4 (1BW0)"
std::string located(const Schedule& schedule, size_t rank, size_t position);

}  // namespace trireme::schedule
