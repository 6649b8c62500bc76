// Opens sessions: checks what the files contain, and converts it.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "recipes/neural_response/sessions/clock.h"
#include "recipes/neural_response/sessions/session.h"
#include "recipes/neural_response/sessions/session_hdf5.h"

namespace millrace::recipes::neural_response {
namespace {

namespace stdfs = std::filesystem;

constexpr std::uint64_t kTrialSplitKey = 41;  // makes the split's random numbers differ from those of other uses of the seed
constexpr std::int64_t kMostTransformedBytes = std::int64_t{1} << 33;
// two rates count as equal if they differ by less than this share; rounding to float32 changes a rate by less
constexpr double kSameRate = 1e-6;

void append(Series& all, Series part) {
  if (all.rows == 0) {
    all = std::move(part);
    return;
  }
  all.rows += part.rows;
  all.values.insert(all.values.end(), part.values.begin(), part.values.end());
}

Series joined_columns(const Series& left, const Series& right) {
  Series both{left.rows, left.columns + right.columns, {}};
  both.values.reserve(left.values.size() + right.values.size());
  for (std::int64_t t = 0; t < left.rows; ++t) {
    both.values.insert(both.values.end(), left.row(t), left.row(t) + left.columns);
    both.values.insert(both.values.end(), right.row(t), right.row(t) + right.columns);
  }
  return both;
}

StimulusKind kind_of(const std::vector<Operation>& operations) {
  std::size_t norms = 0;
  for (const Operation& operation : operations) {
    if (std::holds_alternative<op::PixelNorm>(operation)) {
      ++norms;
    } else if (!std::holds_alternative<op::Unsqueeze>(operation)) {
      return StimulusKind::transformed;
    }
  }
  return norms == 0 ? StimulusKind::grey : norms == 1 ? StimulusKind::pixels : StimulusKind::transformed;
}

}  // namespace

// Makes a session from its open files.
class SessionOpener {
 public:
  SessionOpener(SessionFile asked, const std::vector<SessionHdf5>& files, std::vector<std::string>& notices)
      : session_(std::make_shared<Session>()), notices_(notices) {
    Session& s = *session_;
    s.asked_ = std::move(asked);
    for (std::size_t i = 0; i < files.size(); ++i) add_part(s.asked_.types[i], files[i]);
    add_stimulus_kind();
    for (SessionPart& part : s.parts_) {
      part.first_bin = s.bins_;
      s.bins_ += part.bins;
      read_part(part);
    }
    keep_counts();
    split();
    add_means();
    note_silent_units();
    Sha256 digest;
    digest.update(s.asked_.options + std::to_string(s.height_) + "x" + std::to_string(s.width_) + " " + std::to_string(s.bins_));
    s.fingerprint_ = "session " + digest.hex();
  }
  std::shared_ptr<const Session> take() { return std::move(session_); }

 private:
  using Trial = std::pair<std::size_t, std::int64_t>;  // the number of the file's type, and the value in trial_inds

  // Adds a file of the session. Reads headers only, and checks that all data sets are there and have equal length.
  void add_part(const std::string& type, const SessionHdf5& file) {
    Session& s = *session_;
    compare_attributes(type, *file);
    const hdf5::Dataset& stim = covariate_of(*file, "/stim", 3, 3);
    if (stim.dtype != DType::u8) {
      throw DataError({short_name(*file) + ": /stim is " + std::string(name_of(stim.dtype)) + ", expected u8",
                       file->path().string(), "write grey levels from 0 to 255"});
    }
    if (stim.shape[0] < 1 || stim.shape[1] < 1 || stim.shape[2] < 1) {
      throw DataError({short_name(*file) + ": /stim is " + to_text(stim.shape) + ", which is empty", file->path().string(),
                       "remove the file from types, or write it anew"});
    }
    std::vector<std::string> names = {"/robs", "/dpi_valid", "/trial_inds"};
    for (const Transform& transform : s.asked_.transforms) {
      if (transform.expose_as == "behavior") names.push_back("/" + transform.source);
    }
    for (const char* optional : {"/missing_pct", "/eyepos", "/t_bins"}) {
      if (has_covariate(*file, optional)) names.emplace_back(optional);
    }
    for (const std::string& name : names) {
      const hdf5::Dataset& set = covariate_of(*file, name, 1, 2);
      if (set.shape[0] == stim.shape[0]) continue;
      throw DataError({short_name(*file) + ": " + name + " has " + std::to_string(set.shape[0]) + " bins, /stim has " +
                           std::to_string(stim.shape[0]),
                       file->path().string(), "write all datasets of a session with the same number of bins"});
    }
    if (s.parts_.empty()) {
      s.height_ = stim.shape[1];
      s.width_ = stim.shape[2];
    } else if (stim.shape[1] != s.height_ || stim.shape[2] != s.width_) {
      throw DataError({short_name(*file) + ": /stim has frames of " + std::to_string(stim.shape[1]) + "x" +
                           std::to_string(stim.shape[2]) + ", " + short_name(*s.parts_[0].file) + " has " +
                           std::to_string(s.height_) + "x" + std::to_string(s.width_),
                       file->path().string(), "cut or scale the stimuli of a session to one size"});
    }
    s.parts_.push_back({.type = type, .file = file, .bins = stim.shape[0] / s.asked_.ratio});
  }

