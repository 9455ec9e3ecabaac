// SPDX-License-Identifier: Apache-2.0
#include "data/readers/mds.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/archives_test.h"

namespace trireme::data {
namespace {

class MdsTest : public FilesTest {
 protected:
  std::vector<std::string> texts(const std::string& shard, size_t samples) {
    write("s.mds", shard);
    const auto shards =
        parse_mds_index(mds_index(mds_index_entry("s.mds", shard.size(), samples)), path(""));
    ShardStream stream(shards[0].file);
    MdsReader reader(stream, shards[0]);
    std::vector<std::string> found;
    for (std::string sample; reader.next(sample, 100);) {
      found.emplace_back(int64_t{reader.sample_bytes()} > 100 ? "too long"
                                                              : reader.column(sample, 1));
    }
    return found;
  }
  std::string refusal(const std::string& shard, size_t samples) {
    return message_of<base::IoError>([&] { texts(shard, samples); });
  }
  std::string index_refusal(const std::string& index) {
    return message_of<base::IoError>([&] { parse_mds_index(index, path("")); });
  }
};

TEST_F(MdsTest, samples_are_read_by_column) {
  EXPECT_EQ(texts(mds_shard({"one", "", "three"}), 3),
            (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(texts(mds_shard({std::string(200, 'x'), "b"}), 2),
            (std::vector<std::string>{"too long", "b"}));
  EXPECT_TRUE(texts(mds_shard({}), 0).empty());
}

TEST_F(MdsTest, shards_that_contradict_the_index_are_refused) {
  const std::string good = mds_shard({"one", "two"});
  EXPECT_TRUE(says(refusal(good, 3), {"holds 2 samples; the index lists 3"}));
  EXPECT_TRUE(
      says(refusal(good.substr(0, good.size() - 1), 2), {"end at", "the size in the index"}));
  std::string bad = good;
  bad[4] = 1;  // the first sample begins inside the table
  EXPECT_TRUE(says(refusal(bad, 2), {"the samples begin at byte 1"}));
  bad = good;
  bad[8] = 127;  // not ascending
  EXPECT_TRUE(says(refusal(bad, 2), {"allowed: ascending"}));
  bad = good;
  bad[18] = 100;  // the length of the first text
  EXPECT_TRUE(says(refusal(bad, 2), {"sample 0 has 15 bytes, which its 2 columns do not fill"}));
  bad[18] = 2;
  EXPECT_TRUE(says(refusal(bad, 2), {"columns do not fill"}));
}

TEST_F(MdsTest, a_malformed_index_is_refused_with_its_key) {
  const std::string shard = mds_shard({"one"});
  write("s.mds", shard);
  const std::string entry = mds_index_entry("s.mds", shard.size(), 1);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = mds_index(entry);
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  EXPECT_EQ(parse_mds_index(mds_index(entry), path("")).size(), 1U);
  EXPECT_TRUE(says(index_refusal("{"), {"index.json: not JSON"}));
  EXPECT_TRUE(says(index_refusal("[]"), {"is not an object"}));
  EXPECT_TRUE(says(index_refusal("{}"), {"has no key \"version\""}));
  EXPECT_TRUE(says(index_refusal(R"({"version":3,"shards":[]})"), {"version 3"}));
  EXPECT_TRUE(says(index_refusal(R"({"version":2,"shards":[]})"), {"\"shards\" is not a list"}));
  EXPECT_TRUE(
      says(index_refusal(with("\"mds\"", "\"json\"")), {"shards[0]", "'json'; allowed: mds"}));
  EXPECT_TRUE(says(index_refusal(with("s.mds", "../s.mds")), {"not the name of a file"}));
  EXPECT_TRUE(says(index_refusal(with("s.mds", "other.mds")), {"other.mds: No such file"}));
  EXPECT_TRUE(says(index_refusal(with("[8,null]", "[8]")), {"\"column_sizes\"", "2 entries"}));
  EXPECT_TRUE(says(index_refusal(with("[8,null]", "[-8,null]")), {"column_sizes[0] is -8"}));
  EXPECT_TRUE(
      says(index_refusal(with("[\"int\",\"str\"]", "[1,2]")), {"column 0 is not a string"}));
  EXPECT_TRUE(
      says(index_refusal(with("\"samples\":1", "\"samples\":1.5")), {"\"samples\" is 1.5"}));
  EXPECT_TRUE(says(index_refusal(with("\"samples\":1", "\"samples\":999999")), {"do not fit"}));
  EXPECT_TRUE(says(index_refusal(with("\"bytes\":" + std::to_string(shard.size()), "\"bytes\":1")),
                   {"s.mds has", "the index lists 1"}));
  EXPECT_TRUE(says(index_refusal(with("\"version\":2,\"zip_data\"", "\"version\":99,\"zip_data\"")),
                   {"shards[0]", "version 99 of MDS; allowed: 2"}));
  EXPECT_TRUE(says(index_refusal(with("\"compression\":null", "\"compression\":\"zstd\"")),
                   {"shards[0]", "\"compression\" is \"zstd\" and \"zip_data\" is null"}));
  const std::string stored = mds_index(mds_index_entry(
      "gone.mds", shard.size(), 1,
      R"({"basename":"s.mds","bytes":)" + std::to_string(shard.size()) + "}", "\"zstd\""));
  const auto raw = parse_mds_index(stored, path(""));
  ShardStream stream(raw[0].file);
  EXPECT_TRUE(says(message_of<base::IoError>([&] { MdsReader(stream, raw[0]); }),
                   {"s.mds", "the compression of the file is none; by the index it is zstd"}));
  const std::string zipped =
      mds_index(mds_index_entry("gone.mds", 9, 1, R"({"basename":"z","bytes":4})", "\"snappy\""));
  EXPECT_TRUE(says(index_refusal(zipped), {"'snappy'; allowed: null, zstd, gz"}));
}

}  // namespace
}  // namespace trireme::data
