// Snapshots of a run: written whole or not at all, checked when read; the newest valid one is used.
//
//   <run>/snapshots/step-00001200/{model.safetensors, optimizer.safetensors, ..., state.json, manifest.json}
//
// One safetensors file per model and per part that has tensors; state.json holds the config and the JSON of all parts.
// A snapshot is written to a temporary folder, every file and folder is synced, then it is renamed. manifest.json holds the
// size and CRC32C of every file, the CRC32C of every tensor, and a CRC32C of its own text. LibTorch's own serialisation is not
// used.
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
  std::map<std::string, State> parts;  // the keys are the names in snapshot/layout.h
  Json config = Json::object();
  // Data with which the run's reports resume; it is not part of the state, so the digest leaves it out.
  Json report = Json::object();
};

struct Found {
  std::filesystem::path path;
  std::int64_t step = 0;
  int copy = 1;  // 2 or more if the folder's usual name was taken
};

// Saves under `run`/snapshots/step-NNNNNNNN and returns the folder. A snapshot of the same step is replaced. A damaged or
// foreign folder of that name stays, and the snapshot is then called step-NNNNNNNN.2. Tensors may be on any device. If the
// snapshot can't be written, throws a SnapshotError with the file, the bytes and the system's reason; earlier snapshots then
// stay valid. Any thread may call this, also during the work of a Keeper; one save at a time per run and step.
std::filesystem::path save(Fs& fs, const std::filesystem::path& run, const Content& content);

// Returns all snapshots of a run in order of step; their contents are not read.
[[nodiscard]] std::vector<Found> list(Fs& fs, const std::filesystem::path& run);

// Returns true if the folder is exactly what Millrace made. Contents of its files are not checked. Never throws.
[[nodiscard]] bool is_ours(Fs& fs, const Found& found) noexcept;

// The files that Millrace wrote into the snapshot, even if others added files; empty if the folder is not Millrace's. Never
// throws.
[[nodiscard]] std::vector<std::string> files_of(Fs& fs, const Found& found) noexcept;
// Returns the folder for a new snapshot of this step in `run`: the first name that is not taken.
[[nodiscard]] std::filesystem::path free_place(const std::filesystem::path& run, std::int64_t step);

// Reads and checks a snapshot. A SnapshotError names the file and, for a flipped bit, the tensor.
[[nodiscard]] Content load(Fs& fs, const std::filesystem::path& snapshot);
// Checks like load(), but keeps nothing in memory.
void check(Fs& fs, const std::filesystem::path& snapshot);

// Loads the newest valid snapshot and returns it with its folder. Each damaged snapshot is skipped and passed to `passed_over`
// (path, reason). Returns nullopt if no snapshot is valid.
[[nodiscard]] std::optional<Content> load_newest(
    Fs& fs, const std::filesystem::path& run,
    const std::function<void(const std::filesystem::path&, const std::string&)>& passed_over,
    std::filesystem::path* found = nullptr);

// Returns the SHA-256 over (name, dtype, shape, bytes) of all tensors in order of name, then the canonical JSON of all parts;
// the step and the config are left out. Times, paths, thread and reader counts are never put into parts, so equal runs have
// equal digests.
[[nodiscard]] std::string digest(const Content& content);

}  // namespace millrace::snapshot