  void add_stimulus_kind() {
    Session& s = *session_;
    for (const Transform& transform : s.asked_.transforms) {
      if (transform.expose_as == "stim") s.kind_ = kind_of(transform.operations);
    }
    std::int64_t bins = 0;
    for (const SessionPart& part : s.parts_) bins += part.bins;
    const double bytes = 4.0 * static_cast<double>(bins) * static_cast<double>(s.height_) * static_cast<double>(s.width_);
    if (s.kind_ == StimulusKind::transformed && bytes > static_cast<double>(kMostTransformedBytes)) {
      throw ConfigError(
          Message{"session " + s.name() + ": a transformed stimulus is kept in memory, and this one has " + human_bytes(bytes) +
                      "; the limit is " + human_bytes(static_cast<double>(kMostTransformedBytes)),
                  s.asked_.place, "keep only pixelnorm and unsqueeze in the stimulus's ops, or shorten the session"});
    }
  }

  // Reads the data sets of a file, downsamples, transforms and filters them.
  void read_part(SessionPart& part) {
    Session& s = *session_;
    const hdf5::File& file = *part.file;
    const std::int64_t ratio = s.asked_.ratio;
    Series dpi = read_valid(file);
    Gaps gaps{.dpi_valid = dpi.values, .ratio = ratio};
    Series counts = read_counts(file, "/robs", s.asked_.cids, gaps);
    note_gaps(file, "/robs", gaps, "0 is used instead");
    note_rates(file, counts);
    Series behavior{part.bins, 0, {}};
    for (const Transform& transform : s.asked_.transforms) {
      if (transform.expose_as == "robs") counts = apply_operations(transform.operations, std::move(counts));
      if (transform.expose_as != "behavior") continue;
      gaps.found = 0;
      Series series = average_bins(read_series(file, "/" + transform.source, &gaps), ratio);
      note_gaps(file, "/" + transform.source, gaps, "the previous number is used instead");
      behavior = joined_columns(behavior, apply_operations(transform.operations, std::move(series)));
    }
    append(counts_, std::move(counts));
    if (s.behavior_.rows > 0 && s.behavior_.columns != behavior.columns) {
      throw DataError({short_name(file) + " makes " + std::to_string(behavior.columns) + " numbers of behavior, " +
                           short_name(*s.parts_[0].file) + " makes " + std::to_string(s.behavior_.columns),
                       file.path().string(), "write behavior with the same columns in all files of a session"});
    }
    append(s.behavior_, std::move(behavior));

    std::vector<std::int64_t> trials = read_wholes(file, "/trial_inds");
    part.clock = read_clock(file, trials);
    const std::vector<std::int64_t> seams = part.clock ? part.clock->seams : std::vector<std::int64_t>();
    for (std::int64_t t = 0; t < part.bins; ++t)
      trials[static_cast<std::size_t>(t)] = trials[static_cast<std::size_t>(t * ratio)];
    trials.resize(static_cast<std::size_t>(part.bins));
    const auto type = static_cast<std::size_t>(&part - s.parts_.data());
    for (const std::int64_t trial : trials) trial_names_.emplace_back(type, trial);
    const std::vector<std::int64_t> stretches = cut_at(seams, trials, ratio, dpi.values);
    const std::vector<std::uint8_t> valid = valid_nlags(stretches, dpi.values, s.asked_.filters.n_lags);
    s.bin_counts_.insert(s.bin_counts_.end(), valid.begin(), valid.end());
    filter_units(part);
  }

