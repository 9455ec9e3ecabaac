// SPDX-License-Identifier: Apache-2.0
// CallObserver: is notified around everything that is queued on a stream besides ops: waits for
// other streams, copies, and communication with other ranks (comm::Communicator). Ops have their
// own observer (kernels::OpObserver).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::device {

class Stream;

// Views are valid during the notification only.
struct StreamCall {
  enum class Kind : uint8_t { wait, copy, communication };
  Kind kind = Kind::wait;
  std::string_view op = {};  // "wait", "upload", "all_gather"
  // The stream that has recorded the event of a wait, empty if unknown; the group of communication.
  std::string_view of = {};
  int64_t bytes = 0;  // of the caller's tensor
  // ---- communication only
  std::span<const int> ranks = {};  // of the group, as ranks of the world
  int64_t sequence = -1;  // collectives: in the group; send and recv: between the two ranks
  int peer = -1;          // send and recv: rank of the world; broadcast: the root
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Both are called on the thread that queues the call. Calls may contain ops and other calls; a
  // call that throws does not end.
  virtual void begins(Stream&, const StreamCall&) = 0;
  virtual void ends(Stream&, const StreamCall&) = 0;
};

}  // namespace trireme::device
