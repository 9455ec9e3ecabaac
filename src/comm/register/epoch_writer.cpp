// SPDX-License-Identifier: Apache-2.0
#include "comm/register/epoch_writer.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "comm/register/store_register.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

EpochWriter::EpochWriter(std::unique_ptr<Store> store, int64_t epoch)
    : store_(std::move(store)), register_(register_of(*store_)), epoch_(epoch) {}

std::unique_ptr<EpochWriter> EpochWriter::of(Store& epoch_store) {
  const auto text = epoch_store.try_get(record_epoch_key);
  if (!text) return nullptr;
  const auto epoch = integer_from(*text);
  if (!epoch) {
    throw base::CommAborted(
        fmt::format("the store has '{}' as the epoch of the record, which is no number", *text));
  }
  return std::make_unique<EpochWriter>(epoch_store.another(), *epoch);
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

void EpochWriter::change(const std::function<base::Result<RunRecord>(const RunRecord&)>& next) {
  while (true) {
    const RegisterState state = register_->read();
    const RunRecord now = run_record_from(state.value);
    const base::Result<RunRecord> record = next(now);
    if (now.epoch != epoch_) throw base::Fenced(record.reason());
    if (!record) throw base::IoError("the record of the run: " + record.reason());
    const std::string id = fmt::format("{}/{}", own_incarnation(), ++swaps_);
    if (register_->swap(state.revision, to_text(record.value()), id).is_done) return;
  }
}

}  // namespace trireme::comm
