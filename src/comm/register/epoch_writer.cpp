// SPDX-License-Identifier: Apache-2.0
#include "comm/register/epoch_writer.h"

#include <fmt/format.h>

#include <atomic>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "comm/register/journal_register.h"
#include "comm/register/store_register.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

namespace fs = std::filesystem;

EpochWriter::EpochWriter(std::unique_ptr<Store> store, int64_t epoch, fs::path folder)
    : store_(std::move(store)),
      register_(register_of(*store_)),
      epoch_(epoch),
      folder_(std::move(folder)) {}

std::unique_ptr<EpochWriter> EpochWriter::of(Store& epoch_store, fs::path folder) {
  const auto text = epoch_store.try_get(record_epoch_key);
  if (!text) return nullptr;
  const auto epoch = integer_from(*text);
  if (!epoch) {
    throw base::CommAborted(
        fmt::format("the store has '{}' as the epoch of the record, which is no number", *text));
  }
  return std::make_unique<EpochWriter>(epoch_store.another(), *epoch, std::move(folder));
}

void EpochWriter::resumed(const ResumePoint& point) {
  change([&](const RunRecord& now) { return comm::resumed(now, epoch_, point); });
}

void EpochWriter::commit(int64_t step) {
  change([&](const RunRecord& now) {
    // The step may be saved again: the save that claimed it may have failed since.
    const bool is_claimed = now.last_commit == CommitPoint{step, epoch_};
    return is_claimed ? base::Result<RunRecord>(now) : comm::commit(now, step, epoch_);
  });
}

void EpochWriter::change(const Next& next) {
  try {
    return change_in(*register_, next);
  } catch (const base::CommAborted& ignored) {  // the launcher has ended, or cannot be reached
    std::error_code unknown;
    if (folder_.empty() || !fs::exists(folder_ / journal_name, unknown)) throw;
  }
  // If the change was made and only its reply was lost, it has the same result once more.
  const std::unique_ptr<JournalRegister> journal = open_journal_register(folder_);
  change_in(*journal, next);
}

void EpochWriter::change_in(Register& of, const Next& next) const {
  while (true) {
    const RegisterState state = of.read();
    const RunRecord now = run_record_from(state.value);
    const base::Result<RunRecord> record = next(now);
    if (now.epoch != epoch_) throw base::Fenced(record.reason());
    if (!record) throw base::IoError("the record of the run: " + record.reason());
    static std::atomic<int64_t> swaps{0};  // of all writers of this process
    const std::string id = fmt::format("{}/{}", own_incarnation(), ++swaps);
    if (of.swap(state.revision, to_text(record.value()), id).is_done) return;
  }
}

}  // namespace trireme::comm
