// SPDX-License-Identifier: Apache-2.0
#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "comm/threads.h"

namespace trireme::comm {
namespace {

using spec::Axis;
using spec::Sizes;

constexpr Axis all_axes[] = {Axis::pp,  Axis::dp,    Axis::zero, Axis::cp, Axis::tp,
                             Axis::edp, Axis::ezero, Axis::ep,   Axis::etp};

// A mesh of 48 ranks in which all axes but one of each view are longer than one.
Sizes large_mesh() {
  Sizes sizes;
  sizes[Axis::pp] = 2;
  sizes[Axis::dp] = 2;
  sizes[Axis::zero] = 3;
  sizes[Axis::cp] = 2;
  sizes[Axis::tp] = 2;
  sizes[Axis::edp] = 2;
  sizes[Axis::ezero] = 2;
  sizes[Axis::ep] = 3;
  sizes[Axis::etp] = 2;
  return sizes;
}

TEST(Mesh, the_last_axis_is_the_fastest_in_both_views) {
  const Sizes sizes = large_mesh();
  EXPECT_EQ(mesh_problem(sizes, 48), "");
  for (int rank = 0; rank < 48; ++rank) {
    const auto c = coord_of(sizes, rank);
    EXPECT_EQ(
        (((c[Axis::pp] * 2 + c[Axis::dp]) * 3 + c[Axis::zero]) * 2 + c[Axis::cp]) * 2 + c[Axis::tp],
        rank);
    EXPECT_EQ((((c[Axis::pp] * 2 + c[Axis::edp]) * 2 + c[Axis::ezero]) * 3 + c[Axis::ep]) * 2 +
                  c[Axis::etp],
              rank);
  }
}

TEST(Mesh, members_along_every_axis_partition_the_world) {
  const Sizes sizes = large_mesh();
  for (const Axis axis : all_axes) {
    for (int rank = 0; rank < 48; ++rank) {
      const auto ranks = members(sizes, rank, std::span(&axis, 1));
      ASSERT_EQ(static_cast<int>(ranks.size()), sizes[axis]);
      EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
      EXPECT_EQ(ranks[static_cast<size_t>(coord_of(sizes, rank)[axis])], rank);
      for (const int member : ranks) {
        EXPECT_EQ(members(sizes, member, std::span(&axis, 1)), ranks);
      }
    }
  }
  const Axis data[] = {Axis::dp, Axis::zero};
  EXPECT_EQ(members(sizes, 5, data), (std::vector<int>{1, 5, 9, 13, 17, 21}));
  const Axis experts[] = {Axis::ep, Axis::etp};
  EXPECT_EQ(members(sizes, 8, experts), (std::vector<int>{6, 7, 8, 9, 10, 11}));
}

TEST(Mesh, without_experts_their_axes_have_one_rank) {
  Sizes sizes;
  sizes[Axis::zero] = 2;
  sizes[Axis::tp] = 2;
  const Axis ep = Axis::ep;
  EXPECT_EQ(members(sizes, 3, std::span(&ep, 1)), std::vector<int>{3});
  EXPECT_EQ(coord_of(sizes, 3)[Axis::ezero], 0);
}

TEST(Mesh, sizes_that_do_not_form_a_mesh_are_refused_with_the_numbers) {
  Sizes sizes;
  sizes[Axis::dp] = 3;
  EXPECT_EQ(mesh_problem(sizes, 4),
            "pp 1 * dp 3 * zero 1 * cp 1 * tp 1 = 3 ranks, but the world has 4");
  EXPECT_EQ(mesh_problem(sizes, 3), "");
  sizes[Axis::ep] = 2;
  EXPECT_EQ(mesh_problem(sizes, 3),
            "pp 1 * edp 1 * ezero 1 * ep 2 * etp 1 = 2 ranks for experts, but the world has 3");
  sizes[Axis::tp] = 0;
  EXPECT_EQ(mesh_problem(sizes, 3), "tp = 0: an axis needs at least 1 rank");
  ThreadWorld world(2);
  const auto alone = world.communicator(0, {.name = "world"});
  EXPECT_THROW(Mesh(*alone, sizes), base::ConfigError);
}

TEST(Mesh, groups_are_shared_by_members_and_channel) {
  Sizes sizes;
  sizes[Axis::dp] = 2;
  sizes[Axis::zero] = 2;
  sizes[Axis::tp] = 2;
  ThreadWorld world(8, 20);
  run_ranks(world, [&](int rank) {
    const auto all = world.communicator(rank, {.name = "world"});
    Mesh mesh(*all, sizes);
    const Axis data[] = {Axis::dp, Axis::zero};
    for (const Axis axis : all_axes) {
      Communicator& group = mesh.along(axis);
      EXPECT_EQ(group.size(), sizes[axis]);
      EXPECT_EQ(group.rank(), mesh.coord()[axis]);
      EXPECT_EQ(group.world_ranks(), members(sizes, rank, std::span(&axis, 1)));
      group.barrier();
    }
    Communicator& both = mesh.along(data);
    EXPECT_EQ(both.name(), "dp+zero");
    EXPECT_EQ(both.size(), 4);
    EXPECT_EQ(both.rank(), mesh.coord()[Axis::dp] * 2 + mesh.coord()[Axis::zero]);
    EXPECT_EQ(&mesh.along(data), &both);
    EXPECT_EQ(&mesh.along(Axis::pp), &mesh.along(Axis::cp)) << "both are this rank alone";
    Communicator& other = mesh.along(data, Channel::gradients);
    EXPECT_NE(&other, &both);
    EXPECT_EQ(other.name(), "dp+zero gradients");
    EXPECT_EQ(mesh.groups().size(), 6U);  // alone, dp, zero, tp, dp+zero twice
    both.barrier();
    other.barrier();
  });
}

}  // namespace
}  // namespace trireme::comm
