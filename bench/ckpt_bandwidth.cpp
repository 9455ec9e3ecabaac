// SPDX-License-Identifier: Apache-2.0
// Measures saving and loading of a checkpoint beside raw direct writes and reads of the same bytes,
// at the same queue depth on the same disk, alternating. Saving includes hashes, syncs and the
// commit; loading includes all hashes. Prints the best of each and their ratio; the bar is 85 %.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/rng.h"
#include "base/system/descriptor.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"

namespace {

using namespace trireme;

struct Options {
  std::filesystem::path folder = "ckpt_bandwidth.tmp";
  int64_t mib = 4096;
  int queue_depth = 8;
  int rounds = 3;
  bool direct = true;
};

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void expect(bool done, const char* what) {
  if (!done) throw std::system_error(errno, std::generic_category(), what);
}

// The same system calls without the checkpoint code: preallocate, 1 MiB at a time, one sync.
void raw_write(const std::filesystem::path& path, std::span<const std::byte> bytes,
               const Options& options) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | (options.direct ? O_DIRECT : 0);
  const base::Descriptor file(::open(path.c_str(), flags, 0666));
  expect(file.value() >= 0, "open");
  expect(::fallocate(file.value(), 0, 0, std::ssize(bytes)) == 0, "fallocate");
  ckpt::for_each_in_flight(
      options.queue_depth, std::ssize(bytes) / ckpt::chunk_bytes, [&](int, int64_t chunk) {
        const ssize_t done = ::pwrite(file.value(), bytes.data() + chunk * ckpt::chunk_bytes,
                                      ckpt::chunk_bytes, chunk * ckpt::chunk_bytes);
        expect(done == ckpt::chunk_bytes, "write");
      });
  expect(::fsync(file.value()) == 0, "fsync");
}

// Reads into one buffer per worker, which stays in the cache: an upper bound of raw reads.
void raw_read(const std::filesystem::path& path, int64_t bytes, const Options& options) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | (options.direct ? O_DIRECT : 0)));
  expect(file.value() >= 0, "open");
  std::vector<ckpt::AlignedBytes> buffers(static_cast<size_t>(options.queue_depth));
  ckpt::for_each_in_flight(
      options.queue_depth, bytes / ckpt::chunk_bytes, [&](int worker, int64_t chunk) {
        const auto buffer = buffers[static_cast<size_t>(worker)].of(ckpt::chunk_bytes);
        const ssize_t done =
            ::pread(file.value(), buffer.data(), buffer.size(), chunk * ckpt::chunk_bytes);
        expect(done == ckpt::chunk_bytes, "read");
      });
}

// Drops a folder's files from the page cache, for reads that use it.
void forget(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const base::Descriptor file(::open(entry.path().c_str(), O_RDONLY));
    ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

int measure(const Options& options) {
  std::filesystem::create_directories(options.folder);
  const auto disk = ckpt::posix_disk({.direct = options.direct});
  const ckpt::IoOptions io{.queue_depth = options.queue_depth};
  // Tensors of 64 MiB, like the matrices of a large model.
  std::vector<ckpt::TensorPieces> pieces;
  for (int64_t left = options.mib; left > 0; left -= 64) {
    const ckpt::TensorInfo tensor{fmt::format("weight/{}", pieces.size()),
                                  base::DType::f32,
                                  {std::min<int64_t>(left, 64) * 256, 1024}};
    pieces.push_back({tensor, {{{0, 0}, tensor.shape, 0}}});
  }
  const ckpt::FileLayout layout = ckpt::plan_file(pieces);
  ckpt::AlignedBytes staging, loaded;
  const auto bytes = staging.of(layout.bytes), target = loaded.of(layout.bytes);
  auto* words = reinterpret_cast<uint64_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / 8; ++i) words[i] = i * 0x9E3779B97F4A7C15U;
  std::ranges::fill(target, std::byte{1});

  double save = 1e30, load = 1e30, write = 1e30, read = 1e30;
  for (int round = 0; round < options.rounds; ++round) {
    const auto raw = options.folder / "raw";
    write = std::min(write, seconds_of([&] { raw_write(raw, bytes, options); }));
    forget(options.folder);
    read = std::min(read, seconds_of([&] { raw_read(raw, layout.bytes, options); }));
    std::filesystem::remove(raw);

    std::filesystem::path folder;
    save =
        std::min(save, seconds_of([&] {
                   const ckpt::Draft draft =
                       ckpt::begin_generation(*disk, options.folder / "checkpoints", round);
                   ckpt::Manifest manifest;
                   manifest.step = round;
                   for (const ckpt::TensorPieces& part : pieces)
                     manifest.tensors.push_back(part.tensor);
                   manifest.files = {ckpt::write_data(*disk, {draft.folder, 0, layout, bytes}, io)};
                   folder = ckpt::commit(*disk, draft, manifest);
                 }));
    forget(options.folder);
    std::ranges::fill(target, std::byte{1});
    load =
        std::min(load, seconds_of([&] {
                   const auto generation = ckpt::Generation::open(*disk, folder);
                   std::vector<ckpt::ReadRequest> requests;
                   for (size_t i = 0; i < pieces.size(); ++i) {
                     requests.push_back(
                         {pieces[i].tensor, pieces[i].pieces,
                          target.subspan(static_cast<size_t>(layout.tensors[i].boxes[0].offset),
                                         static_cast<size_t>(ckpt::bytes_of(pieces[i].tensor)))});
                   }
                   generation.read(requests, io);
                 }));
    if (!std::ranges::equal(bytes, target)) {
      fmt::print(stderr, "what was loaded is not what was saved\n");
      return 1;
    }
    ckpt::remove_all(*disk, folder);
  }
  const double gib = static_cast<double>(layout.bytes) / (int64_t{1} << 30);
  fmt::print("{:.2f} GiB, {} transfers of 1 MiB in flight, {}, best of {}\n", gib,
             options.queue_depth, options.direct ? "O_DIRECT" : "page cache", options.rounds);
  fmt::print("        raw GiB/s  checkpoint GiB/s  ratio\n");
  fmt::print("save    {:>9.2f}  {:>16.2f}  {:>4.0f}%\n", gib / write, gib / save,
             100 * write / save);
  fmt::print("load    {:>9.2f}  {:>16.2f}  {:>4.0f}%\n", gib / read, gib / load, 100 * read / load);
  std::filesystem::remove_all(options.folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Bandwidth of checkpoints beside that of the disk");
  app.add_option("--folder", options.folder, "where to write; removed afterwards")
      ->capture_default_str();
  app.add_option("--mib", options.mib, "size of the checkpoint")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--queue-depth", options.queue_depth, "transfers in flight")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("!--buffered", options.direct, "through the page cache");
  CLI11_PARSE(app, argc, argv);
  try {
    return measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
