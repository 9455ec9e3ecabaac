// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "data/files/token_writer.h"
#include "data/files_test.h"
#include "data/packing/best_fit.h"
#include "data/packing/packed_sampler.h"
#include "data/packing/packing_table.h"
#include "data/samples/batch.h"

namespace trireme::data {
namespace {

class PackingTest : public FilesTest {
 protected:
  // Documents of the given lengths; token i of the stream is i.
  std::unique_ptr<TokenData> documents_of(const std::vector<int64_t>& lengths) {
    const auto target = path("documents" + std::to_string(made_++));
    const auto writer = write_tokens(target, {.vocab = 1 << 20});
    int32_t next = 0;
    for (const int64_t length : lengths) {
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      for (int32_t& token : tokens) token = next++;
      writer->write(tokens);
      writer->end_document();
    }
    writer->finish();
    return open_tokens(target, {});
  }

  static std::vector<int64_t> random_lengths(uint64_t seed, int64_t documents, uint64_t longest) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < documents; ++i) {
      lengths.push_back(
          static_cast<int64_t>(base::rng_below(seed, static_cast<uint64_t>(i), longest)));
    }
    return lengths;
  }

 private:
  int made_ = 0;
};

TEST(BestFitTest, pieces_go_where_the_least_room_is_left) {
  // 7 opens 0, 6 opens 1, 3 fits 1 only (room 4), 3 fits 0 exactly, 1 fills 1.
  const std::vector<int32_t> lengths = {3, 7, 1, 6, 3};
  const Packing packing = best_fit(lengths, 10);
  EXPECT_EQ(packing.sequences, 2);
  EXPECT_TRUE(holds(packing.sequence, {0, 0, 1, 1, 1}));
}

TEST(BestFitTest, no_sequence_overflows_and_few_are_opened) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t seq_len = 50 + static_cast<int64_t>(seed) * 13;
    std::vector<int32_t> lengths;
    int64_t total = 0;
    for (uint64_t i = 0; i < 2000; ++i) {
      lengths.push_back(
          1 + static_cast<int32_t>(base::rng_below(seed, i, static_cast<uint64_t>(seq_len))));
      total += lengths.back();
    }
    const Packing packing = best_fit(lengths, seq_len);
    std::vector<int64_t> used(static_cast<size_t>(packing.sequences), 0);
    for (size_t i = 0; i < lengths.size(); ++i) {
      used[static_cast<size_t>(packing.sequence[i])] += lengths[i];
    }
    EXPECT_LE(*std::max_element(used.begin(), used.end()), seq_len);
    // Best-fit decreasing opens at most 11/9 of the optimum plus 1 (Johnson 1973).
    EXPECT_LE(packing.sequences, (total / seq_len + 1) * 11 / 9 + 1) << "seed " << seed;
    EXPECT_EQ(best_fit(lengths, seq_len).sequence, packing.sequence);
  }
}

TEST_F(PackingTest, every_label_occurs_once_and_only_long_documents_are_split) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::vector<int64_t> lengths = random_lengths(seed, 700, 90);
    const auto data = documents_of(lengths);
    const int64_t seq_len = 40;
    const PackingTable table =
        PackingTable::pack(*data, {.seq_len = seq_len, .window_documents = 100});
    std::set<int64_t> labels;
    std::map<int64_t, int> pieces_of_document;
    for (int64_t sequence = 0; sequence < table.sequences(); ++sequence) {
      int64_t used = 0, before = -1;
      for (int64_t i = 0; i < table.pieces(sequence); ++i) {
        const PackingTable::Piece piece = table.piece(sequence, i);
        used += piece.slots;
        EXPECT_GT(piece.first_token, before);  // in the order of the data set
        before = piece.first_token;
        const int64_t document = data->documents().at(piece.first_token);
        EXPECT_EQ(data->documents().at(piece.first_token + piece.slots), document);
        ++pieces_of_document[document];
        for (int64_t k = 1; k <= piece.slots; ++k) {
          EXPECT_TRUE(labels.insert(piece.first_token + k).second);
        }
      }
      EXPECT_LE(used, seq_len);
    }
    PackingStats wanted{.documents = 700, .sequences = table.sequences()};
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t slots = std::max<int64_t>(lengths[i] - 1, 0);
      const int64_t pieces = (slots + seq_len - 1) / seq_len;
      EXPECT_EQ(pieces_of_document[static_cast<int64_t>(i)], pieces);
      wanted.used_slots += slots;
      wanted.pieces += pieces;
      wanted.documents_split += pieces > 1;
      wanted.documents_without_label += pieces == 0;
    }
    EXPECT_EQ(static_cast<int64_t>(labels.size()), wanted.used_slots);
    wanted.padding_slots = table.sequences() * seq_len - wanted.used_slots;
    EXPECT_EQ(table.stats(), wanted);
    EXPECT_LT(table.stats().padding_fraction(), 0.05);
  }
}

