// SPDX-License-Identifier: Apache-2.0
// Reports an error: one line on stderr, with --json also one object on stdout, and an exit code
// (agent/exit_codes.h).
#pragma once

#include <exception>
#include <string>

namespace trireme::cli {

// Prints the message and returns `code`.
int report(const std::string& message, bool wants_json, int code);

std::string message_of(const std::exception& error);
int exit_code_of(const std::exception& error);
// Calls report() with message_of() and exit_code_of(), and returns the exit code.
int report_error(const std::exception& error, bool wants_json);

}  // namespace trireme::cli
