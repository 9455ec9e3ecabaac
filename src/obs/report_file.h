// SPDX-License-Identifier: Apache-2.0
// ReportFile: a file of records that only report. A record that cannot be written, on a full disk
// for one, is dropped; the next one is tried again. A warning says when records begin to be
// dropped, and one how many were when writing works again or the file is closed. No record is ever
// there in part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "obs/output_file.h"

namespace trireme::obs {

class ReportFile {
 public:
  // Throws IoError if the file cannot be opened.
  ReportFile(std::filesystem::path path, OutputFile::Mode mode);
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  void add(std::string_view record);

  int64_t dropped() const { return dropped_; }  // since it was opened
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  OutputFile file_;
  int64_t dropped_ = 0;
  int64_t dropped_in_a_row_ = 0;
};

}  // namespace trireme::obs
