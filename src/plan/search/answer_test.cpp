// SPDX-License-Identifier: Apache-2.0
#include "plan/search/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

struct Asked {
  const char *model, *machine;
  int64_t gpus, batch, seq_len;
};

Answer answer_to(const Asked& q, const Space& space = {}) {
  SearchOptions options;
  options.gpus = q.gpus;
  options.space = space;
  return answer(job_of(q.model, q.batch, q.seq_len), shipped_machine(q.machine), trireme_stack(),
                options);
}

// Returns the text of the layout with a fixed number of chunks.
std::string without_chunks(Layout layout) {
  layout.chunks = 2;
  return to_text(layout);
}

const std::vector<Asked> questions = {{"llama-8b", "h100", 8, 512, 8192},
                                      {"llama3-70b", "h100", 256, 512, 8192},
                                      {"llama2-13b", "h100", 4, 64, 4096},
                                      {"gpt2-124m", "a100-40gb", 8, 64, 1024},
                                      {"llama-1b", "h200", 1, 64, 4096}};

TEST(Answer, others_are_slower_and_faster_ones_are_within_the_tolerance) {
  for (const Asked& q : questions) {
    const Answer found = answer_to(q);
    ASSERT_TRUE(found.best.has_value()) << q.model;
    const double seconds = found.best->confirmed.seconds;
    const double room = 0.95 * shipped_machine(q.machine).processor.memory_bytes;
    EXPECT_LE(found.others.size(), 8U);
    for (const Proposal& other : found.others) {
      EXPECT_GE(other.confirmed.seconds, seconds) << q.model << ": " << words(other.layout);
      EXPECT_LE(other.confirmed.bytes, room) << words(other.layout);
      EXPECT_NE(other.layout, found.best->layout);
    }
    EXPECT_GT(found.tolerance, 0);
    EXPECT_LE(found.tolerance, 0.02);
    for (const Proposal& faster : found.passed_over) {
      EXPECT_LT(faster.confirmed.seconds, seconds) << words(faster.layout);
      EXPECT_LE(seconds, faster.confirmed.seconds * (1 + found.tolerance));
      EXPECT_LT(simplicity_of(found.best->layout), simplicity_of(faster.layout));
    }
    // The textbook layout is confirmed in the same way.
    if (found.textbook_proposal && found.textbook_proposal->confirmed.bytes <= room) {
      EXPECT_LE(seconds, found.textbook_proposal->confirmed.seconds * (1 + found.tolerance));
    }
  }
}

TEST(Answer, others_are_of_other_kinds_and_differ_in_more_than_chunks) {
  for (const Asked& q : questions) {
    const Answer found = answer_to(q);
    std::set<std::string> seen = {without_chunks(found.best->layout)};
    for (const Proposal& other : found.others) {
      EXPECT_TRUE(seen.insert(without_chunks(other.layout)).second) << words(other.layout);
    }
  }
  const Answer found = answer_to(questions[0]);
  std::set<LayoutKind> kinds = {kind_of(found.best->layout)};
  for (const Proposal& other : found.others) kinds.insert(kind_of(other.layout));
  for (const Proposal& other : found.passed_over) kinds.insert(kind_of(other.layout));
  for (const LayoutKind kind : {LayoutKind::fsdp, LayoutKind::tensor, LayoutKind::one_f_one_b,
                                LayoutKind::interleaved, LayoutKind::zero_bubble}) {
    EXPECT_TRUE(kinds.contains(kind)) << name_of(kind);
  }
}

TEST(Answer, a_simple_layout_is_preferred_to_many_chunks_that_gain_nothing) {
  const Answer found = answer_to({"llama-8b", "h100", 8, 512, 8192});
  ASSERT_FALSE(found.passed_over.empty());
  EXPECT_GT(found.passed_over.front().layout.chunks, found.best->layout.chunks);
}

TEST(Answer, a_known_layout_is_a_candidate_within_the_limits) {
  const Job job = job_of("llama-8b", 512, 8192);
  const spec::Machine machine = shipped_machine("h100");
  SearchOptions options;
  options.gpus = 8;
  options.space.pp = {2};
  options.space.chunks = {1};
  options.space.pipes = {Kind::zb_h2};
  AnswerOptions more;
  more.known = {layout_from_text("pp=2 zero=1", 8)};  // another schedule
  const Answer limited = answer(job, machine, trireme_stack(), options, more);
  EXPECT_EQ(limited.best.value().layout.schedule, Kind::zb_h2);
  options.space.pipes = {Kind::zb_h2, Kind::one_f_one_b};
  const Answer open = answer(job, machine, trireme_stack(), options, more);
  EXPECT_EQ(open.best.value().layout.schedule, Kind::one_f_one_b);
}

