// An open recording session: everything but the stimulus in memory, downsampled, transformed, filtered and split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/hdf5/file.h"
#include "recipes/neural_response/config.h"
#include "recipes/neural_response/sessions/clock.h"
#include "recipes/neural_response/sessions/dataset_file.h"

namespace millrace::recipes::neural_response {

using SessionHdf5 = std::shared_ptr<const hdf5::File>;
// Opens files, in order: open_session_hdf5(), or a test's own function.
using OpenHdf5 = std::function<std::vector<SessionHdf5>(std::span<const std::filesystem::path> paths)>;
[[nodiscard]] OpenHdf5 open_session_hdf5(hdf5::OpenOptions options = {});

struct OpenOptions {
  OpenHdf5 open = open_session_hdf5();
};

// The kind of a stimulus before it reaches the model.
enum class StimulusKind : std::uint8_t {
  pixels,       // grey levels that the model sees as (x - 127) / 255: may be transferred as u8
  grey,         // unscaled grey levels, without pixelnorm
  transformed,  // float32 from other transforms, all of it in memory
};

// One HDF5 file of a session: NAME/TYPE.h5. Its bins follow those of the earlier types.
struct SessionPart {
  std::string type;
  SessionHdf5 file;
  std::int64_t first_bin = 0;                     // within the session
  std::int64_t bins = 0;                          // whole groups of `ratio` source bins
  std::optional<ClockSeen> clock = std::nullopt;  // from /t_bins, if the files have it
};

// Const once it is open; every call is thread-safe.
class Session {
 public:
  [[nodiscard]] const std::string& name() const { return asked_.name; }
  [[nodiscard]] std::int64_t units() const { return static_cast<std::int64_t>(asked_.cids.size()); }
  [[nodiscard]] std::span<const std::int64_t> cids() const { return asked_.cids; }
  [[nodiscard]] std::int64_t behavior_dim() const { return behavior_.columns; }  // 0 if no transform makes behavior
  [[nodiscard]] std::int64_t lags() const { return asked_.lags; }
  [[nodiscard]] std::int64_t height() const { return height_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t bins() const { return bins_; }  // at the target rate, over all types
  [[nodiscard]] std::int64_t trials() const { return trials_; }
  [[nodiscard]] double source_rate() const { return asked_.source_rate; }
  [[nodiscard]] double target_rate() const { return asked_.target_rate; }
  [[nodiscard]] std::int64_t ratio() const { return asked_.ratio; }
  [[nodiscard]] std::span<const SessionPart> parts() const { return parts_; }
  [[nodiscard]] StimulusKind stimulus_kind() const { return kind_; }
  // Covers everything that determines its samples: options, cids, split; but no paths.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

  // Bins of a side of the split in which any unit counts, ascending. A bin's window is the bin and the lags() - 1 before it.
  [[nodiscard]] std::span<const std::int64_t> samples(Split split) const { return split == Split::train ? train_ : validation_; }
  // For each unit: counts per training bin, over the bins that count for it; 0 if there are no such bins.
  [[nodiscard]] std::span<const float> mean_counts() const { return mean_counts_; }
  [[nodiscard]] std::int64_t trial_of(std::int64_t bin) const { return trial_of_[static_cast<std::size_t>(bin)]; }

  // Both write one bin: units() numbers.
  void counts(std::int64_t bin, std::span<float> out) const;
  void mask(std::int64_t bin, std::span<float> out) const;  // 1 if the unit counts, else 0
  [[nodiscard]] std::span<const float> behavior(std::int64_t bin) const;
  // Name of a bin in messages: "allen_0216/backimage.h5 bin 1234".
  [[nodiscard]] std::string describe(std::int64_t bin) const;

  // Grey levels of `count` bins from `first`, height() * width() each, all from one part. DataError as in hdf5::File::read.
  void read_frames(std::int64_t first, std::int64_t count, std::span<std::uint8_t> out) const;
  void will_need_frames(std::int64_t first, std::int64_t count) const noexcept;
  // For StimulusKind::transformed: height() * width() numbers per bin, computed at the first call.
  [[nodiscard]] const Series& transformed() const;
  // Standard deviation of each bin's frame in grey levels (for a transformed stimulus in its own unit); one pass over the
  // stimulus at the first call.
  [[nodiscard]] std::span<const float> contrasts() const;

 private:
  friend class SessionOpener;

  SessionFile asked_;
  std::vector<SessionPart> parts_;
  std::int64_t height_ = 0, width_ = 0, bins_ = 0, trials_ = 0;
  StimulusKind kind_ = StimulusKind::pixels;
  std::string fingerprint_;
  std::vector<std::int64_t> train_, validation_, trial_of_;
  std::vector<std::uint8_t> small_counts_;  // (bins, units) if all counts are whole numbers below 256, else wide_counts_
  std::vector<float> wide_counts_;
  std::vector<std::uint8_t> bin_counts_;   // (bins): passes the filters for bins
  std::vector<std::uint8_t> unit_counts_;  // (bins, units): passes the filters for units; empty: all pass
  Series behavior_;
  std::vector<float> mean_counts_;
  mutable std::once_flag transformed_once_, contrasts_once_;
  mutable Series transformed_;
  mutable std::vector<float> contrasts_;
};

struct Sessions {
  std::vector<std::shared_ptr<const Session>> all;
  std::vector<std::string> notices;
};

// Opens the sessions of a dataset file (at most recipe.max_datasets). `data_dir` holds a folder per session; empty: the file's
// own data_dir, else the file's folder. Throws ConfigError (see read_dataset_file) and DataError: the first file that is missing
// or does not fit, in three parts.
[[nodiscard]] Sessions open_sessions(const RecipeConfig& recipe, const std::filesystem::path& dataset_file,
                                     const std::filesystem::path& data_dir, const OpenOptions& options = {});

// Weight of each training sample of `session` in an epoch that starts at `step`: min(1, .5 + .5 min(1, step / 8000) c), c being
// the standard deviation of the sample's newest frame divided by `median_contrast`.
[[nodiscard]] std::vector<float> curriculum_weights(const Session& session, double median_contrast, std::int64_t step);
// Median of that deviation over the training samples of all sessions; 1 if it is 0.
[[nodiscard]] double median_contrast(const Sessions& sessions);

}  // namespace millrace::recipes::neural_response
