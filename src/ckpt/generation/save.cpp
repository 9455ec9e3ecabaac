// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/save.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <functional>

#include "base/check.h"
#include "base/shape.h"
#include "ckpt/generation/file_sink.h"
#include "ckpt/generation/folder.h"

namespace trireme::ckpt {
namespace {

int64_t chunks_of(int64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }
int64_t chunk_size(int64_t file_bytes, int64_t chunk) {
  return std::min(chunk_bytes, file_bytes - chunk * chunk_bytes);
}

void expect_size(Disk& disk, const std::filesystem::path& path, int64_t bytes) {
  const int64_t found = disk.open(path)->size();
  if (found == bytes) return;
  throw base::IoError(
      fmt::format("{} has {} bytes, not the {} that its rank wrote: do all ranks "
                  "see the same folder?",
                  path.string(), found, bytes));
}

}  // namespace

FileLayout plan_file(std::span<const TensorPieces> tensors) {
  FileLayout layout;
  for (const TensorPieces& given : tensors) {
    const TensorInfo& tensor = given.tensor;
    TRIREME_CHECK(broken_rule(tensor).empty(), "{}", broken_rule(tensor));
    SavedTensor saved{tensor, {}};
    for (const spec::Piece& piece : given.pieces) {
      TRIREME_CHECK(piece.lo.size() == tensor.shape.size() && piece.hi.size() == piece.lo.size(),
                    "{}: a piece of {} dimensions", tensor.name, piece.lo.size());
      for (size_t dim = 0; dim < piece.lo.size(); ++dim) {
        TRIREME_CHECK(0 <= piece.lo[dim] && piece.lo[dim] < piece.hi[dim] &&
                          piece.hi[dim] <= tensor.shape[dim],
                      "{}: [{}, {}) of {}", tensor.name, piece.lo[dim], piece.hi[dim],
                      tensor.shape[dim]);
      }
      saved.boxes.push_back({piece.lo, piece.hi, layout.bytes});
      layout.bytes +=
          base::round_up(elements_of(saved.boxes.back()) * base::size_of(tensor.dtype), page_bytes);
    }
    layout.tensors.push_back(std::move(saved));
  }
  return layout;
}

Draft begin_generation(Disk& disk, const std::filesystem::path& given, int64_t step,
                       const Writer& writer) {
  TRIREME_CHECK(step >= 0, "step {}", step);
  // "run/checkpoints/" names the same folder as without the slash, but is another path.
  const std::filesystem::path root = given.has_filename() ? given : given.parent_path();
  if (!disk.exists(root)) disk.make_folder(root);
  // The process that created it may have stopped before syncing its parent.
  disk.sync_folder(root.has_parent_path() ? root.parent_path() : ".");
  Draft draft{step, writer, root, {}, root / generation_name(step)};
  if (disk.exists(draft.committed)) {
    throw base::IoError(
        fmt::format("{} exists: step {} was saved before. Resume from it, or move it away",
                    draft.committed.string(), step));
  }
  draft.folder = root / free_name(disk, root, draft_start(step, writer));
  disk.make_folder(draft.folder);
  return draft;
}

FileInfo write_data(Disk& disk, const DataToWrite& data, const IoOptions& options) {
  FileSink sink({.disk = disk,
                 .folder = data.folder,
                 .rank = data.rank,
                 .layout = data.layout,
                 .workspace = data.workspace},
                options);
  sink.begin();
  sink.write(data.bytes);
  return file_of(data.rank, sink.seal());
}

DataWriter::DataWriter(Disk& disk, const std::filesystem::path& folder, int rank, FileLayout layout)
    : disk_(disk),
      folder_(folder),
      index_{rank, layout.bytes, std::move(layout.tensors), {}},
      file_(disk.create(folder / data_name(rank), layout.bytes)) {}

void DataWriter::append(std::span<const std::byte> bytes) {
  TRIREME_CHECK(written_ % chunk_bytes == 0 && std::ssize(bytes) <= index_.data_bytes - written_,
                "{} bytes after {} of {}", bytes.size(), written_, index_.data_bytes);
  file_->write_at(written_, bytes);
  for (int64_t chunk = 0; chunk < chunks_of(std::ssize(bytes)); ++chunk) {
    index_.chunks.push_back(
        hash_of(bytes.subspan(static_cast<size_t>(chunk * chunk_bytes),
                              static_cast<size_t>(chunk_size(std::ssize(bytes), chunk)))));
  }
  written_ += std::ssize(bytes);
}

FileInfo DataWriter::finish() {
  TRIREME_CHECK(written_ == index_.data_bytes, "{} of {} bytes", written_, index_.data_bytes);
  file_->sync();
  file_.reset();
  return file_of(
      index_.rank,
      write_index(disk_, folder_, {index_.rank, index_.data_bytes, index_.tensors, index_.chunks},
                  to_text(index_)));
}

std::filesystem::path commit(Disk& disk, const Draft& draft, const Manifest& manifest,
                             const Guard& guard) {
  TRIREME_CHECK(manifest.step == draft.step && manifest.writer == draft.writer,
                "step {} of '{}' in the draft of {} of '{}'", manifest.step, manifest.writer.run,
                draft.step, draft.writer.run);
  TRIREME_CHECK(std::ranges::is_sorted(manifest.files, std::less<>(), &FileInfo::rank),
                "files are not by rank");
  for (const FileInfo& file : manifest.files) {
    expect_size(disk, draft.folder / data_name(file.rank), file.data_bytes);
    expect_size(disk, draft.folder / index_name(file.rank), file.index_bytes);
  }
  const std::string text = to_text(manifest);
  if (std::ssize(text) > max_manifest_bytes) {
    throw base::IoError(fmt::format("the manifest would have {} bytes; at most {} can be read",
                                    text.size(), max_manifest_bytes));
  }
  write_text(disk, draft.folder / manifest_name, text);
  disk.sync_folder(draft.folder);
  const auto rename = [&] { disk.rename(draft.folder, draft.committed); };
  if (guard) {
    guard(rename);
  } else {
    rename();
  }
  disk.sync_folder(draft.root);
  return draft.committed;
}

void abandon(Disk& disk, const Draft& draft) noexcept {
  try {
    remove_all(disk, draft.folder);
  } catch (const std::exception&) {
    // The caller reports why the save failed; remove_leftovers() removes the rest later.
  }
}

}  // namespace trireme::ckpt
