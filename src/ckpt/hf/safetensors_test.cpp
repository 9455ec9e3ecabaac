// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme::ckpt {
namespace {

using Tensors = std::map<std::string, SafetensorsView, std::less<>>;

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("trireme_safetensors_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string length_prefix(uint64_t length) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return length_prefix(header.size()) + header + data;
}

void write_whole(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the message with which the file is refused; empty if it opens.
std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "bad.safetensors";
  write_whole(path, bytes);
  try {
    (void)SafetensorsFile::open(path);
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("bad.safetensors"), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

SafetensorsView view_of(const char* dtype, std::vector<int64_t> shape, const std::string& bytes) {
  return {dtype, std::move(shape), std::as_bytes(std::span(bytes))};
}

TEST(Safetensors, hand_made_bytes_are_read) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_whole(path, file_of(R"({"w":{"dtype":"BF16","shape":[3,1],"data_offsets":[2,8]},)"
                            R"("__metadata__":{"format":"pt","\u00e9":"\n"},)"
                            R"("scalar":{"shape":[],"data_offsets":[0,2],"dtype":"F16"},)"
                            R"("none":{"dtype":"F64","shape":[4,0],"data_offsets":[2,2]}}   )",
                            "abcdefgh"));
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensor("w").dtype, "BF16");
  EXPECT_EQ(file.tensor("w").shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(text_of(file.tensor("w").bytes), "cdefgh");
  EXPECT_TRUE(file.tensor("scalar").shape.empty());
  EXPECT_EQ(text_of(file.tensor("scalar").bytes), "ab");
  EXPECT_TRUE(file.tensor("none").bytes.empty());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"\u00e9", "\n"}}));
  EXPECT_FALSE(file.contains("v"));
  EXPECT_THROW((void)file.tensor("v"), base::IoError);
}

TEST(Safetensors, an_empty_header_is_a_file_without_tensors) {
  EXPECT_EQ(refusal(file_of("{}", "")), "");
}

TEST(Safetensors, sub_byte_types_count_bits) {
  EXPECT_EQ(refusal(file_of(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", "abc")),
            "");
  EXPECT_NE(refusal(file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "ab"))
                .find("whole number of bytes"),
            std::string::npos);
}

TEST(Safetensors, views_survive_a_move_and_a_replaced_file) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::string old_bytes = "12345678", new_bytes = "abcdefgh";
  write_safetensors(path, {{"x", view_of("F32", {2}, old_bytes)}}, {});
  auto first = SafetensorsFile::open(path);
  const auto bytes = first.tensor("x").bytes;
  const SafetensorsFile moved = std::move(first);
  write_safetensors(path, {{"x", view_of("F32", {2}, new_bytes)}}, {});
  EXPECT_EQ(text_of(bytes), old_bytes);
  EXPECT_EQ(text_of(SafetensorsFile::open(path).tensor("x").bytes), new_bytes);
}

TEST(Safetensors, written_files_follow_the_reference_order_and_alignment) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::string bytes = "0123456789abcdef";
  const auto part = [&](const char* dtype, size_t size) {
    return SafetensorsView{dtype, {1}, std::as_bytes(std::span(bytes)).first(size)};
  };
  write_safetensors(path,
                    {{"d", part("U8", 1)},
                     {"c", part("F32", 4)},
                     {"b", part("I32", 4)},
                     {"a", part("F32", 4)},
                     {"e", part("F64", 8)},
                     {"f", part("BF16", 2)}},
                    {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("e":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                       R"("c":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
                       R"("b":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},)"
                       R"("f":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]},)"
                       R"("d":{"dtype":"U8","shape":[1],"data_offsets":[22,23]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_whole(path), file_of(header,
                                      "01234567"
                                      "0123"
                                      "0123"
                                      "0123"
                                      "01"
                                      "0"));
  EXPECT_EQ(SafetensorsFile::open(path).tensors().size(), 6U);
}

TEST(Safetensors, what_is_written_is_read_back) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::string bytes = "0123456789abcdef0123456789";
  const auto all = std::as_bytes(std::span(bytes));
  const Tensors tensors = {{"blocks.0.\"w\"", {"F32", {2, 3}, all.first(24)}},
                           {"", {"I8", {}, all.first(1)}},
                           {"\u00fc", {"F8_E4M3", {0, 7}, {}}}};
  const SafetensorsMetadata metadata = {{"config", R"({"layers": 2})"}, {"empty", ""}};
  write_safetensors(path, tensors, metadata);
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, view] : tensors) {
    EXPECT_EQ(file.tensor(name).dtype, view.dtype) << name;
    EXPECT_EQ(file.tensor(name).shape, view.shape) << name;
    EXPECT_EQ(text_of(file.tensor(name).bytes), text_of(view.bytes)) << name;
  }
}

TEST(Safetensors, a_failed_write_leaves_the_old_file_and_nothing_else) {
  const TemporaryFolder folder;
  const std::string bytes = "1234";
  const Tensors tensors = {{"x", view_of("F32", {1}, bytes)}};
  EXPECT_THROW(write_safetensors(folder.path() / "missing" / "a", tensors, {}), base::IoError);
  EXPECT_THROW(write_safetensors(folder.path() / "a", {{"\xff", tensors.at("x")}}, {}),
               base::IoError);
  std::filesystem::create_directories(folder.path() / "taken" / "inside");
  EXPECT_THROW(write_safetensors(folder.path() / "taken", tensors, {}), base::IoError);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "taken" / "inside"));
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(Safetensors, a_missing_file_and_a_folder_are_refused) {
  const TemporaryFolder folder;
  EXPECT_THROW((void)SafetensorsFile::open(folder.path() / "no"), base::IoError);
  EXPECT_THROW((void)SafetensorsFile::open(folder.path()), base::IoError);
}

