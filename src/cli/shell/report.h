// SPDX-License-Identifier: Apache-2.0
// How the program reports an error: one line on stderr, with --json one object on stdout, and an
// exit code (exit_codes.h).
#pragma once

#include <exception>
#include <string>

namespace trireme::cli {

// Prints the message and returns `code`.
int report(const std::string& message, bool wants_json, int code);

std::string message_of(const std::exception& error);
int exit_code_of(const std::exception& error);
// Reports the error by message_of() and exit_code_of(), and returns the latter.
int report_error(const std::exception& error, bool wants_json);

}  // namespace trireme::cli
