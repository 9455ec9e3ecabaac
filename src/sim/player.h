// SPDX-License-Identifier: Apache-2.0
// The discrete-event simulation that simulate() runs.
#pragma once

#include <queue>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "sim/sim.h"

namespace trireme::sim {

// Ranks run until they wait for a message. If every channel has a separate wire, the order in which
// ranks are visited makes no difference; if channels share one, a rank also stops at a send while
// another rank may still send earlier, so that wires serve first come, first served.
class Player {
 public:
  Player(const schedule::Schedule&, const Costs&, const Links&, const Options&);
  Result play();

 private:
  struct Message {
    double sent = 0, arrived = 0;
  };
  struct Channel {
    size_t from = 0, to = 0, wire = 0;
    schedule::Op receive = schedule::Op::RecvX;
    std::vector<Message> messages;
    std::vector<double>
        received_at;  // when messages were received; recorded if buffers are limited
    size_t received = 0;
    bool receiver_waits = false, sender_waits = false;
  };
  struct Wire {
    Link link;
    double free_at = 0;
  };
  struct Rank {
    double clock = 0;
    bool has_begun = false;  // waiting for the first input is not part of a rank's step
    size_t position = 0;
    double kept = 0;
    std::vector<size_t> out, in;  // channels
  };

  void make_channels();
  void run(size_t rank);
  void wake(size_t rank);
  // Return false if the rank must wait.
  bool send(size_t rank, const schedule::Action&);
  bool receive(size_t rank, const schedule::Action&);
  void compute(size_t rank, const schedule::Action&);
  void compute_pair(size_t rank, const schedule::Action& f, const schedule::Action& backward);
  void spend(size_t rank, double seconds);
  void keep(size_t rank, double bytes);
  // Records the current action of the rank, from `begin` to its clock.
  void record(size_t rank, double begin);
  double at_begin(const schedule::Action&);  // the memory that the action adds
  double at_end(const schedule::Action&);    // and that it frees
  const StageBytes& kept_by(const schedule::Action&) const;
  double seconds_of(const schedule::Action&) const;
  size_t channel_of(const std::vector<size_t>& ids, int peer, schedule::Op receive,
                    bool is_out) const;

  const schedule::Schedule& schedule_;
  const Costs& costs_;
  const Options& options_;
  const base::RngKey key_;
  const bool wires_are_shared_;
  std::vector<Wire> wires_;
  std::vector<Channel> channels_;
  std::vector<Rank> ranks_;
  std::vector<bool> recomputed_;              // by micro-batch and stage: an early R has run
  using Waiting = std::pair<double, size_t>;  // clock, rank
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> ready_;
  Result result_;
};

}  // namespace trireme::sim
