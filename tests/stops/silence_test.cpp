// SPDX-License-Identifier: Apache-2.0
// A resumed run must not silently continue with other data: every form of a changed data set or
// split is refused with a message that names it and leaves the run's folder unchanged;
// --allow-data-change, or --allow-batch-change, accepts it and logs that. Data that was only moved
// is accepted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <regex>

#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

const std::string data_path = "--training.dataset_path=";
const std::string held_out_path = "--validation.dataset_path=";

// Four bytes for each byte: valid tokens as u16, as u32 and as text, and different ones in each.
std::string widened(const std::string& text) {
  std::string bytes;
  for (const char c : text) bytes += {c, '\0', '\0', '\0'};
  return bytes;
}

// The two halves of the lines in reverse order.
std::string reordered(const std::string& text) {
  const size_t half = text.find('\n', text.size() / 2) + 1;
  return text.substr(half) + text.substr(0, half);
}

void change_byte(const Scratch& s, const std::string& name, size_t at) {
  std::string bytes = s.read(name);
  bytes.at(at) = bytes.at(at) == 'x' ? 'y' : 'x';
  s.write(name, bytes);
}

// A kind of run that is saved once, and resumed with one change after the other.
struct Saved {
  std::function<void(const Scratch&)> write;
  Words words;
};

