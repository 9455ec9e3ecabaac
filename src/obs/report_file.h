// SPDX-License-Identifier: Apache-2.0
// ReportFile: a file of records that only inform. A record that cannot be written, for example on a
// full disk, is dropped; the next one is tried again. A warning is logged when records begin to be
// dropped, and another with their number when writing works again or the file is closed. The file
// never contains a part of a record.
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
