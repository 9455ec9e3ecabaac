// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/rng.h"
#include "ckpt/hf/hf_folder.h"

namespace trireme::ckpt {
namespace {

using std::filesystem::path;

class HfStream : public testing::Test {
 protected:
  HfStream()
      : folder_(std::filesystem::temp_directory_path() /
                ("trireme_hf_stream_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~HfStream() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string weights(const char* name) const {
    std::ifstream in(folder_ / name / "model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  path folder_;
};

// A parameter's elements are numbered from its own start value.
ReadParam whole(const spec::ModelDims& dims) {
  return [params = hf_params(dims)](const std::string& name) {
    std::vector<float> values;
    for (const HfParam& param : params) {
      if (param.name != name) continue;
      const auto start = static_cast<int64_t>(17 * name.size());
      for (int64_t i = 0; i < param.elements(); ++i) {
        values.push_back(static_cast<float>(start + i));
      }
    }
    return values;
  };
}

// A projection that takes two windows, in the file's order and across it.
spec::ModelDims wide(spec::Family family) {
  return {.name = "wide",
          .family = family,
          .layers = 1,
          .hidden = 16,
          .heads = 2,
          .ffn = 600'000,
          .vocab = 31,
          .max_seq = 9};
}

TEST_F(HfStream, windows_give_the_bytes_of_whole_parameters) {
  for (const spec::Family family : {spec::Family::gpt2, spec::Family::llama}) {
    const spec::ModelDims dims = wide(family);
    for (const HfParam& param : hf_params(dims)) {
      const std::vector<float> values = whole(dims)(param.name);
      for (const HfTensor& tensor : param.tensors) {
        int64_t next = 0, wrong = 0;
        for_each_hf_window(
            {&param, &tensor}, base::DType::f32, boxes_of(hf_params(dims), whole(dims)),
            [&](int64_t offset, std::span<const std::byte> bytes) {
              EXPECT_EQ(offset, next * int64_t{sizeof(float)});
              const auto* at = reinterpret_cast<const float*>(bytes.data());
              for (size_t i = 0; i < bytes.size() / sizeof(float); ++i, ++next) {
                const int64_t row =
                    tensor.is_transposed ? next % tensor.rows : next / param.columns();
                const int64_t column =
                    tensor.is_transposed ? next / tensor.rows : next % param.columns();
                const int64_t from = (tensor.first_row + row) * param.columns() + column;
                wrong += at[i] == values[static_cast<size_t>(from)] ? 0 : 1;
              }
            });
        EXPECT_EQ(next, tensor.elements()) << tensor.name;
        EXPECT_EQ(wrong, 0) << tensor.name;
      }
    }
  }
}

TEST_F(HfStream, parts_come_back_in_order) {
  for (const spec::Family family : {spec::Family::gpt2, spec::Family::llama}) {
    const spec::ModelDims dims = wide(family);
    export_hf(folder_ / "out", dims, whole(dims), {});
    std::string current;
    std::vector<float> wanted;
    int64_t next = 0, wrong = 0;
    import_hf_parts(folder_ / "out", dims,
                    [&](const std::string& name, int64_t element, std::span<const float> part) {
                      if (name != current) {
                        EXPECT_EQ(next, std::ssize(wanted)) << current;
                        current = name;
                        wanted = whole(dims)(name);
                        next = 0;
                      }
                      EXPECT_EQ(element, next) << name;
                      for (const float value : part) {
                        wrong += value == wanted[static_cast<size_t>(next++)] ? 0 : 1;
                      }
                    });
    EXPECT_EQ(next, std::ssize(wanted)) << current;
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(HfStream, any_box_of_a_folder_can_be_read) {
  for (const spec::Family family : {spec::Family::gpt2, spec::Family::llama}) {
    spec::ModelDims dims = wide(family);
    dims.ffn = 20;
    export_hf(folder_ / "out", dims, whole(dims), {.max_shard_bytes = 700});
    const HfFolder folder(folder_ / "out", dims);
    for (const HfParam& param : hf_params(dims)) {
      const std::vector<float> values = whole(dims)(param.name);
      const int64_t rows = param.shape[0], columns = param.columns();
      const base::RngKey key = base::rng_key(1, param.name);
      uint64_t draws = 0;
      const auto below = [&](int64_t bound) {
        return static_cast<int64_t>(base::rng_below(key, draws++, static_cast<uint64_t>(bound)));
      };
      for (int trial = 0; trial < 20; ++trial) {
        const int64_t row = below(rows), column = below(columns);
        const int64_t last_row = row + 1 + below(rows - row);
        const int64_t last_column = column + 1 + below(columns - column);
        spec::Piece box{{row}, {last_row}, 0};
        if (param.shape.size() == 2) {
          box.lo.push_back(column);
          box.hi.push_back(last_column);
        }
        std::vector<float> wanted;
        for (int64_t r = row; r < last_row; ++r) {
          for (int64_t c = column; c < last_column; ++c) {
            wanted.push_back(values[static_cast<size_t>(r * columns + c)]);
          }
        }
        std::vector<float> found(wanted.size());
        folder.read(param.name, box, found);
        EXPECT_EQ(found, wanted) << param.name << " " << row << "+" << last_row - row << ", "
                                 << column << "+" << last_column - column;
      }
    }
  }
}

spec::ModelDims small() {
  spec::ModelDims dims = wide(spec::Family::llama);
  dims.ffn = 20;
  return dims;
}

TEST_F(HfStream, a_source_that_does_not_repeat_itself_exports_nothing) {
  const ReadBox read = boxes_of(hf_params(small()), whole(small()));
  export_hf(folder_ / "good", small(), read, {.reread = true});
  EXPECT_FALSE(weights("good").empty());
  int calls = 0;
  const ReadBox unsteady = [&](const std::string& name, const spec::Piece& box,
                               std::span<float> values) {
    read(name, box, values);
    if (++calls == 20) values[values.size() / 2] += 1;
  };
  try {
    export_hf(folder_ / "bad", small(), unsteady, {.reread = true});
    FAIL() << "it was exported, after " << calls << " calls";
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("hash"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bad"));
}

}  // namespace
}  // namespace trireme::ckpt