void build_pair(const Scratch& s, const std::string& input, const std::string& output) {
  const Outcome outcome = trireme(s, {"data", "build", input, "--output", output, "--split-lines"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

const std::map<std::string, Saved>& kinds_of_runs() {
  static const std::map<std::string, Saved> all = {
      {"text", {[](const Scratch&) {}, {data_path + "text.txt"}}},
      // For such a long stream the order of samples depends on a hash of some tokens, not of all.
      {"long text",
       {[](const Scratch& s) { s.write("long.txt", tiny_text(2000)); }, {data_path + "long.txt"}}},
      {"split", {[](const Scratch&) {}, {data_path + "text.txt", "--validation.enable=true"}}},
      {"held out",
       {[](const Scratch& s) { s.write("held.txt", tiny_text(40)); },
        {data_path + "text.txt", "--validation.enable=true", held_out_path + "held.txt"}}},
      {"bare",
       {[](const Scratch& s) { s.write("bare.txt", widened(tiny_text(60))); },
        {data_path + "bare.txt", "--training.dataset_format=nanogpt"}}},
      {"pair", {[](const Scratch& s) { build_pair(s, "text.txt", "pair"); }, {data_path + "pair"}}},
      {"documents",
       {[](const Scratch& s) { build_pair(s, "text.txt", "pair"); },
        {data_path + "pair", "--training.document_mask=true"}}},
      {"llm.c",
       {[](const Scratch& s) {
          const Outcome outcome =
              trireme(s, {"data", "build", "text.txt", "--output", "llmc.bin", "--format", "llmc"});
          ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        },
        {data_path + "llmc.bin"}}},
  };
  return all;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words words_of_run(const Saved& kind, int run_steps) {
  return joined({"train", "stops.toml", "--checkpoint.interval=2", "--validation.freq=2",
                 fmt::format("--training.steps={}", run_steps)},
                kind.words);
}

// Returns the folder of a run of 4 steps of that kind, created once.
const Scratch& saved_run(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Scratch>> known;
  std::unique_ptr<Scratch>& scratch = known[name];
  if (scratch) return *scratch;
  scratch = std::make_unique<Scratch>();
  write_stops_run(*scratch);
  const Saved& kind = kinds_of_runs().at(name);
  kind.write(*scratch);
  const Outcome outcome = trireme(*scratch, words_of_run(kind, 4));
  EXPECT_EQ(outcome.exit_code, exit_done) << name << ": " << outcome.err;
  return *scratch;
}

// Returns all files below run/ except those that record the owner of the folder.
Tree run_tree(const Scratch& s) {
  Tree tree = s.tree("run");
  tree.erase("owner.json");
  tree.erase("owner.lock");
  return tree;
}

struct Change {
  std::string name;
  std::string run;                            // a kind of run
  std::function<void(const Scratch&)> apply;  // to its folder
  Words words;                                // of the resumed run, after those of the kind
  std::string named;                          // a regular expression, found in the refusal
  std::string flag = "--allow-data-change";   // accepts it
};

const std::function<void(const Scratch&)> nothing = [](const Scratch&) {};

// The text of a message about the content of a file.
std::string about(const std::string& file) {
  return fmt::format("{}|dataset_path|data[.]training", file);
}
const std::string about_validation = "data[.]validation|held_out|validation[.](split|enable)";

std::vector<Change> all_changes() {
  const auto byte = [](const std::string& file, size_t at) {
    return [=](const Scratch& s) { change_byte(s, file, at); };
  };
  const auto text = [](const std::string& file, std::function<std::string(std::string)> made) {
    return [=](const Scratch& s) { s.write(file, made(s.read(file))); };
  };
  const size_t last = tiny_text(100).size() - 1;
  return {
      {"the first token", "text", byte("text.txt", 0), {}, about("text.txt")},
      {"a token in the middle", "text", byte("text.txt", 1500), {}, about("text.txt")},
      {"the last token", "text", byte("text.txt", last), {}, about("text.txt")},
      {"two tokens swapped",
       "text",
       text("text.txt",
            [](std::string t) {
              std::swap(t.at(700), t.at(710));
              return t;
            }),
       {},
       about("text.txt")},
      {"a token of a long stream", "long text", byte("long.txt", 30000), {}, about("long.txt")},
      {"longer",
       "text",
       text("text.txt", [](const std::string& t) { return t + "more\n"; }),
       {},
       about("text.txt")},
      {"shorter",
       "text",
       text("text.txt", [](const std::string& t) { return t.substr(0, t.size() - 40); }),
       {},
       about("text.txt")},
      {"parts in another order", "text", text("text.txt", reordered), {}, about("text.txt")},
      {"another file",
       "text",
       [](const Scratch& s) { s.write("other.txt", tiny_text(120)); },
       {data_path + "other.txt"},
       about("other.txt")},
      {"another file of the same length",
       "text",
       [](const Scratch& s) { s.write("other.txt", reordered(s.read("text.txt"))); },
       {data_path + "other.txt"},
       about("other.txt")},
      {"a link to another file",
       "text",
       [](const Scratch& s) {
         s.write("other.txt", reordered(s.read("text.txt")));
         fs::remove(s.at("text.txt"));
         fs::create_symlink("other.txt", s.at("text.txt"));
       },
       {},
       about("text.txt")},
      {"another type of bare tokens",
       "bare",
       nothing,
       {"--training.dataset_dtype=u32"},
       about("bare.txt") + "|dtype"},
      {"another format",
       "bare",
       nothing,
       {"--training.dataset_format=text"},
       about("bare.txt") + "|format"},
      {"a token of a pair", "pair", byte("pair.bin", 600), {}, about("pair")},
      {"a token of llm.c's file", "llm.c", byte("llmc.bin", 1024 + 600), {}, about("llmc.bin")},
      {"borders of documents",
       "documents",
       [](const Scratch& s) {
         // One boundary moves by a sequence: docs/formats.md, the last numbers of the index.
         std::string index = s.read("pair.idx");
         const size_t at = index.size() - 8 * 50;
         int64_t sequence = 0;
         std::memcpy(&sequence, index.data() + at, sizeof sequence);
         --sequence;
         std::memcpy(index.data() + at, &sequence, sizeof sequence);
         s.write("pair.idx", index);
       },
       {},
       "document|" + about("pair")},
      {"documents see each other",
       "documents",
       nothing,
       {"--training.document_mask=false"},
       "document"},
      {"documents do not see each other",
       "pair",
       nothing,
       {"--training.document_mask=true"},
       "document"},
      {"validation switched on", "text", nothing, {"--validation.enable=true"}, about_validation},
      {"validation switched off",
       "split",
       nothing,
       {"--validation.enable=false"},
       about_validation},
      {"another share held out", "split", nothing, {"--validation.split=0.2"}, about_validation},
      {"separate held-out data",
       "split",
       [](const Scratch& s) { s.write("held.txt", tiny_text(40)); },
       {held_out_path + "held.txt"},
       about_validation},
      {"other held-out data",
       "held out",
       [](const Scratch& s) { s.write("other.txt", tiny_text(50)); },
       {held_out_path + "other.txt"},
       about_validation + "|other.txt"},
      {"a token of the held-out data",
       "held out",
       byte("held.txt", 500),
       {},
       about_validation + "|held.txt"},
      {"longer samples", "text", nothing, {"--training.seq_len=32"}, "seq_len"},
      {"another order", "text", nothing, {"--debug.seed=3"}, "seed"},
      {"more samples a step",
       "text",
       nothing,
       {"--training.global_batch_size=8"},
       "samples|batch",
       "--allow-batch-change"},
  };
}

class Silence : public testing::Test {
 protected:
  static Outcome resume(const Scratch& s, const std::string& run, const Words& words) {
    return trireme(
        s, joined(words_of_run(kinds_of_runs().at(run), 6), joined({"--resume", "auto"}, words)));
  }
  static void copy_run(const std::string& run, const Scratch& to) {
    fs::copy(saved_run(run).path(), to.path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
};

bool mentions(const std::string& text, const std::string& expression) {
  return std::regex_search(text, std::regex(expression, std::regex::icase));
}

TEST_F(Silence, every_changed_data_set_or_split_is_refused_and_named) {
  std::vector<Change> changes = all_changes();
  EXPECT_GE(changes.size(), 20U);
  if (!is_full()) {
    std::mt19937 random(printed_seed("silence"));
    std::shuffle(changes.begin(), changes.end(), random);
    changes.resize(8);
  }
  int refused = 0;
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    const Scratch s;
    copy_run(change.run, s);
    change.apply(s);
    const Tree before = run_tree(s);
    const Outcome outcome = resume(s, change.run, change.words);
    const bool is_refused = outcome.exit_code == exit_failed || outcome.exit_code == exit_bad_call;
    EXPECT_TRUE(is_refused) << "exit code " << outcome.exit_code << "\n" << outcome.err;
    if (!is_refused) continue;
    ++refused;
    EXPECT_TRUE(mentions(outcome.err, "error: [^]*(" + change.named + ")"))
        << change.named << " is not named in:\n"
        << outcome.err;
    EXPECT_TRUE(run_tree(s) == before) << "a refused run changed files of the folder";
    const Outcome allowed = resume(s, change.run, joined(change.words, {change.flag}));
    EXPECT_EQ(allowed.exit_code, exit_done) << allowed.err;
    EXPECT_EQ(resumed_step(allowed.err), 4) << allowed.err;
    EXPECT_TRUE(mentions(allowed.err, change.named)) << allowed.err;
    if (!is_full()) continue;
    // From now on the new data belongs to the run.
    const Outcome again = trireme(s, joined(words_of_run(kinds_of_runs().at(change.run), 8),
                                            joined(change.words, {"--resume", "auto"})));
    EXPECT_EQ(again.exit_code, exit_done) << again.err;
  }
  std::cout << fmt::format("silence: {} of {} changes refused\n", refused, changes.size());
}

TEST_F(Silence, data_that_was_only_moved_is_accepted) {
  struct Move {
    std::string run;
    std::function<void(const Scratch&)> apply;
    Words words;
  };
  const std::vector<Move> moves = {
      {"text", nothing, {}},
      {"text",
       [](const Scratch& s) { fs::rename(s.at("text.txt"), s.at("moved.txt")); },
       {data_path + "moved.txt"}},
      {"text",
       [](const Scratch& s) {
         fs::rename(s.at("text.txt"), s.at("moved.txt"));
         fs::create_symlink("moved.txt", s.at("text.txt"));
       },
       {}},
      {"long text",
       [](const Scratch& s) { fs::rename(s.at("long.txt"), s.at("moved.txt")); },
       {data_path + "moved.txt"}},
      {"documents",
       [](const Scratch& s) {
         fs::create_directory(s.at("elsewhere"));
         fs::rename(s.at("pair.bin"), s.at("elsewhere/pair.bin"));
         fs::rename(s.at("pair.idx"), s.at("elsewhere/pair.idx"));
       },
       {data_path + "elsewhere/pair"}},
      {"held out",
       [](const Scratch& s) { fs::rename(s.at("held.txt"), s.at("moved.txt")); },
       {held_out_path + "moved.txt"}},
  };
  for (const Move& move : moves) {
    if (!is_full() && move.run == "long text") continue;
    SCOPED_TRACE(move.run + (move.words.empty() ? "" : " " + move.words.back()));
    const Scratch s;
    copy_run(move.run, s);
    move.apply(s);
    const Outcome outcome = resume(s, move.run, move.words);
    EXPECT_EQ(outcome.exit_code, exit_done) << outcome.err;
    EXPECT_EQ(resumed_step(outcome.err), 4) << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
