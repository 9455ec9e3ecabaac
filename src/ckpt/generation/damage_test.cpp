// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are damaged, foreign, newer or half copied: the messages about them, and proof
// that every single flipped bit is detected.
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "ckpt/disk/memory_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/small_generation_test.h"

namespace trireme::ckpt {
namespace {

MemoryDisk::Bytes bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(MemoryDisk& disk, const Disk::Path& path) {
  return read_text(disk, path, max_manifest_bytes);
}

// Saves steps 10 and 20; `harm` receives the folder of the newer one.
struct Harmed {
  MemoryDisk disk;
  explicit Harmed(const std::function<void(MemoryDisk&, const Disk::Path&)>& harm) {
    save_small(disk, "/run", 10);
    save_small(disk, "/run", 20);
    harm(disk, "/run/step-00000020");
  }
  // Returns why the newer one was skipped; the older one must load.
  std::string reason() {
    const NewestGood found = newest_good(disk, "/run", Verify::all, {.queue_depth = 1});
    if (!found.generation || found.generation->manifest().step != 10) return "step 10 not found";
    if (loaded_small(*found.generation) != content_of_small(10, {})) return "wrong bytes";
    return found.skipped.size() == 1 ? found.skipped[0].problem : "not skipped";
  }
};

#define EXPECT_REASON(harm, words) \
  EXPECT_NE(Harmed(harm).reason().find(words), std::string::npos) << Harmed(harm).reason()

using Harm = std::function<void(MemoryDisk&, const Disk::Path&)>;

TEST(CkptDamageTest, every_harm_has_its_message_and_the_older_generation_is_used) {
  const auto without = [](const char* name) -> Harm {
    return [=](MemoryDisk& disk, const Disk::Path& folder) { disk.remove_file(folder / name); };
  };
  EXPECT_REASON(without("manifest"), "manifest: No such file");
  EXPECT_REASON(without("data-00001"), "data-00001: No such file");
  EXPECT_REASON(without("index-00000"), "index-00000: No such file");

  const auto cut = [](const char* name, size_t bytes) -> Harm {
    return [=](MemoryDisk& disk, const Disk::Path& folder) {
      disk.bytes(folder / name).resize(bytes);
    };
  };
  EXPECT_REASON(cut("manifest", 0), "manifest: the file is empty");
  EXPECT_REASON(cut("manifest", 100), "the file was cut off");
  EXPECT_REASON(cut("data-00000", 4096), "data-00000 has 4096 bytes, the manifest says 8192");
  EXPECT_REASON(cut("index-00000", 10), "index-00000 has 10 bytes");

  const auto with = [](const char* name, const char* text) -> Harm {
    return [=](MemoryDisk& disk, const Disk::Path& folder) {
      disk.put_file(folder / name, bytes_of_text(text));
    };
  };
  EXPECT_REASON(with("manifest", "{\"metadata\": 3}"),
                "does not begin with 'trireme checkpoint 1'");
  EXPECT_REASON(with("manifest", "trireme checkpoint 2\n{}\n"),
                "format version 2 is newer than 1, the newest that this program reads");
  EXPECT_REASON(with("manifest", "trireme checkpoint one\n{}\n"), "is no number");

  // Files of the older checkpoint in the newer folder.
  const auto taken_over = [](const char* name) -> Harm {
    return [=](MemoryDisk& disk, const Disk::Path& folder) {
      disk.put_file(folder / name, disk.bytes(Disk::Path("/run/step-00000010") / name));
    };
  };
  EXPECT_REASON(taken_over("manifest"), "manifest is of step 10: the folder was renamed");
  EXPECT_REASON(taken_over("index-00001"), "index-00001: its hash is not the one in the manifest");
  EXPECT_REASON(taken_over("data-00001"), "bytes 0 to 12288 do not have the hash");

  EXPECT_REASON(([](MemoryDisk& disk, const Disk::Path& folder) {
                  remove_all(disk, folder);
                  disk.put_file(folder, {});
                }),
                "No such file");
}

// Writes a manifest or index with a valid closing hash and invalid content.
Harm resealed(const char* name, const char* from, const char* to) {
  return [=](MemoryDisk& disk, const Disk::Path& folder) {
    const std::string text = text_of(disk, folder / name);
    std::string body = text.substr(0, text.size() - 42);
    ASSERT_NE(body.find(from), std::string::npos) << from << " in " << body;
    body.replace(body.find(from), std::string_view(from).size(), to);
    disk.put_file(folder / name, bytes_of_text(sealed(body)));
  };
}

TEST(CkptDamageTest, a_manifest_that_is_wrong_but_sealed_is_refused) {
  EXPECT_REASON(resealed("manifest", "\"step\":20", "\"step\":-20"),
                "'step' must be a whole number");
  EXPECT_REASON(resealed("manifest", "\"step\":20", "\"stop\":20"), "'step' is missing");
  EXPECT_REASON(resealed("manifest", "\"f32\"", "\"f33\""), "f33");
  EXPECT_REASON(resealed("manifest", "[40,3]", "[40,4]"), "another type or shape");
  EXPECT_REASON(resealed("manifest", "[40,3]", "[4000000000,4000000000]"), "2^60");
  EXPECT_REASON(resealed("manifest", "\"m/a\"", "\"weight/a\""), "weight/a is there twice");
  EXPECT_REASON(resealed("manifest", "\"rank\":1", "\"rank\":0"), "ranks must ascend");
  EXPECT_REASON(resealed("manifest", "\"files\":[", "\"files\":[],\"file\":["), "is in none of");
  EXPECT_REASON(resealed("index-00000", "rank 0", "rank 7"), "not the one in the manifest");
}

TEST(CkptDamageTest, an_index_says_what_is_wrong_with_it) {
  MemoryDisk disk;
  save_small(disk, "/run", 10);
  const std::string good = text_of(disk, "/run/step-00000010/index-00001");
  const auto reason = [&](std::string_view from, std::string_view to) -> std::string {
    std::string body = good.substr(0, good.size() - 42);
    const size_t at = body.find(from);
    if (at == std::string::npos) return "'" + std::string(from) + "' is not in it: " + body;
    body.replace(at, from.size(), to);
    try {
      parse_index(sealed(body), "index");
    } catch (const base::IoError& error) {
      return error.what();
    }
    return "no error";
  };
#define EXPECT_IN(words, text) EXPECT_NE((text).find(words), std::string::npos) << (text)
  EXPECT_IN("no error", reason("rank 1", "rank 2"));
  EXPECT_IN("line 2: 'rank' is missing", reason("rank 1", "rang 1"));
  EXPECT_IN("not '-1'", reason("rank 1", "rank -1"));
  EXPECT_IN("multiple of 4096", reason("data 12288", "data 12289"));
  EXPECT_IN("with a chunk for every", reason("chunks 1", "chunks 1000000000000"));
  EXPECT_IN("the second line says 4", reason("tensors 3", "tensors 4"));
  EXPECT_IN("goes from 20 to 41; the tensor has 40", reason("40,3\n", "41,3\n"));
  EXPECT_IN("goes from 40 to 40", reason("b 0 20,0", "b 0 40,0"));
  EXPECT_IN("2 dimensions", reason("b 0 20,0", "b 0 20"));
  EXPECT_IN("from 240 on", reason("b 4096", "b 0"));
  EXPECT_IN("multiple of 4096", reason("b 4096", "b 4097"));
  EXPECT_IN("at 8190000000000", reason("b 8192", "b 8190000000000"));
  EXPECT_IN("0-9 and a-f", reason("h ", "h A"));
  EXPECT_IN("neither a tensor", reason("h ", "hh "));
  EXPECT_IN("expected, not '99999999999999999999'",
            reason("t f32 40", "t f32 99999999999999999999"));
  EXPECT_IN("a word is missing", reason("t f32 40", "t  40"));
}

TEST(CkptDamageTest, a_reader_with_another_model_is_refused) {
  MemoryDisk disk;
  save_small(disk, "/run", 10);
  const Generation generation = Generation::open(disk, "/run/step-00000010");
  std::vector<float> bytes(200);
  const auto reason = [&](const TensorInfo& tensor) -> std::string {
    try {
      generation.read(std::vector<ReadRequest>{
          {tensor, {{{0, 0}, {1, 3}, 0}}, std::as_writable_bytes(std::span(bytes))}});
    } catch (const base::IoError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(reason({"weight/a", base::DType::f32, {40, 3}}), "no error");
  EXPECT_IN("weight/a was saved as f32 [40, 3]; the model has f32 [39, 3]",
            reason({"weight/a", base::DType::f32, {39, 3}}));
  EXPECT_IN("the model has bf16", reason({"weight/a", base::DType::bf16, {40, 3}}));
  EXPECT_IN("there is no tensor weight/b among 3", reason({"weight/b", base::DType::f32, {40, 3}}));
}

TEST(CkptDamageTest, no_flipped_bit_gets_through) {
  constexpr uint64_t seed = 7;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  MemoryDisk disk;
  save_small(disk, "/run", 10);
  save_small(disk, "/run", 20);
  struct Place {
    MemoryDisk::Bytes* bytes;
    Disk::Path path;
  };
  std::vector<Place> places;
  uint64_t total = 0;
  for (const Disk::Path& path : disk.files()) {
    if (path.parent_path() != "/run/step-00000020") continue;
    places.push_back({&disk.bytes(path), path});
    total += places.back().bytes->size();
  }
  ASSERT_EQ(places.size(), 5U);
  for (uint64_t flip = 0; flip < 20'000; ++flip) {
    // Half of them anywhere, half by file, since indexes and manifest are small.
    uint64_t at = base::rng_below(seed, 4 * flip, total);
    size_t file = 0;
    if (flip % 2 == 0) {
      while (at >= places[file].bytes->size()) at -= places[file++].bytes->size();
    } else {
      file = base::rng_below(seed, 4 * flip + 1, places.size());
      at = base::rng_below(seed, 4 * flip + 2, places[file].bytes->size());
    }
    const auto bit = static_cast<std::byte>(1U << base::rng_below(seed, 4 * flip + 3, 8));
    (*places[file].bytes)[at] ^= bit;
    const NewestGood found = newest_good(disk, "/run", Verify::all, {.queue_depth = 1});
    ASSERT_TRUE(found.generation && found.generation->manifest().step == 10)
        << places[file].path << " byte " << at << " bit " << static_cast<int>(bit);
    ASSERT_EQ(found.skipped.size(), 1U);
    if (flip % 100 == 0) {
      ASSERT_EQ(loaded_small(*found.generation), content_of_small(10, {}));
    }
    (*places[file].bytes)[at] ^= bit;
  }
  EXPECT_EQ(newest_good(disk, "/run", Verify::all).generation->manifest().step, 20);
}

// A load without prior verification also detects a flipped bit in a box that it reads.
TEST(CkptDamageTest, loading_finds_a_flipped_bit_without_verifying_first) {
  MemoryDisk disk;
  save_small(disk, "/run", 20);
  const Generation generation = Generation::open(disk, "/run/step-00000020");
  auto& bytes = disk.bytes("/run/step-00000020/data-00001");
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 97) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_THROW(loaded_small(generation), base::IoError) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  EXPECT_EQ(loaded_small(generation), content_of_small(20, {}));
}

TEST(CkptDamageTest, padding_that_is_not_zero_is_found_even_if_its_hash_is_right) {
  MemoryDisk disk;
  const Draft draft = begin_generation(disk, "/run", 10);
  const SmallGeneration small{.ranks = 1};
  const FileLayout layout = plan_file(small.pieces_of(0));
  AlignedBytes memory;
  const auto bytes = fill_small(10, small, layout, memory);
  bytes[600] = std::byte{1};  // weight/a ends at byte 480
  Manifest manifest = manifest_of_small(10, small);
  manifest.files = {write_data(disk, {draft.folder, 0, layout, bytes})};
  commit(disk, draft, manifest);
  const auto damage = Generation::open(disk, "/run/step-00000010").damage();
  ASSERT_EQ(damage.size(), 1U);
  EXPECT_IN("byte 600 is padding and not zero", damage[0]);
}

}  // namespace
}  // namespace trireme::ckpt