TEST(SafetensorsDeathTest, a_view_of_the_wrong_size_is_a_bug) {
  const std::string bytes = "12345";
  EXPECT_DEATH(write_safetensors("unused", {{"x", view_of("F32", {1}, bytes)}}, {}),
               "needs 4 bytes, the view has 5");
  EXPECT_DEATH(write_safetensors("unused", {{"x", view_of("F31", {1}, bytes)}}, {}), "F31");
}

struct Malformed {
  const char* name;
  std::string bytes;
  const char* message;  // a part of the refusal
};

void PrintTo(const Malformed& file, std::ostream* out) { *out << file.name; }

class MalformedSafetensors : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedSafetensors, is_refused_with_the_reason) {
  const std::string message = refusal(GetParam().bytes);
  EXPECT_NE(message.find(GetParam().message), std::string::npos)
      << "found the message: " << message;
}

// One F32 tensor "w" with the given entry.
std::string entry_of(const std::string& shape, const std::string& offsets,
                     const std::string& data) {
  return file_of(R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                 data);
}

std::string two_tensors(const std::string& first, const std::string& second) {
  return file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                     R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                 "12345678");
}

const std::vector<Malformed> malformed = {
    {"empty_file", "", "has 0 bytes"},
    {"cut_length", "1234567", "has 7 bytes"},
    {"no_header", length_prefix(0), "must start with '{', found nothing"},
    {"header_longer_than_file", length_prefix(3) + "{}", "header length is 3 bytes, but only 2"},
    {"header_too_long", length_prefix(100'000'001) + "{}", "at most 100000000"},
    {"length_all_ones", length_prefix(~uint64_t{0}) + "{}", "at most 100000000"},
    {"leading_space", file_of(" {}", ""), "found byte 0x20"},
    {"array_header", file_of("[]", ""), "found byte 0x5b"},
    {"cut_json", file_of(R"({"w":)", ""), "not valid JSON"},
    {"json_then_garbage", file_of("{}x", ""), "not valid JSON"},
    {"padded_with_zeros", file_of(std::string("{}\0\0", 4), ""), "not valid JSON"},
    {"bad_utf8", file_of("{\"\xff\":1}", ""), "not valid JSON"},
    {"deep_nesting", file_of("{\"a\":" + std::string(100'000, '['), ""), "deeper than 3"},
    {"duplicate_tensor",
     file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
             R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
             "x"),
     "key 'w' twice"},
    {"duplicate_field",
     file_of(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
     "key 'dtype' twice"},
    {"duplicate_metadata", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "key 'a' twice"},
    {"metadata_twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", ""),
     "key '__metadata__' twice"},
    {"metadata_number", file_of(R"({"__metadata__":{"a":1}})", ""), "'a' is 1; a string is wanted"},
    {"metadata_list", file_of(R"({"__metadata__":[]})", ""), "an object of strings is wanted"},
    {"entry_is_number", file_of(R"({"w":3})", ""), "tensor 'w': its entry is 3"},
    {"no_dtype", file_of(R"({"w":{"shape":[],"data_offsets":[0,1]}})", "x"), "has no 'dtype'"},
    {"no_shape", file_of(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", "x"), "has no 'shape'"},
    {"no_offsets", file_of(R"({"w":{"dtype":"U8","shape":[1]}})", "x"), "has no 'data_offsets'"},
    {"extra_field",
     file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", "x"),
     "has 4 keys"},
    {"unknown_dtype", file_of(R"({"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", "1234"),
     "dtype is \"f32\"; allowed are BOOL"},
    {"dtype_not_string", file_of(R"({"w":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", "1234"),
     "dtype is 1"},
    {"shape_negative", entry_of("[-1]", "[0,4]", "1234"), "shape holds -1"},
    {"shape_fraction", entry_of("[1.0]", "[0,4]", "1234"), "shape holds 1.0"},
    {"shape_too_large", entry_of("[18446744073709551615]", "[0,4]", "1234"), "shape holds 1844"},
    {"shape_not_list", entry_of("4", "[0,4]", "1234"), "shape is 4; a list is wanted"},
    {"size_overflow", entry_of("[4294967296,4294967296]", "[0,4]", "1234"), "below 2^60"},
    {"size_wraps_to_zero", entry_of("[9223372036854775807,4]", "[0,4]", "1234"), "below 2^60"},
    {"three_offsets", entry_of("[1]", "[0,4,4]", "1234"), "has 3 numbers"},
    {"offsets_reversed", entry_of("[1]", "[4,0]", "1234"), "begin <= end <= 4"},
    {"offset_past_end", entry_of("[2]", "[0,8]", "1234567"), "begin <= end <= 7"},
    {"shape_and_offsets_differ", entry_of("[2]", "[0,4]", "1234"),
     "F32[2] takes 8 bytes, but data_offsets [0, 4] hold 4"},
    {"bytes_after_the_last", entry_of("[1]", "[0,4]", "12345"), "end at byte 4, but 5"},
    {"bytes_without_tensors", file_of("{}", "x"), "end at byte 0, but 1"},
    {"hole_at_the_start", entry_of("[1]", "[1,5]", "12345"), "holes"},
    {"overlap", two_tensors("[0,4]", "[3,7]"), "tensor 'b' begins at byte 3"},
    {"same_bytes_twice", two_tensors("[4,8]", "[4,8]"), "holes"},
    {"shared_bytes", two_tensors("[0,4]", "[0,4]"), "overlaps"},
};

INSTANTIATE_TEST_SUITE_P(Safetensors, MalformedSafetensors, testing::ValuesIn(malformed),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace trireme::ckpt
