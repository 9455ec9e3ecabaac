// SPDX-License-Identifier: Apache-2.0
// Compares the closed forms with the engine's schedules, run by the simulator.
#include "plan/price/pipe_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/samples_test.h"
#include "plan/search/confirm.h"
#include "schedule/catalogue.h"
#include "sim/sim.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

// Seconds of one micro-batch on one rank.
struct Parts {
  double f = 1, b = 1, w = 1;
  double sum() const { return f + b + w; }
};

Layout staged(Kind pipe, int pp, int chunks = 0) {
  Layout l;
  l.schedule = pipe;
  l.pp = pp;
  l.chunks = chunks == 0 ? schedule::named(pipe).chunks : chunks;
  return l;
}

double simulated(const Layout& l, int micro_batches, const Parts& t) {
  const auto made = schedule::generate(name_of(l.schedule), {l.pp, micro_batches, l.chunks});
  const schedule::Schedule schedule = schedule::add_p2p(made.value());
  const double n = l.chunks;
  const sim::StageSeconds stage{
      .f = t.f / n, .b = t.b / n, .w = t.w / n, .bw = (t.b + t.w) / n, .fb = t.sum() / n};
  const sim::Costs costs = sim::uniform_costs(schedule.stages(), stage, {}, 0);
  return sim::simulate(schedule, costs, {}, {}).step_time;
}

PipeSeconds priced(const Layout& l, int micro_batches, const Parts& t) {
  Job job;
  job.global_batch = micro_batches;
  RankTimes times;
  times.slowest_seconds = {.forward = t.f, .backward = t.b + t.w, .weight = t.w};
  times.all_seconds = l.pp * t.sum();
  spec::Machine machine;
  machine.domain.link.bytes_per_second = 1;  // messages have no bytes here
  return pipe_seconds(job, machine, trireme_stack(), l, {}, times);
}

double closed(const Layout& l, int micro_batches, const Parts& t) {
  return micro_batches * t.sum() + priced(l, micro_batches, t).bubble;
}

const std::vector<Parts> some_parts = {{1, 1, 1},     {1, 1.3, 0.7}, {1, 2, 1},     {1, 2.2, 0.9},
                                       {1.2, 1.4, 1}, {0.8, 1.4, 1}, {1, 1.5, 1.4}, {0.5, 1, 0.4}};

TEST(PipeTime, gpipe_and_1f1b_are_exact) {
  for (const Kind pipe : {Kind::gpipe, Kind::one_f_one_b}) {
    for (const int pp : {2, 3, 4, 8, 16}) {
      for (const int m : {1, 2, 7, 16, 64}) {
        for (const Parts& t : some_parts) {
          const Layout l = staged(pipe, pp);
          EXPECT_NEAR(closed(l, m, t), simulated(l, m, t), 1e-9) << to_text(l) << " m " << m;
        }
      }
    }
  }
}

TEST(PipeTime, interleaved_is_exact) {
  for (const int pp : {2, 3, 4, 8}) {
    for (const int chunks : {2, 3, 5, 8}) {
      for (const int rounds : {1, 2, 5}) {
        for (const Parts& t : some_parts) {
          const Layout l = staged(Kind::interleaved, pp, chunks);
          EXPECT_NEAR(closed(l, rounds * pp, t), simulated(l, rounds * pp, t), 1e-9) << to_text(l);
        }
      }
    }
  }
}

TEST(PipeTime, split_backwards_are_exact_if_b_is_the_longest) {
  for (const Kind pipe : {Kind::zb_h1, Kind::zb_h2, Kind::zb_v, Kind::dualpipe_v}) {
    for (const int pp : {2, 3, 4, 8, 16}) {
      for (const int m : {2 * pp, 3 * pp + 1, 8 * pp}) {
        for (const Parts& t : some_parts) {
          if (t.w > t.f && pipe == Kind::zb_v) continue;
          const Layout l = staged(pipe, pp);
          EXPECT_NEAR(closed(l, m, t), simulated(l, m, t), 1e-9)
              << to_text(l) << " m " << m << " f " << t.f << " b " << t.b << " w " << t.w;
        }
      }
    }
  }
}

// For any parts: within 2 % of the step, also with the fewest micro-batches that the forms cover.
TEST(PipeTime, split_backwards_are_near_for_any_parts) {
  Dice dice(3);
  for (int turn = 0; turn < 400; ++turn) {
    const Kind pipe = dice.of<Kind>({Kind::zb_h1, Kind::zb_h2, Kind::zb_v, Kind::dualpipe_v});
    const Layout l = staged(pipe, dice.of<int>({2, 4, 8, 12}));
    const Parts t{1, dice.between(0.6, 2.5), dice.between(0.5, 1.4)};
    const int m = 2 * l.pp + static_cast<int>(dice.below(20));
    const double wanted = simulated(l, m, t);
    EXPECT_NEAR(closed(l, m, t), wanted, 0.02 * wanted)
        << to_text(l) << " m " << m << " b " << t.b << " w " << t.w;
  }
}

// With too few micro-batches to fill the gaps the closed form is an upper bound.
TEST(PipeTime, few_micro_batches_have_the_bubble_of_an_unsplit_backward) {
  for (const Kind pipe : {Kind::zb_h1, Kind::zb_h2, Kind::zb_v}) {
    for (const int pp : {2, 4, 8}) {
      for (int m = 1; m < 2 * pp; ++m) {
        const Layout l = staged(pipe, pp);
        EXPECT_GE(closed(l, m, {1, 1.3, 0.9}) + 1e-9, simulated(l, m, {1, 1.3, 0.9}))
            << to_text(l) << " m " << m;
      }
    }
  }
}

TEST(PipeTime, one_stage_has_no_bubble) {
  const PipeSeconds none = priced(staged(Kind::one_f_one_b, 1), 8, {});
  EXPECT_EQ(none.bubble, 0);
  EXPECT_EQ(none.messages, 0);
}

// The price of real models, whose first and last stages differ, against the simulated step.
TEST(PipeTime, steps_of_real_models_are_near_the_simulated) {
  const spec::Machine machine = shipped_machine("h100");
  Dice dice(5);
  double sum = 0;
  int count = 0;
  for (const char* name : {"gpt2-1.5b", "llama-8b", "llama3-70b", "gpt3-175b"}) {
    const Job job = job_of(name, 256, 4096);
    Pricer pricer(job, machine, trireme_stack());
    for (int i = 0; i < 60; ++i) {
      const Layout l = runnable_layout(dice, job);
      if (l.pp == 1) continue;
      const double error =
          pricer.price(l).seconds / confirm(job, machine, trireme_stack(), l).seconds - 1;
      EXPECT_LT(std::abs(error), 0.15) << name << ": " << to_text(l) << " " << error;
      sum += std::abs(error);
      ++count;
    }
  }
  EXPECT_LT(sum / count, 0.03);
}

}  // namespace
}  // namespace trireme::plan
