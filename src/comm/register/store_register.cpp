// SPDX-License-Identifier: Apache-2.0
#include "comm/register/store_register.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"

namespace trireme::comm {

RegisterState StoreRegister::read() { return ask({StoreCode::register_read, {}}).state; }

Swapped StoreRegister::swap_checked(int64_t expected_revision, const std::string& value,
                                    const std::string& request_id) {
  return ask({StoreCode::register_swap, {std::to_string(expected_revision), value, request_id}});
}

Swapped StoreRegister::ask(const StoreMessage& request) {
  const std::vector<std::string> fields = store_.ask(request, 3);
  if (fields[0] == "refused") {
    throw base::IoError(fmt::format("the store at {} refused: {}", store_.address(), fields[2]));
  }
  const auto revision = integer_from(fields[1]);
  if (!revision || (fields[0] != "done" && fields[0] != "conflict")) {
    throw base::IoError(
        fmt::format("the store at {} answered '{}' with revision '{}' for its "
                    "register; 'done', 'conflict' or 'refused' are allowed",
                    store_.address(), fields[0], fields[1]));
  }
  return {fields[0] == "done", {*revision, fields[2]}};
}

std::unique_ptr<Register> register_of(Store& store) {
  auto* const tcp = dynamic_cast<TcpStore*>(&store);
  if (tcp == nullptr) {
    throw base::ConfigError(
        fmt::format("the store {} is a folder, which has no register: use the "
                    "store of a launcher, 'host:port'",
                    store.address()));
  }
  return std::make_unique<StoreRegister>(*tcp);
}

}  // namespace trireme::comm