  // If a file has attributes that describe it, compares them with the dataset file.
  void compare_attributes(const std::string& type, const hdf5::File& file) {
    const hdf5::Attributes& attributes = file.attributes("/");
    if (!attributes.failure.empty())
      notices_.push_back(short_name(file) + ": its attributes can't be read, and are left out: " + attributes.failure);
    if (const hdf5::Attribute* rate = attributes.find("source_rate")) check_source_rate(file, *rate);
    std::vector<std::string> others;
    for (const auto& [name, place] : {std::pair{"session", session_->name()}, std::pair{"type", type}}) {
      const hdf5::Attribute* const attribute = attributes.find(name);
      if (attribute == nullptr) continue;
      const auto* const text = std::get_if<std::string>(&attribute->value);
      if (text == nullptr || *text != place) others.push_back(std::string(name) + " " + hdf5::value_text(*attribute));
    }
    if (!others.empty())
      notices_.push_back(short_name(file) + ": its attributes say " + joined(others, ", ") +
                         "; Millrace ignores them and takes session and type from the file's path");
  }

  void check_source_rate(const hdf5::File& file, const hdf5::Attribute& attribute) const {
    const std::string correct = "correct the file's attribute source_rate: bins per second";
    const std::optional<double> rate = hdf5::number_of(attribute);
    if (!rate) {
      throw DataError({short_name(file) + ": its attribute source_rate is " + hdf5::value_text(attribute) + ", expected a number",
                       file.path().string(), correct});
    }
    const double asked = session_->asked_.source_rate;
    if (std::abs(*rate - asked) <= kSameRate * asked) return;
    const bool is_rate = *rate > 0 && std::isfinite(*rate);
    throw DataError(
        {short_name(file) + " has bins at " + significant(*rate, 7) + " Hz, as its attribute source_rate says; " +
             "sampling.source_rate is " + significant(asked, 7),
         file.path().string(),
         (is_rate ? "set sampling.source_rate to " + significant(*rate, 7) + " in the dataset file, or " : "") + correct});
  }

  [[nodiscard]] Series read_valid(const hdf5::File& file) const {
    Series dpi = average_bins(read_series(file, "/dpi_valid"), session_->asked_.ratio);
    if (dpi.columns == 1) return dpi;
    throw DataError({short_name(file) + ": /dpi_valid has " + std::to_string(dpi.columns) + " columns, expected one",
                     file.path().string(), "write one number per bin"});
  }

  void note_gaps(const hdf5::File& file, const std::string& name, const Gaps& gaps, const std::string& instead) {
    if (gaps.found == 0) return;
    notices_.push_back(short_name(file) + ": " + name + " has no number in " + with_commas(gaps.found) +
                       " bins that /dpi_valid marks with 0: these bins are not samples, and " + instead);
  }

  // Reports counts that no neuron reaches, because such numbers usually are rates.
  void note_rates(const hdf5::File& file, const Series& counts) {
    constexpr double kMostSpikes = 500;  // spikes per second, on average
    double most = 0;
    std::int64_t unit = 0;
    for (std::int64_t c = 0; c < counts.columns; ++c) {
      double sum = 0;
      for (std::int64_t t = 0; t < counts.rows; ++t) sum += static_cast<double>(counts.row(t)[c]);
      if (sum <= most) continue;
      most = sum;
      unit = session_->asked_.cids[static_cast<std::size_t>(c)];
    }
    if (counts.rows == 0) return;
    const double source_rate = session_->asked_.source_rate;
    const double spikes = most / static_cast<double>(counts.rows * session_->asked_.ratio) * source_rate;
    if (spikes <= kMostSpikes) return;
    notices_.push_back(
        short_name(file) + ": /robs of cid " + std::to_string(unit) + " come to " + significant(spikes, 4) +
        " spikes/s on average, but counts of spikes per bin are expected. Are they rates in Hz? Then divide them by " +
        significant(source_rate, 4) + ", the number of bins per second");
  }

