// SPDX-License-Identifier: Apache-2.0
#include "obs/report_file.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace trireme::obs {

ReportFile::ReportFile(std::filesystem::path path, OutputFile::Mode mode)
    : file_(std::move(path), mode) {}

ReportFile::~ReportFile() {
  if (dropped_in_a_row_ == 0) return;
  try {
    base::log_warning("{}: the last {} record{} could not be written", path().string(),
                      dropped_in_a_row_, dropped_in_a_row_ == 1 ? "" : "s");
  } catch (const std::exception&) {  // destructors do not throw
  }
}

void ReportFile::add(std::string_view record) {
  try {
    file_.write_all_or_none(record);
  } catch (const base::IoError& error) {
    ++dropped_;
    if (++dropped_in_a_row_ == 1) {
      base::log_warning("{}; records are dropped until it can be written again", error.what());
    }
    return;
  }
  if (dropped_in_a_row_ == 0) return;
  base::log_warning("{}: can be written again; {} record{} lost", path().string(),
                    dropped_in_a_row_, dropped_in_a_row_ == 1 ? " was" : "s were");
  dropped_in_a_row_ = 0;
}

}  // namespace trireme::obs
