// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/hash.h"
#include "ckpt/hf/export_folder.h"
#include "ckpt/hf/hf_decode.h"
#include "ckpt/hf/safetensors.h"

namespace trireme::ckpt {
namespace {

using std::filesystem::path;

constexpr int64_t window_elements = int64_t{8} << 20;

const char* safetensors_name(base::DType dtype) {
  return dtype == base::DType::bf16 ? "BF16" : "F32";
}

// Returns the box of our parameter that rows [first, last) of the file's tensor hold.
spec::Piece box_of(const HfShard::Tensor& placed, int64_t first, int64_t last) {
  const HfTensor& tensor = *placed.tensor;
  if (tensor.is_transposed) {
    return placed.param->box({tensor.first_row, tensor.first_row + tensor.rows}, {first, last});
  }
  return placed.param->box({tensor.first_row + first, tensor.first_row + last});
}

void put(std::byte* to, float value, base::DType dtype) {
  if (dtype == base::DType::bf16) {
    const base::Bf16 rounded(value);
    std::memcpy(to, &rounded.bits, sizeof(rounded.bits));
  } else {
    std::memcpy(to, &value, sizeof(value));
  }
}

Hash hash_in_file(std::span<const std::byte> bytes) {
  Hasher hasher;
  constexpr size_t part = size_t{32} << 20;
  for (size_t at = 0; at < bytes.size(); at += part) {
    const auto window = bytes.subspan(at, std::min(part, bytes.size() - at));
    hasher.add(window);
    drop_pages(window);
  }
  return hasher.hash();
}

}  // namespace

std::vector<HfShard> cut_into_shards(const std::vector<HfParam>& params, base::DType dtype,
                                     int64_t max_shard_bytes) {
  std::vector<HfShard> shards(1);
  int64_t bytes = 0;
  for (const HfParam& param : params) {
    for (const HfTensor& tensor : param.tensors) {
      const int64_t more = tensor.elements() * base::size_of(dtype);
      if (bytes > 0 && bytes + more > max_shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().tensors.push_back({&param, &tensor});
      bytes += more;
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

std::string index_text(const std::vector<HfShard>& shards, base::DType dtype) {
  int64_t total = 0;
  std::map<std::string, std::string> file_of;
  for (const HfShard& shard : shards) {
    for (const HfShard::Tensor& placed : shard.tensors) {
      total += placed.tensor->elements() * base::size_of(dtype);
      file_of[placed.tensor->name] = shard.file;
    }
  }
  // Json searches all keys on insertion, so the long map is built in the sorted type.
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", file_of}};
  return index.dump(2) + "\n";
}

void for_each_hf_window(
    const HfShard::Tensor& placed, base::DType dtype, const ReadBox& read,
    const std::function<void(int64_t offset, std::span<const std::byte> bytes)>& each) {
  const HfTensor& tensor = *placed.tensor;
  const int64_t rows = tensor.shape[0];
  const int64_t columns = tensor.elements() / std::max<int64_t>(rows, 1);
  const int64_t rows_at_once =
      std::max<int64_t>(1, window_elements / std::max<int64_t>(columns, 1));
  const int64_t element_bytes = base::size_of(dtype);
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (int64_t first = 0; first < rows; first += rows_at_once) {
    const int64_t here = std::min(rows_at_once, rows - first);
    values.resize(static_cast<size_t>(here * columns));
    bytes.resize(values.size() * static_cast<size_t>(element_bytes));
    read(placed.param->name, box_of(placed, first, first + here), values);
    std::byte* to = bytes.data();
    for (int64_t r = 0; r < here; ++r) {
      for (int64_t c = 0; c < columns; ++c, to += element_bytes) {
        const int64_t from = tensor.is_transposed ? c * here + r : r * columns + c;
        put(to, values[static_cast<size_t>(from)], dtype);
      }
    }
    each(first * columns * element_bytes, bytes);
  }
}

void write_shards(const path& folder, const std::vector<HfShard>& shards, const ReadBox& read,
                  base::DType dtype) {
  for (const HfShard& shard : shards) {
    std::map<std::string, SafetensorsInfo, std::less<>> infos;
    for (const HfShard::Tensor& placed : shard.tensors) {
      infos[placed.tensor->name] = {safetensors_name(dtype), placed.tensor->shape};
    }
    SafetensorsWriter writer(folder / shard.file, infos,
                             {{"format", "pt"}, {producer_key, producer_name}});
    for (const HfShard::Tensor& placed : shard.tensors) {
      for_each_hf_window(placed, dtype, read, [&](int64_t offset, std::span<const std::byte> part) {
        writer.write(placed.tensor->name, offset, part);
      });
    }
    writer.finish();
  }
}

void compare_shards(const path& folder, const std::vector<HfShard>& shards, const ReadBox& read,
                    base::DType dtype) {
  for (const HfShard& shard : shards) {
    const SafetensorsFile file = SafetensorsFile::open(folder / shard.file);
    for (const HfShard::Tensor& placed : shard.tensors) {
      const SafetensorsView& view = file.tensor(placed.tensor->name);
      Hasher wanted;
      for_each_hf_window(placed, dtype, read,
                         [&](int64_t, std::span<const std::byte> part) { wanted.add(part); });
      const Hash found = hash_in_file(view.bytes);
      if (found == wanted.hash() && view.shape == placed.tensor->shape) continue;
      throw base::IoError(fmt::format(
          "{}: tensor '{}' has hash {} in the file that was just written, and {} where it comes "
          "from: the disk or the source is not to be trusted; nothing was exported",
          shard.file, placed.tensor->name, to_hex(found), to_hex(wanted.hash())));
    }
  }
}

ReadBox boxes_of(std::vector<HfParam> params, ReadParam read) {
  struct Kept {
    std::map<std::string, HfParam> params;
    ReadParam read;
    std::string name;
    std::vector<float> values;
  };
  // A std::function is copied; the cached parameter must not be.
  const auto kept = std::make_shared<Kept>();
  for (HfParam& param : params) kept->params[param.name] = param;
  kept->read = std::move(read);
  return [kept](const std::string& name, const spec::Piece& box, std::span<float> values) {
    const HfParam& param = kept->params.at(name);
    if (kept->name != name) {
      kept->values = kept->read(name);
      kept->name = name;
      TRIREME_CHECK(std::ssize(kept->values) == param.elements(),
                    "{}: {} values were read, {} are wanted", name, kept->values.size(),
                    param.elements());
    }
    for_each_matrix(param, box, [&](spec::Range rows, spec::Range columns, int64_t element) {
      const int64_t width = columns.end - columns.begin;
      float* to = values.data() + element;
      for (int64_t row = rows.begin; row < rows.end; ++row, to += width) {
        std::copy_n(kept->values.data() + row * param.columns() + columns.begin, width, to);
      }
    });
  };
}

}  // namespace trireme::ckpt
