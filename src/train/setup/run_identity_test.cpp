// SPDX-License-Identifier: Apache-2.0
#include "train/setup/run_identity.h"

#include <gtest/gtest.h>

#include "base/build_id.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

TEST(RunIdentity, names_every_key_that_differs) {
  config::Config a, b;
  const base::Json data = {{"training", {{"token_hash", "11"}}}};
  EXPECT_EQ(identity_difference(run_identity(a, data), run_identity(b, data)), "");
  b.optimizer.lr = 0.1;
  b.debug.seed = 7;
  const base::Json other = {{"training", {{"token_hash", "22"}}}};
  EXPECT_EQ(identity_difference(run_identity(a, data), run_identity(b, other)),
            "\n  optimizer.lr: 0.0003 there, 0.1 here"
            "\n  debug.seed: 0 there, 7 here"
            "\n  data.training.token_hash: \"11\" there, \"22\" here");
}

TEST(RunIdentity, paths_and_threads_may_differ_by_host) {
  config::Config a, b;
  b.training.dataset_path = "/local/copy";
  b.system.threads = 3;
  b.system.gpu = 1;
  EXPECT_EQ(run_identity(a, {}), run_identity(b, {}));
}

TEST(RunIdentity, a_build_has_an_id) { EXPECT_GE(base::build_id().size(), 16U); }

}  // namespace
}  // namespace trireme::train
