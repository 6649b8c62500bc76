// Snapshots of a run: written whole or not at all, checked when read; the newest valid one is used.
//
//   <run>/snapshots/step-00001200/{model.safetensors, optimizer.safetensors, ..., state.json, manifest.json}
//
// One safetensors file per model and per part that has tensors; state.json holds the config and the JSON of all parts.
// A snapshot is written to a temporary folder, every file and folder is synced, then it is renamed. manifest.json holds the
// size and CRC32C of every file, the CRC32C of every tensor, and a CRC32C of its own text. Nothing of LibTorch's own
// serialisation is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"
#include "millrace/snapshot/tensor_file.h"

namespace millrace::snapshot {

// The contents of a snapshot. `models` has one entry per objective model ("model" if there is only one; file <name>.safetensors).
// Names of models and parts become file names: letters, digits, '_', '-' and '.', no name twice. JSON numbers may be infinite or
// NaN. Tensors of a loaded snapshot are contiguous, on the CPU and without gradient.
struct Content {
  std::int64_t step = 0;
  std::map<std::string, Tensors> models;
  std::map<std::string, State> parts;  // by the names of snapshot/layout.h
  Json config = Json::object();
  Json report = Json::object();  // data with which the run's reports resume; not part of the state, so not of its digest
};

struct Found {
  std::filesystem::path path;
  std::int64_t step = 0;
  int copy = 1;  // 2 … if the name of the step was taken
};

// Saves under `run`/snapshots/step-NNNNNNNN and returns the folder; replaces a snapshot of the same step. A folder of that name
// that is damaged or foreign stays: the snapshot is then called step-NNNNNNNN.2. Tensors may be on any device. SnapshotError
// (what: file, bytes and the system's reason) if it can't be written; earlier snapshots then stay valid. Any thread, also during
// the work of a Keeper; one save at a time per run and step.
std::filesystem::path save(Fs& fs, const std::filesystem::path& run, const Content& content);

// All snapshots of a run in order of step; their contents are not read.
[[nodiscard]] std::vector<Found> list(Fs& fs, const std::filesystem::path& run);

// Whether the folder is exactly what Millrace made; contents of its files are not checked. Never throws.
[[nodiscard]] bool is_ours(Fs& fs, const Found& found) noexcept;

// The files of such a snapshot, even if others have been added; empty if the folder is not Millrace's. Never throws.
[[nodiscard]] std::vector<std::string> files_of(Fs& fs, const Found& found) noexcept;
// Where a snapshot of this step can be placed in `run`: the first name not taken.
[[nodiscard]] std::filesystem::path free_place(const std::filesystem::path& run, std::int64_t step);

// Reads and checks a snapshot. SnapshotError names the file and, for a flipped bit, the tensor.
[[nodiscard]] Content load(Fs& fs, const std::filesystem::path& snapshot);
// Checks like load(), but keeps nothing in memory.
void check(Fs& fs, const std::filesystem::path& snapshot);

// The newest valid snapshot, and where it was found; each damaged one is passed to `passed_over` (path, reason) and skipped.
// nullopt if there is no valid one.
[[nodiscard]] std::optional<Content> load_newest(
    Fs& fs, const std::filesystem::path& run,
    const std::function<void(const std::filesystem::path&, const std::string&)>& passed_over,
    std::filesystem::path* found = nullptr);

// SHA-256 over (name, dtype, shape, bytes) of all tensors in order of name, then the canonical JSON of all parts; the step and
// the config are left out. Times, paths, thread and reader counts are never put into parts, so equal runs have equal digests.
[[nodiscard]] std::string digest(const Content& content);

}  // namespace millrace::snapshot
