// SPDX-License-Identifier: Apache-2.0
// The client of a StoreServer.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "base/system/descriptor.h"
#include "comm/store/store.h"
#include "comm/store/store_socket.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

class TcpStore final : public Store {
 public:
  // Retries until the deadline passes: the server may not be running yet, or that of an earlier
  // attempt may still use the port.
  TcpStore(StoreAddress address, StoreOptions options);

  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::vector<std::optional<Aged>> read_aged(std::span<const std::string> keys) override;
  [[nodiscard]] bool wait(std::span<const std::string> keys, double deadline_s) override;
  std::unique_ptr<Store> another() const override;
  std::string address() const override { return address_.text(); }
  std::string local_address() const override { return local_address_; }
  void enter(int64_t epoch) override;
  void join(const std::string& name) override;
  void leave() override;

 private:
  friend class StoreRegister;
  class ConnectionLost;
  // Returns the fields of the reply, of which there must be `answers`. `expected_wait_s` is how
  // long the server may wait by intention. Throws Stopped when `stop` is set.
  std::vector<std::string> ask(const StoreMessage& request, size_t answers,
                               double expected_wait_s = 0, const std::atomic<bool>* stop = nullptr);
  // On the present connection. Throws ConnectionLost if it breaks. REQUIRES: mutex_ is held.
  std::vector<std::string> ask_once(const StoreMessage& request, size_t answers,
                                    double expected_wait_s, const std::atomic<bool>* stop);
  // Connects again, as the same member of the same epoch. Throws `error` if the store is away for
  // too long.
  void connect_again(const ConnectionLost& error);
  double reply_seconds() const;
  int connected(const StoreOptions& options) const;

  const StoreAddress address_;
  const StoreOptions options_;
  std::mutex mutex_;  // guards all members below: one request at a time
  std::optional<base::Descriptor> socket_;
  std::string received_;
  bool is_broken_ = false;    // requests and replies may be out of step
  bool is_given_up_ = false;  // it was away for longer than it may be
  std::string local_address_;
  std::atomic<int64_t> epoch_ = -1;  // -1: none
  std::string name_;                 // as which it has joined; empty: it has not
  const std::string id_;             // of this handle among all clients
  int64_t additions_ = 0;
};

}  // namespace trireme::comm
