// SPDX-License-Identifier: Apache-2.0
#include "comm/register/register_requests.h"

#include <string>

#include "base/error.h"

namespace trireme::comm {
namespace {

StoreMessage answered(const char* result, const RegisterState& state) {
  return {StoreCode::ok, {result, std::to_string(state.revision), state.value}};
}

StoreMessage refused_because(const std::string& why) {
  return {StoreCode::ok, {"refused", "", why}};
}

StoreMessage swap_as_requested(Register& run_register, int64_t expected,
                               const std::vector<std::string>& fields) {
  const Swapped swapped = run_register.swap(expected, fields[1], fields[2]);
  return answered(swapped.is_done ? "done" : "conflict", swapped.state);
}

}  // namespace

std::optional<StoreMessage> answer_from(Register* run_register, const StoreMessage& request) {
  const bool is_read = request.code == StoreCode::register_read;
  if (request.fields.size() != (is_read ? 0U : 3U)) return std::nullopt;
  const auto expected = is_read ? std::optional<int64_t>(0) : integer_from(request.fields[0]);
  if (!expected) return std::nullopt;
  if (run_register == nullptr) return refused_because("this store has no register");
  try {
    if (is_read) return answered("done", run_register->read());
    return swap_as_requested(*run_register, *expected, request.fields);
  } catch (const base::Error& error) {
    return refused_because(error.what());
  }
}

}  // namespace trireme::comm
