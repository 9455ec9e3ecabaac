// SPDX-License-Identifier: Apache-2.0
// Typed exceptions for operations that cannot be done. A message states what failed, the values
// found and what the user may change. Bugs are not errors: see check.h.
#pragma once

#include <stdexcept>
#include <string>

namespace trireme::base {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A configuration, model or plan that breaks a rule, or requests a feature that this build does not
// support.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A file that is missing, unreadable, malformed or could not be written.
class IoError : public Error {
 public:
  using Error::Error;
};

// A request that does not fit the memory budget.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A device, its driver or one of its libraries refused or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A request to stop was received before there was anything to save.
class Stopped : public Error {
 public:
  using Error::Error;
};

// Another process has taken over the files of this one, which must exit without changing them.
class Fenced : public Error {
 public:
  using Error::Error;
};

// The numbers of a run have diverged: the same attempt again would end in the same way.
class Diverged : public Error {
 public:
  using Error::Error;
};

// The group was aborted: a peer died, a deadline passed, or a rank called abort().
class CommAborted : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme::base