TEST_F(PackingTest, samples_have_borders_padding_and_labels_of_their_own_document) {
  // Slots 2, 1, 4 and 5 for sequences of 6: 5 + 1, 4 + 2.
  const auto data = documents_of({3, 2, 5, 6, 1});
  const PackingTable table = PackingTable::pack(*data, {.seq_len = 7});
  EXPECT_EQ(table.stats().description(7),
            "5 documents in 2 sequences of 7: 14.3 % padding, 0 split, 1 without a label");
  const PackedSampler masked(*data, table, {.is_shuffled = false, .pad_token = 99});
  Batch batch;
  fill_batch(masked, std::vector<int64_t>{0, 1}, batch);
  // Documents 0 1 2 | 3 4 | 5 6 7 8 9 | 10 .. 15 | 16
  EXPECT_TRUE(holds(batch.tokens, {0, 1, 10, 11, 12, 13, 14, 3, 5, 6, 7, 8, 99, 99}));
  EXPECT_TRUE(holds(batch.labels, {1, 2, 11, 12, 13, 14, 15, 4, 6, 7, 8, 9, -2, -2}));
  EXPECT_TRUE(holds(batch.positions, {0, 1, 0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 0, 1}));
  EXPECT_TRUE(holds(batch.seq_offsets, {0, 2, 7, 8, 12, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14}));

  const PackedSampler open(*data, table, {.is_shuffled = false, .document_mask = false});
  Batch plain;
  fill_batch(open, std::vector<int64_t>{0, 1}, plain);
  EXPECT_EQ(plain.labels, batch.labels);
  EXPECT_TRUE(holds(plain.positions, {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6}));

  std::vector<uint8_t> learned(17, 1);
  learned[1] = learned[11] = learned[9] = 0;
  const auto mask = loss_mask_in_memory(learned);
  const PackedSampler prompts(*data, table, {.is_shuffled = false, .loss_mask = mask.get()});
  fill_batch(prompts, std::vector<int64_t>{0, 1}, plain);
  EXPECT_TRUE(holds(plain.labels, {-1, 2, -1, 12, 13, 14, 15, 4, 6, 7, 8, -1, -2, -2}));
}

TEST_F(PackingTest, each_epoch_takes_every_sequence_once_in_its_own_order) {
  const auto data = documents_of(random_lengths(3, 400, 30));
  const PackingTable table = PackingTable::pack(*data, {.seq_len = 16});
  const PackedSampler sampler(*data, table, {.seed = 5});
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < sampler.samples(); ++i) {
      order.push_back(sampler.sequence_at(epoch * sampler.samples() + i));
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<int64_t>(i));
  }
  EXPECT_EQ(orders.size(), 3U);
}

TEST_F(PackingTest, held_out_documents_are_not_in_the_table) {
  const auto data = documents_of(random_lengths(8, 300, 30));
  const PackingTable train = PackingTable::pack(*data, {.seq_len = 16, .documents = 250});
  const PackingTable held_out = PackingTable::pack(*data, {.seq_len = 16, .first_document = 250});
  EXPECT_EQ(train.stats().documents + held_out.stats().documents, 300);
  const int64_t border = data->documents().start(250);
  for (int64_t i = 0; i < train.sequences(); ++i) {
    const PackingTable::Piece last = train.piece(i, train.pieces(i) - 1);
    EXPECT_LT(last.first_token + last.slots, border);
  }
  for (int64_t i = 0; i < held_out.sequences(); ++i) {
    EXPECT_GE(held_out.piece(i, 0).first_token, border);
  }
}