  // Reads the file's own clock, and reports it if it contradicts the source rate.
  std::optional<ClockSeen> read_clock(const hdf5::File& file, std::span<const std::int64_t> trials) {
    if (!has_covariate(file, "/t_bins")) return std::nullopt;
    ClockSeen seen = look_at_clock(read_seconds(file, "/t_bins"), trials);
    const double rate = session_->asked_.source_rate;
    if (seen.step_seconds < 0) {
      throw DataError(
          {short_name(file) + ": /t_bins run backwards, by " + significant(-1000 * seen.step_seconds, 3) + " ms from bin to bin",
           file.path().string(), "write all datasets of the session in the order of time, or remove /t_bins"});
    }
    if (seen.step_seconds > 0 && std::abs(seen.step_seconds * rate - 1) >= 0.01 + seen.doubt)
      notices_.push_back(short_name(file) + ": /t_bins are " + significant(1000 * seen.step_seconds, 3) + " ms apart, which is " +
                         significant(1 / seen.step_seconds, 4) + " Hz, but sampling.source_rate is " + significant(rate, 4));
    if (!seen.seams.empty()) {
      const auto more = static_cast<std::int64_t>(seen.seams.size()) - 1;
      notices_.push_back(short_name(file) + ": /t_bins " + seen.worst +
                         (more > 0 ? ", the worst of " + with_commas(more + 1) + " irregular steps" : "") +
                         ". No window crosses an irregular step");
    }
    return seen;
  }

  // Returns the number of each bin's stretch. A new stretch begins with each trial and with each bin that contains a seam (an
  // irregular step of the clock). If the seam is inside the bin, the bin is marked as not valid.
  static std::vector<std::int64_t> cut_at(const std::vector<std::int64_t>& seams, const std::vector<std::int64_t>& trials,
                                          std::int64_t ratio, std::vector<float>& dpi_valid) {
    std::vector<std::int64_t> stretches;
    std::int64_t stretch = 0;
    auto seam = seams.begin();
    for (std::size_t t = 0; t < trials.size(); ++t) {
      const std::int64_t first = static_cast<std::int64_t>(t) * ratio;
      bool cut = t > 0 && trials[t] != trials[t - 1];
      for (; seam != seams.end() && *seam < first + ratio; ++seam) {
        cut = true;
        if (*seam != first) dpi_valid[t] = 0;
      }
      if (cut) ++stretch;
      stretches.push_back(stretch);
    }
    return stretches;
  }

  void filter_units(const SessionPart& part) {
    Session& s = *session_;
    if (!s.asked_.filters.has_missing_pct || !has_covariate(*part.file, "/missing_pct")) {
      if (!s.unit_counts_.empty())
        s.unit_counts_.insert(s.unit_counts_.end(), static_cast<std::size_t>(part.bins * s.units()), 1);
      return;
    }
    if (s.unit_counts_.empty()) s.unit_counts_.assign(static_cast<std::size_t>(part.first_bin * s.units()), 1);
    const Series missing = read_percent(*part.file, "/missing_pct", s.asked_.cids, s.asked_.ratio);
    note_fractions(*part.file, missing);
    for (const float percent : missing.values)
      s.unit_counts_.push_back(static_cast<double>(percent) < s.asked_.filters.missing_threshold ? 1 : 0);
  }

  void note_fractions(const hdf5::File& file, const Series& missing) {
    const double threshold = session_->asked_.filters.missing_threshold;
    double most = 0;
    for (const float percent : missing.values) most = std::max(most, static_cast<double>(percent));
    if (!(most > 0 && most <= 1 && threshold > 1)) return;
    notices_.push_back(short_name(file) + ": /missing_pct is at most " + significant(most, 3) +
                       ", but the filter leaves out bins from " + significant(threshold, 3) +
                       " percent on, so it leaves out no bin. Are the values fractions? Then write 100 times "
                       "the values, or set the filter's threshold to " +
                       significant(threshold / 100, 3));
  }

  // If all spike counts are small whole numbers, as usual, stores each count in one byte.
  void keep_counts() {
    const bool small = std::all_of(counts_.values.begin(), counts_.values.end(),
                                   [](float value) { return value >= 0 && value <= 255 && std::floor(value) == value; });
    if (small) {
      session_->small_counts_.assign(counts_.values.begin(), counts_.values.end());
    } else {
      session_->wide_counts_ = std::move(counts_.values);
    }
    counts_ = {};
  }

