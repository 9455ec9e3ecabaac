// SPDX-License-Identifier: Apache-2.0
// FailureDomains: what fails together, as a file says (elastic.domains): a rack, a switch. Every
// line has the name of a host and that of its domain; # begins a comment.
#pragma once

#include <map>
#include <string>

namespace trireme::train {

class FailureDomains {
 public:
  // Without a file every host is a domain.
  FailureDomains() = default;
  // Throws ConfigError with file and line.
  static FailureDomains from_text(const std::string& text, const std::string& file);
  // Reads a file; "": none. Throws ConfigError.
  static FailureDomains read(const std::string& file);

  // Returns the domain of a host. A name with dots is also found by the part before the first one.
  // A host that the file does not have is a domain of that name.
  std::string domain_of(const std::string& host) const;
  bool has(const std::string& host) const { return find(host) != domains_.end(); }
  bool is_empty() const { return domains_.empty(); }

 private:
  std::map<std::string, std::string>::const_iterator find(const std::string& host) const;

  std::map<std::string, std::string> domains_;  // by host
};

}  // namespace trireme::train
