// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/state_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/text/json.h"
#include "comm/mesh.h"
#include "train/checkpointing/saved_state.h"
#include "train/run/state/copied_state.h"

namespace trireme::train {
namespace {

using RunName = std::array<char, 40>;  // ckpt::CopyLabel::run

// What a rank has, as ranks send it to each other.
struct SentReport {
  static constexpr int64_t none = -1;
  int64_t live = none;
  std::array<int64_t, ckpt::max_copy_buffers> copies{none, none, none};
  std::array<bool, ckpt::max_copy_buffers> are_held{};
  std::array<char, 40> run{};  // of the copies
};

// The copies of a rank whose content is intact.
std::vector<ckpt::FoundCopy> verified(const CopiesOfRank& own) {
  std::vector<ckpt::FoundCopy> good;
  if (own.memory == nullptr) return good;
  for (const ckpt::FoundCopy& copy : own.memory->copies()) {
    if (own.memory->verify(copy.buffer)) {
      good.push_back(copy);
    } else {
      own.report(
          fmt::format("the copy in memory of step {} is damaged: its bytes do not have the hash "
                      "that it was sealed with; it is not used",
                      copy.label.step));
    }
  }
  return good;
}

SentReport report_of(const std::optional<KeptState>& kept,
                     const std::vector<ckpt::FoundCopy>& copies) {
  SentReport report{.live = kept ? kept->point.step : SentReport::none};
  if (!copies.empty()) report.run = copies.front().label.run;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].label.run != report.run) continue;
    report.copies[i] = copies[i].label.step;
    report.are_held[i] = copies[i].is_held;
  }
  return report;
}

// Copies of another run than that of the first rank with copies do not count.
std::vector<HeldState> states_of(const SentReport& sent, const std::array<char, 40>& run) {
  std::vector<HeldState> states;
  if (sent.live != SentReport::none) states.push_back({.step = sent.live});
  for (size_t i = 0; i < sent.copies.size(); ++i) {
    if (sent.copies[i] == SentReport::none || sent.run != run) continue;
    states.push_back(
        {.step = sent.copies[i],
         .kind = sent.are_held[i] ? HeldState::Kind::held_copy : HeldState::Kind::sealed_copy});
  }
  return states;
}

// The copies that ranks keep for others, as they send them.
struct SentKept {
  int rank = 0;  // whose state it is
  HeldState state;
  std::string run;
};

std::string text_of(const RunName& run) { return {run.data(), ::strnlen(run.data(), run.size())}; }

// Returns those of this rank as a text; copies of another layout are left out.
std::string kept_text(const spec::ModelSpec& model, const spec::Plan& plan,
                      const CopiesOfRank& own) {
  base::Json list = base::Json::array();
  for (const KeptStore::Kept& kept : own.kept) {
    const int of = kept.shape.rank;
    if (of < 0 || of >= spec::ranks_of(plan.mesh, spec::dense_axes)) continue;
    if (kept.shape != shape_of(copy_layout(model, plan, of), of, own.buffers)) continue;
    list.push_back({of, kept.copy.label.step, kept.copy.is_held, text_of(kept.copy.label.run)});
  }
  return list.dump();
}

std::vector<SentKept> kept_from_texts(const std::vector<std::string>& texts) {
  std::vector<SentKept> all;
  for (size_t keeper = 0; keeper < texts.size(); ++keeper) {
    for (const base::Json& one : base::Json::parse(texts[keeper])) {
      const bool is_held = one.at(2).get<bool>();
      all.push_back(
          {.rank = one.at(0).get<int>(),
           .state = {.step = one.at(1).get<int64_t>(),
                     .kind = is_held ? HeldState::Kind::held_copy : HeldState::Kind::sealed_copy,
                     .keeper = static_cast<int>(keeper)},
           .run = one.at(3).get<std::string>()});
    }
  }
  return all;
}

// Returns the run of the first copy that a rank has, or another keeps; empty: there is none.
RunName run_of(const std::vector<SentReport>& sent, const std::vector<SentKept>& kept) {
  const auto with_copies = std::ranges::find_if(
      sent, [](const SentReport& report) { return report.copies != SentReport{}.copies; });
  if (with_copies != sent.end()) return with_copies->run;
  RunName run{};
  if (!kept.empty()) kept.front().run.copy(run.data(), run.size() - 1);
  return run;
}

}  // namespace

// Returns the boxes that a rank has under the plan: those of each range of its state.
std::vector<std::vector<ckpt::TensorPieces>> boxes_of(const spec::ModelSpec& model,
                                                      const spec::Plan& plan, int rank) {
  std::vector<std::vector<ckpt::TensorPieces>> boxes;
  for (const auto& range : state_ranges(model, plan, rank)) {
    boxes.push_back(pieces_of(range, model, plan, comm::coord_of(plan.mesh, rank)));
  }
  return boxes;
}

SharedReports gather_reports(Rank& rank, const spec::ModelSpec& model, const spec::Plan& plan,
                             const CopiesOfRank& own, const std::optional<KeptState>& kept) {
  SharedReports shared{.all = {}, .copies = verified(own)};
  const std::vector<SentReport> sent = rank.gather(report_of(kept, shared.copies));
  std::vector<SentKept> kept_copies;
  if (own.fetch) kept_copies = kept_from_texts(rank.all_gather_texts(kept_text(model, plan, own)));
  const RunName run = run_of(sent, kept_copies);
  std::erase_if(shared.copies,
                [&run](const ckpt::FoundCopy& copy) { return copy.label.run != run; });
  for (const SentReport& of_rank : sent) {
    const int number = static_cast<int>(shared.all.size());
    StateReport& report = shared.all.emplace_back();
    report.states = states_of(of_rank, run);
    for (const SentKept& one : kept_copies) {
      if (one.rank == number && one.run == text_of(run)) report.states.push_back(one.state);
    }
    if (report.states.empty()) continue;
    for (auto& boxes : boxes_of(model, plan, number)) {
      std::ranges::move(boxes, std::back_inserter(report.boxes));
    }
  }
  return shared;
}

}  // namespace trireme::train
