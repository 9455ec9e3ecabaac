// SPDX-License-Identifier: Apache-2.0
// The token of a job whose launcher hands none to its ranks: rank 0 writes random bits to a file
// that only its user may read, in the folder of the run, which all ranks share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::comm {

// 128 random bits in hexadecimal digits.
std::string random_token();

// The file of rank 0, or of the launcher of node 0.
class JobTokenFile {
 public:
  static constexpr const char* name = "store.token";

  // Writes a random token, in place of the file of an earlier job, and creates the folder if
  // necessary. `attempt` is what this job and attempt are known by, which may be public or empty.
  // Throws IoError.
  JobTokenFile(const std::filesystem::path& folder, const std::string& attempt);
  // Instead: the file of a launcher that has died, and had this token.
  JobTokenFile(const std::filesystem::path& folder, const std::string& attempt, std::string token);
  // Removes the file, unless another job has replaced it, and the folders that the constructor
  // created, if they are empty.
  ~JobTokenFile();
  JobTokenFile(const JobTokenFile&) = delete;
  JobTokenFile& operator=(const JobTokenFile&) = delete;

  const std::string& token() const { return token_; }

 private:
  const std::filesystem::path path_;
  const std::string token_, text_;
  std::vector<std::filesystem::path> created_;  // folders, outermost first
};

// Returns the token in the folder's file; none if there is no file, or only one of another attempt.
std::optional<std::string> read_job_token(const std::filesystem::path& folder,
                                          const std::string& attempt);

// For a job on several hosts that has neither TRIREME_TOKEN nor a folder; `who` has no token.
std::string no_token_message(const std::string& who);

}  // namespace trireme::comm
