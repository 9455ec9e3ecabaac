// SPDX-License-Identifier: Apache-2.0
// StoreRegister: the register that a store serves (StoreServer::Options::run_register), over the
// connection of one of its clients. If the connection is lost and StoreOptions::outage_s allows it,
// a request is sent again on the next one; the register does a swap once. A handle of a lower epoch
// is refused with Fenced.
#pragma once

#include <memory>
#include <string>

#include "comm/register/register.h"
#include "comm/store/store.h"
#include "comm/store/store_tcp.h"

namespace trireme::comm {

class StoreRegister final : public Register {
 public:
  // The store must outlive it.
  explicit StoreRegister(TcpStore& store) : store_(store) {}

  RegisterState read() override;

 private:
  Swapped swap_checked(int64_t expected_revision, const std::string& value,
                       const std::string& request_id) override;
  Swapped ask(const StoreMessage& request);

  TcpStore& store_;
};

// Throws ConfigError for a folder, whose files cannot be compared and swapped on all file systems.
std::unique_ptr<Register> register_of(Store& store);

}  // namespace trireme::comm