TEST_F(PackingTest, a_table_is_the_same_from_its_file) {
  const auto data = documents_of(random_lengths(4, 500, 60));
  const PackingTable table = PackingTable::pack(*data, {.seq_len = 32, .window_documents = 64});
  table.write(path("train.pack"), *data);
  const PackingTable opened = PackingTable::open(path("train.pack"), *data);
  EXPECT_EQ(opened.stats(), table.stats());
  EXPECT_EQ(opened.options().window_documents, 64);
  ASSERT_EQ(opened.sequences(), table.sequences());
  for (int64_t i = 0; i < table.sequences(); ++i) {
    ASSERT_EQ(opened.pieces(i), table.pieces(i));
    for (int64_t k = 0; k < table.pieces(i); ++k) ASSERT_EQ(opened.piece(i, k), table.piece(i, k));
  }
  const auto other = documents_of(random_lengths(5, 500, 60));
  EXPECT_TRUE(
      says(message_of<base::IoError>([&] { PackingTable::open(path("train.pack"), *other); }),
           {"train.pack: made for data of " + std::to_string(data->tokens()), "remove the index"}));
}

TEST_F(PackingTest, damaged_files_are_refused) {
  const auto data = documents_of({3, 2, 5, 6, 1});
  PackingTable::pack(*data, {.seq_len = 7}).write(path("good.pack"), *data);
  const std::string good = read("good.pack");
  ASSERT_EQ(good.size(), 88U + 2 * 8 + 4 * 12);
  const auto refused = [&](const std::function<void(std::string&)>& change) {
    std::string bytes = good;
    change(bytes);
    const auto file = write("bad.pack", bytes);
    return message_of<base::IoError>([&] { PackingTable::open(file, *data); });
  };
  const auto set = [](size_t offset, int64_t value) {
    return [=](std::string& bytes) { bytes.replace(offset, 8, raw(value)); };
  };
  EXPECT_TRUE(says(refused([](std::string& b) { b.clear(); }), {"bad.pack", "0 bytes"}));
  EXPECT_TRUE(says(refused([](std::string& b) { b.pop_back(); }), {"151 bytes", "take 152"}));
  EXPECT_TRUE(says(refused([](std::string& b) { b += "x"; }), {"153 bytes", "take 152"}));
  EXPECT_TRUE(says(refused(set(0, 7)), {"begins with 0000000000000007"}));
  EXPECT_TRUE(says(refused(set(8, 0)), {"seq_len 0"}));
  EXPECT_TRUE(says(refused(set(8, 6)), {"piece 1 of sequence 0 has 5 slots", "has 6 slots"}));
  EXPECT_TRUE(says(refused(set(32, 0)), {"0 documents"}));
  EXPECT_TRUE(says(refused(set(56, 16)), {"made for data of 16 tokens"}));
  EXPECT_TRUE(says(refused(set(72, int64_t{1} << 62)), {"pieces in 2 sequences"}));
  EXPECT_TRUE(says(refused(set(80, 5)), {"4 pieces in 5 sequences"}));
  EXPECT_TRUE(says(refused(set(88, 0)), {"sequence 0 has the pieces 0 to 0 of 4"}));
  EXPECT_TRUE(says(refused(set(88, 5)), {"sequence 0 has the pieces 0 to 5 of 4"}));
  EXPECT_TRUE(says(refused(set(96, 3)), {"its sequences have 3 of 4 pieces"}));
  EXPECT_TRUE(says(refused(set(104, -1)), {"from token -1 on"}));
  EXPECT_TRUE(says(refused(set(104, 15)), {"has 2 slots from token 15 on", "the data 17 tokens"}));
  EXPECT_TRUE(says(refused(set(136, -1)), {"has -1 slots"}));
}

TEST_F(PackingTest, options_that_are_not_legal_are_refused) {
  const auto data = documents_of({1, 1, 0});
  const auto refused = [&](const PackingOptions& options) {
    return message_of<base::ConfigError>([&] { PackingTable::pack(*data, options); });
  };
  EXPECT_TRUE(says(refused({.seq_len = 0}), {"seq_len = 0; allowed: 1"}));
  EXPECT_TRUE(says(refused({.seq_len = 4, .window_documents = 0}), {"windows of 0 documents"}));
  EXPECT_TRUE(
      says(refused({.seq_len = 4, .documents = 4}), {"packing 4 documents from 0 on, of 3"}));
  EXPECT_TRUE(says(refused({.seq_len = 4, .first_document = 4}), {"from 4 on, of 3"}));
  EXPECT_TRUE(says(refused({.seq_len = 4}), {"none of 3 documents has two tokens or more"}));
  const auto other = documents_of({5});
  const PackingTable table = PackingTable::pack(*other, {.seq_len = 4});
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     const PackedSampler sampler(*other, table, {.vocab = 9, .pad_token = 9});
                   }),
                   {"pad token 9; allowed: 0 to below the vocabulary of 9"}));
}

}  // namespace
}  // namespace trireme::data