  void split() {
    Session& s = *session_;
    std::vector<Trial> distinct = trial_names_;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    s.trials_ = static_cast<std::int64_t>(distinct.size());
    if (s.trials_ < 2) {
      throw DataError(
          {"session " + s.name() + " has " + (s.trials_ == 1 ? "1 trial" : "no trial") + ", but a split by trial needs 2 or more",
           s.parts_[0].file->path().string(), "write more trial numbers into /trial_inds, or leave the session out"});
    }
    std::vector<std::int64_t> order(distinct.size());
    std::iota(order.begin(), order.end(), 0);
    Philox random(make_key(s.asked_.seed, kTrialSplitKey));
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    const auto wanted = static_cast<std::int64_t>(std::round(s.asked_.train_share * static_cast<double>(s.trials_)));
    const std::int64_t training = std::clamp<std::int64_t>(wanted, 1, s.trials_ - 1);
    std::vector<std::uint8_t> trains(distinct.size());
    for (std::int64_t i = 0; i < training; ++i) trains[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = 1;

    for (std::int64_t bin = 0; bin < s.bins_; ++bin) {
      const auto it = std::lower_bound(distinct.begin(), distinct.end(), trial_names_[static_cast<std::size_t>(bin)]);
      const auto trial = static_cast<std::size_t>(it - distinct.begin());
      s.trial_of_.push_back(static_cast<std::int64_t>(trial));
      if (counts_somewhere(bin)) (trains[trial] != 0 ? s.train_ : s.validation_).push_back(bin);
    }
    check_split();
  }

  [[nodiscard]] bool unit_counts_somewhere(std::int64_t bin) const {
    const Session& s = *session_;
    if (s.unit_counts_.empty()) return true;
    const auto first = s.unit_counts_.begin() + static_cast<std::ptrdiff_t>(bin * s.units());
    return std::any_of(first, first + static_cast<std::ptrdiff_t>(s.units()), [](std::uint8_t counts) { return counts != 0; });
  }
  [[nodiscard]] bool counts_somewhere(std::int64_t bin) const {
    return session_->bin_counts_[static_cast<std::size_t>(bin)] != 0 && unit_counts_somewhere(bin);
  }

  void check_split() const {
    const Session& s = *session_;
    const std::string where = s.parts_[0].file->path().string();
    if (s.train_.empty() && s.validation_.empty()) {
      const auto by_lags = std::count(s.bin_counts_.begin(), s.bin_counts_.end(), 0);
      std::int64_t by_missing = 0;
      for (std::int64_t bin = 0; bin < s.bins_; ++bin) by_missing += unit_counts_somewhere(bin) ? 0 : 1;
      throw DataError({"session " + s.name() + " has no valid bin left of " + std::to_string(s.bins_) + ": valid_nlags removes " +
                           std::to_string(by_lags) + ", missing_pct " + std::to_string(by_missing),
                       where, "look at /dpi_valid, /trial_inds and /missing_pct, or make the filters less strict"});
    }
    for (const auto& [samples, side] : {std::pair{&s.train_, "training"}, std::pair{&s.validation_, "validation"}}) {
      if (!samples->empty()) continue;
      throw DataError({"session " + s.name() + " has no valid bin for " + side + ": " + std::to_string(s.trials_) +
                           " trials, split at " + figure(s.asked_.train_share),
                       where, "give the dataset file another seed or train_val_split, or leave the session out"});
    }
  }

  void add_means() {
    Session& s = *session_;
    const auto units = static_cast<std::size_t>(s.units());
    std::vector<double> sum(units);
    std::vector<double> bins(units);
    std::vector<float> counts(units);
    std::vector<float> mask(units);
    for (const std::int64_t bin : s.train_) {
      s.counts(bin, counts);
      s.mask(bin, mask);
      for (std::size_t u = 0; u < units; ++u) {
        sum[u] += static_cast<double>(mask[u] * counts[u]);
        bins[u] += static_cast<double>(mask[u]);
      }
    }
    for (std::size_t u = 0; u < units; ++u) s.mean_counts_.push_back(bins[u] > 0 ? static_cast<float>(sum[u] / bins[u]) : 0.0F);
  }

  // Reports units without spikes, because bits per spike are undefined for them.
  void note_silent_units() {
    constexpr std::size_t kNamed = 8;
    const Session& s = *session_;
    const auto units = static_cast<std::size_t>(s.units());
    std::vector<float> counts(units), mask(units);
    std::vector<std::uint8_t> fires(units);
    for (const std::int64_t bin : s.validation_) {
      s.counts(bin, counts);
      s.mask(bin, mask);
      for (std::size_t u = 0; u < units; ++u) fires[u] = fires[u] != 0 || mask[u] * counts[u] > 0 ? 1 : 0;
    }
    std::vector<std::string> silent;
    for (std::size_t u = 0; u < units; ++u)
      if (fires[u] == 0) silent.push_back(std::to_string(s.asked_.cids[u]));
    if (silent.empty()) return;
    const std::size_t count = silent.size();
    silent.resize(std::min(count, kNamed));
    notices_.push_back("session " + s.name() + ": " + std::to_string(count) + " of " + std::to_string(units) +
                       " units have no spike in the validation (cid " + joined(silent, ", ") + (count > kNamed ? ", ..." : "") +
                       "): they have no bits per spike, and val_bps_overall leaves them out");
  }

  std::shared_ptr<Session> session_;
  std::vector<std::string>& notices_;
  Series counts_;
  std::vector<Trial> trial_names_;  // the trial of each bin
};

namespace {

// Throws unless both sessions have the same lags and number of behavior columns, because one model gets all sessions.
void check_alike(const Session& first, const Session& session) {
  if (session.lags() != first.lags())
    throw DataError({"session " + session.name() + " has " + std::to_string(session.lags()) + " lags of the stimulus, session " +
                         first.name() + " has " + std::to_string(first.lags()),
                     session.parts()[0].file->path().string(), "write keys_lags only in the file that names the sessions"});
  if (session.behavior_dim() == first.behavior_dim()) return;
  throw DataError({"session " + session.name() + " makes " + std::to_string(session.behavior_dim()) +
                       " numbers of behavior a bin, session " + first.name() + " makes " + std::to_string(first.behavior_dim()),
                   session.parts()[0].file->path().string(),
                   "write the datasets that transforms expose as behavior with the same columns in all sessions, or leave a "
                   "session out"});
}

// The paths of a session's files. Throws DataError if one is missing.
std::vector<stdfs::path> paths_of(const SessionFile& session, const stdfs::path& data_dir) {
  const stdfs::path folder = (data_dir.empty() ? session.folder : data_dir) / session.name;
  std::vector<stdfs::path> paths;
  for (const std::string& type : session.types) {
    const stdfs::path path = folder / (type + ".h5");
    std::error_code error;
    if (!stdfs::exists(path, error)) {
      const stdfs::path pickle = folder / (type + ".dset");
      if (stdfs::exists(pickle, error)) {
        throw DataError({session.name + "/" + type + ".dset is a Python pickle", pickle.string(),
                         "run tools/dset_to_h5.py on it, and only if you trust it: a pickle can run any program"});
      }
      throw DataError({"session " + session.name + " has no file " + type + ".h5", path.string(),
                       "set data.dir to the folder that holds " + session.name +
                           "/ and recipe.dataset_config to this dataset file, or make some: millrace make-data neural_response"});
    }
    paths.push_back(path);
  }
  return paths;
}

}  // namespace

Sessions open_sessions(const RecipeConfig& recipe, const stdfs::path& dataset_file, const stdfs::path& data_dir,
                       const OpenOptions& options) {
  DatasetFile asked = read_dataset_file(dataset_file, recipe.max_datasets);
  Sessions sessions;
  sessions.notices = std::move(asked.notices);
  std::vector<stdfs::path> paths;
  for (const SessionFile& session : asked.sessions) {
    for (stdfs::path& path : paths_of(session, data_dir)) paths.push_back(std::move(path));
  }
  const std::vector<SessionHdf5> files = options.open(paths);
  auto next = files.begin();
  for (SessionFile& session : asked.sessions) {
    const auto count = static_cast<std::ptrdiff_t>(session.types.size());
    sessions.all.push_back(SessionOpener(std::move(session), {next, next + count}, sessions.notices).take());
    check_alike(*sessions.all.front(), *sessions.all.back());
    next += count;
  }
  return sessions;
}

}  // namespace millrace::recipes::neural_response