TEST(Answer, proposed_changes_were_confirmed) {
  const Asked q{"llama3-70b", "h100", 16, 64, 4096};
  const Job job = job_of(q.model, q.batch, q.seq_len);
  const spec::Machine machine = shipped_machine(q.machine);
  const double room = 0.95 * machine.processor.memory_bytes;
  const Answer found = answer_to(q);
  EXPECT_FALSE(found.best.has_value());
  EXPECT_GT(found.nearest.value().confirmed.bytes, room);
  std::vector<std::string> names;
  for (const Change& change : found.changes) {
    names.push_back(change.what);
    EXPECT_EQ(change.proposal.confirmed.problem, "") << change.what;
    EXPECT_LE(change.proposal.confirmed.bytes,
              change.what == "--memory-fraction 1" ? machine.processor.memory_bytes : room)
        << change.what;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"--master-dtype u16", "--grad-dtype bf16",
                                             "--memory-fraction 1", "32 GPUs"}));
  // The layout has the types of the change, not of the question.
  const Layout& shorter = found.changes[0].proposal.layout;
  EXPECT_EQ(shorter.master_dtype, base::DType::u16);
  EXPECT_EQ(propose(job, machine, trireme_stack(), shorter).confirmed.bytes,
            found.changes[0].proposal.confirmed.bytes);
}

TEST(Answer, changes_that_do_not_help_are_left_out) {
  const Answer found = answer_to({"llama3-70b", "h100", 8, 64, 4096});
  ASSERT_EQ(found.changes.size(), 2U);
  EXPECT_EQ(found.changes[0].what, "16 GPUs with --master-dtype u16 --grad-dtype bf16");
  EXPECT_EQ(found.changes[1].what, "24 GPUs");
  EXPECT_EQ(found.state.value().min_gpus, 16);
  EXPECT_EQ(found.state.value().bytes_per_parameter, 18);
  Space space;
  space.precision = {Precision::fp32};
  const Answer fp32 = answer_to({"llama3-70b", "h100", 8, 64, 4096}, space);
  EXPECT_EQ(fp32.state.value().bytes_per_parameter, 16);
  EXPECT_GE(fp32.nearest.value().confirmed.bytes * 8, fp32.state.value().bytes);
}

TEST(Answer, the_limiting_option_is_named_with_a_value_that_helps) {
  Space space;
  space.recompute = {spec::Recompute::none};
  space.tp = {1};
  space.pp = {1};
  const Answer recompute = answer_to({"llama2-13b", "h100", 4, 64, 4096}, space);
  ASSERT_FALSE(recompute.best.has_value());
  ASSERT_FALSE(recompute.changes.empty());
  EXPECT_EQ(recompute.changes[0].what, "--recompute full");
  space = {};
  space.tp = {8};
  space.pp = {1};
  space.zero = {0};
  const Answer zero = answer_to({"llama3-70b", "h100", 256, 512, 8192}, space);
  ASSERT_FALSE(zero.changes.empty());
  EXPECT_EQ(zero.changes[0].what, "--zero 1");
}

TEST(Answer, layouts_of_other_programs_keep_their_price) {
  const Job job = job_of("llama3-70b", 512, 8192);
  const spec::Machine machine = shipped_machine("h100");
  const Layout layout = layout_from_text("tp=8 sp pp=4 interleaved=5 zero=1 selective", 256);
  const Proposal theirs = propose(job, machine, shipped_stack("megatron-core"), layout);
  EXPECT_EQ(theirs.confirmed.seconds, theirs.price.seconds);
  EXPECT_EQ(theirs.confirmed.bytes, theirs.price.bytes);
  EXPECT_FALSE(theirs.is_engine_plan);
  const Proposal ours = propose(job, machine, trireme_stack(), layout);
  EXPECT_TRUE(ours.is_engine_plan);
  EXPECT_NE(ours.confirmed.seconds, ours.price.seconds);
}

TEST(Answer, better_layouts_are_faster_than_the_given_one) {
  const Job job = job_of("llama3-70b", 512, 8192);
  const spec::Machine machine = shipped_machine("h100");
  const Stack stack = shipped_stack("megatron-core");
  const Proposal asked =
      propose(job, machine, stack, layout_from_text("tp=8 pp=8 zero=1 full", 256));
  SearchOptions options;
  options.gpus = 256;
  const std::vector<Proposal> better = better_than(job, machine, stack, options, asked, 3);
  ASSERT_EQ(better.size(), 3U);
  double before = 0;
  for (const Proposal& p : better) {
    EXPECT_LT(p.confirmed.seconds, asked.confirmed.seconds);
    EXPECT_GE(p.confirmed.seconds, before);
    before = p.confirmed.seconds;
  }
}

}  // namespace
}  // namespace trireme::plan
