#include "recipes/neural_response/sessions/session.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/median.h"
#include "recipes/neural_response/sessions/session_hdf5.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr auto kStimulus = "/stim";
constexpr double kStepsOfCurriculum = 8000;
constexpr std::int64_t kFramesAtOnce = 256;

template <class Number>
float deviation_of(std::span<const Number> values) {
  double sum = 0;
  double squares = 0;
  for (const Number value : values) sum += static_cast<double>(value);
  const double mean = sum / static_cast<double>(values.size());
  for (const Number value : values) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  return static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
}

const SessionPart& part_with(std::span<const SessionPart> parts, std::int64_t bin) {
  std::size_t i = 0;
  while (i + 1 < parts.size() && bin >= parts[i + 1].first_bin) ++i;
  return parts[i];
}

}  // namespace

OpenHdf5 open_session_hdf5(hdf5::OpenOptions options) {
  return [options = std::move(options)](std::span<const std::filesystem::path> paths) {
    return hdf5::File::open_all(paths, {}, {}, options);
  };
}

void Session::counts(std::int64_t bin, std::span<float> out) const {
  const auto first = static_cast<std::size_t>(bin * units());
  if (wide_counts_.empty()) {
    std::copy_n(small_counts_.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
  } else {
    std::copy_n(wide_counts_.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
  }
}

void Session::mask(std::int64_t bin, std::span<float> out) const {
  if (bin_counts_[static_cast<std::size_t>(bin)] == 0) {
    std::fill(out.begin(), out.end(), 0.0F);
  } else if (unit_counts_.empty()) {
    std::fill(out.begin(), out.end(), 1.0F);
  } else {
    std::copy_n(unit_counts_.begin() + static_cast<std::ptrdiff_t>(bin * units()), out.size(), out.begin());
  }
}

std::span<const float> Session::behavior(std::int64_t bin) const {
  return {behavior_.row(bin), static_cast<std::size_t>(behavior_.columns)};
}

std::string Session::describe(std::int64_t bin) const {
  const SessionPart& part = part_with(parts_, bin);
  return name() + "/" + part.type + ".h5 bin " + std::to_string(bin - part.first_bin);
}

void Session::read_frames(std::int64_t first, std::int64_t count, std::span<std::uint8_t> out) const {
  const SessionPart& part = part_with(parts_, first);
  const std::int64_t pixels = height_ * width_;
  const std::int64_t ratio = asked_.ratio;
  const std::array<std::int64_t, 3> offset{(first - part.first_bin) * ratio, 0, 0};
  const std::array<std::int64_t, 3> shape{(count - 1) * ratio + 1, height_, width_};
  if (ratio == 1) return part.file->read(kStimulus, offset, shape, std::as_writable_bytes(out));
  static thread_local std::vector<std::uint8_t> stored;
  stored.resize(static_cast<std::size_t>(shape[0] * pixels));
  part.file->read(kStimulus, offset, shape, std::as_writable_bytes(std::span(stored)));
  for (std::int64_t t = 0; t < count; ++t) std::copy_n(stored.data() + t * ratio * pixels, pixels, out.data() + t * pixels);
}

void Session::will_need_frames(std::int64_t first, std::int64_t count) const noexcept {
  const SessionPart& part = part_with(parts_, first);
  const std::array<std::int64_t, 3> offset{(first - part.first_bin) * asked_.ratio, 0, 0};
  const std::array<std::int64_t, 3> shape{(count - 1) * asked_.ratio + 1, height_, width_};
  part.file->will_need(kStimulus, offset, shape);
}

const Series& Session::transformed() const {
  std::call_once(transformed_once_, [this] {
    MR_CHECK(kind_ == StimulusKind::transformed, "this stimulus is read from its file");
    const auto it = std::find_if(asked_.transforms.begin(), asked_.transforms.end(),
                                 [](const Transform& transform) { return transform.expose_as == "stim"; });
    Series all{0, height_ * width_, {}};
    for (const SessionPart& part : parts_) {
      Series movie{part.bins, all.columns, std::vector<float>(static_cast<std::size_t>(part.bins * all.columns))};
      std::vector<std::uint8_t> frames;
      for (std::int64_t t = 0; t < part.bins; t += kFramesAtOnce) {
        const std::int64_t count = std::min(kFramesAtOnce, part.bins - t);
        frames.resize(static_cast<std::size_t>(count * all.columns));
        read_frames(part.first_bin + t, count, frames);
        std::copy(frames.begin(), frames.end(), movie.row(t));
      }
      movie = apply_operations(it->operations, std::move(movie), {height_, width_});
      all.rows += movie.rows;
      all.values.insert(all.values.end(), movie.values.begin(), movie.values.end());
    }
    transformed_ = std::move(all);
  });
  return transformed_;
}

std::span<const float> Session::contrasts() const {
  std::call_once(contrasts_once_, [this] {
    const auto pixels = static_cast<std::size_t>(height_ * width_);
    std::vector<float> contrasts;
    contrasts.reserve(static_cast<std::size_t>(bins_));
    if (kind_ == StimulusKind::transformed) {
      for (std::int64_t t = 0; t < bins_; ++t)
        contrasts.push_back(deviation_of(std::span<const float>(transformed().row(t), pixels)));
    }
    std::vector<std::uint8_t> frames;
    for (const SessionPart& part : parts_) {
      for (std::int64_t t = 0; t < part.bins && kind_ != StimulusKind::transformed; t += kFramesAtOnce) {
        const std::int64_t count = std::min(kFramesAtOnce, part.bins - t);
        frames.resize(static_cast<std::size_t>(count) * pixels);
        read_frames(part.first_bin + t, count, frames);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
          contrasts.push_back(deviation_of(std::span<const std::uint8_t>(frames).subspan(i * pixels, pixels)));
      }
    }
    contrasts_ = std::move(contrasts);
  });
  return contrasts_;
}

std::vector<float> curriculum_weights(const Session& session, double median_contrast, std::int64_t step) {
  const double part = std::min(1.0, static_cast<double>(step) / kStepsOfCurriculum);
  const std::span<const float> contrasts = session.contrasts();
  std::vector<float> weights;
  for (const std::int64_t bin : session.samples(Split::train)) {
    const double contrast = static_cast<double>(contrasts[static_cast<std::size_t>(bin)]) / median_contrast;
    weights.push_back(static_cast<float>(std::min(1.0, 0.5 + 0.5 * part * contrast)));
  }
  return weights;
}

double median_contrast(const Sessions& sessions) {
  std::vector<double> all;
  for (const auto& session : sessions.all) {
    const std::span<const float> contrasts = session->contrasts();
    for (const std::int64_t bin : session->samples(Split::train))
      all.push_back(static_cast<double>(contrasts[static_cast<std::size_t>(bin)]));
  }
  const double median = millrace::median(std::move(all));
  return median > 0 ? median : 1;
}

}  // namespace millrace::recipes::neural_response
