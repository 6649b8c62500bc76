// An open recording session. Everything except the stimulus is in memory: downsampled, transformed, filtered and split.
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
// A function that opens files and returns them in the same order: open_session_hdf5(), or a function of a test.
using OpenHdf5 = std::function<std::vector<SessionHdf5>(std::span<const std::filesystem::path> paths)>;
[[nodiscard]] OpenHdf5 open_session_hdf5(hdf5::OpenOptions options = {});

struct OpenOptions {
  OpenHdf5 open = open_session_hdf5();
};

// The form of a session's stimulus before it reaches the model.
enum class StimulusKind : std::uint8_t {
  pixels,       // grey levels, which the model sees as (x - 127) / 255; batches may hold them as u8
  grey,         // grey levels, which the model sees unscaled, because the session does not use pixelnorm
  transformed,  // results of other transforms, float32, all in memory
};

// An HDF5 file of a session: NAME/TYPE.h5. Its bins follow the bins of the files before it.
struct SessionPart {
  std::string type;
  SessionHdf5 file;
  std::int64_t first_bin = 0;                     // number, within the session, of the first bin of this file
  std::int64_t bins = 0;                          // number of whole groups of `ratio` source bins
  std::optional<ClockSeen> clock = std::nullopt;  // from /t_bins; nullopt: the file does not have it
};

// Constant after it was opened, so every call is thread-safe.
class Session {
 public:
  [[nodiscard]] const std::string& name() const { return asked_.name; }
  [[nodiscard]] std::int64_t units() const { return static_cast<std::int64_t>(asked_.cids.size()); }
  [[nodiscard]] std::span<const std::int64_t> cids() const { return asked_.cids; }
  [[nodiscard]] std::int64_t behavior_dim() const { return behavior_.columns; }  // 0 if no transform makes behavior
  [[nodiscard]] std::int64_t lags() const { return asked_.lags; }
  [[nodiscard]] std::int64_t height() const { return height_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t bins() const { return bins_; }  // at the target rate, of all types together
  [[nodiscard]] std::int64_t trials() const { return trials_; }
  [[nodiscard]] double source_rate() const { return asked_.source_rate; }
  [[nodiscard]] double target_rate() const { return asked_.target_rate; }
  [[nodiscard]] std::int64_t ratio() const { return asked_.ratio; }
  [[nodiscard]] std::span<const SessionPart> parts() const { return parts_; }
  [[nodiscard]] StimulusKind stimulus_kind() const { return kind_; }
  // Identifies everything that determines the samples: options, cids and split, but no paths.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

  // The bins of a split in which at least one unit counts, ascending. The window of a bin ends with the bin and has lags() bins.
  [[nodiscard]] std::span<const std::int64_t> samples(Split split) const { return split == Split::train ? train_ : validation_; }
  // For each unit the mean count in a training bin, over the bins that count for the unit; 0 if there is no such bin.
  [[nodiscard]] std::span<const float> mean_counts() const { return mean_counts_; }
  [[nodiscard]] std::int64_t trial_of(std::int64_t bin) const { return trial_of_[static_cast<std::size_t>(bin)]; }

  // counts() and mask() write a number for each unit, for one bin.
  void counts(std::int64_t bin, std::span<float> out) const;
  void mask(std::int64_t bin, std::span<float> out) const;  // 1 if the unit counts in this bin, else 0
  [[nodiscard]] std::span<const float> behavior(std::int64_t bin) const;
  // The name of a bin in messages: "allen_0216/backimage.h5 bin 1234".
  [[nodiscard]] std::string describe(std::int64_t bin) const;

  // Reads the grey levels of `count` bins from `first` on, height() * width() for each. All these bins must be in the same file.
  // Throws DataError as hdf5::File::read does.
  void read_frames(std::int64_t first, std::int64_t count, std::span<std::uint8_t> out) const;
  void will_need_frames(std::int64_t first, std::int64_t count) const noexcept;
  // For StimulusKind::transformed: height() * width() numbers for each bin, computed in the first call.
  [[nodiscard]] const Series& transformed() const;
  // The standard deviation of each bin's frame, in grey levels (in the unit of the stimulus if it is transformed). The first call
  // reads the whole stimulus.
  [[nodiscard]] std::span<const float> contrasts() const;

 private:
  friend class SessionOpener;

  SessionFile asked_;
  std::vector<SessionPart> parts_;
  std::int64_t height_ = 0, width_ = 0, bins_ = 0, trials_ = 0;
  StimulusKind kind_ = StimulusKind::pixels;
  std::string fingerprint_;
  std::vector<std::int64_t> train_, validation_, trial_of_;
  std::vector<std::uint8_t> small_counts_;  // (bins, units), used if all counts are whole numbers below 256; else wide_counts_ is
                                            // used
  std::vector<float> wide_counts_;
  std::vector<std::uint8_t> bin_counts_;   // (bins): 1 if the bin passes the filters for bins
  std::vector<std::uint8_t> unit_counts_;  // (bins, units): 1 if the unit counts in the bin; empty: all count
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

// Opens the sessions of a dataset file, at most recipe.max_datasets. `data_dir` has a folder for each session. If `data_dir` is
// empty, the data_dir in the dataset file is used, or else the folder of the dataset file. Throws ConfigError (see
// read_dataset_file), and DataError for the first file that is missing or does not fit.
[[nodiscard]] Sessions open_sessions(const RecipeConfig& recipe, const std::filesystem::path& dataset_file,
                                     const std::filesystem::path& data_dir, const OpenOptions& options = {});

// The weight of each training sample of `session` in an epoch that begins at `step`: min(1, .5 + .5 min(1, step / 8000) c), where
// c is the standard deviation of the sample's newest frame divided by `median_contrast`.
[[nodiscard]] std::vector<float> curriculum_weights(const Session& session, double median_contrast, std::int64_t step);
// Takes the standard deviation of the newest frame of each training sample, over all sessions, and returns the median; 1 if the
// median is 0.
[[nodiscard]] double median_contrast(const Sessions& sessions);

}  // namespace millrace::recipes::neural_response
