#include "recipes/cosmology/originals/uvh5_convert.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/device/free_memory.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/originals/uvh5_parts.h"
#include "recipes/cosmology/sky_problems.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

constexpr std::int64_t kFilesWanted = 10;
constexpr std::int64_t kShortest = 8;  // smallest candidate of chosen_length() for the number of times in a file
constexpr double kGapInChannels = 1.5;
constexpr std::int64_t kLargestBatch = 4;
constexpr std::int64_t kUsualComponents = 11;

struct Role {
  std::string name;  // "foreground" or "signal"
  std::vector<Header> files;
  Axes axes;
  double sum_of_squares = 0;
  std::int64_t values = 0, written = 0;
  [[nodiscard]] double rms() const { return values > 0 ? std::sqrt(sum_of_squares / static_cast<double>(values)) : 0; }
};

std::vector<Header> open_files(const std::vector<std::filesystem::path>& paths, std::vector<Problem>& problems) {
  const auto failed = [&](std::size_t, const DataError& error) { problems.push_back(error.message()); };
  std::vector<Header> headers;
  for (const SkyFile& file : hdf5::File::open_all(paths, {}, failed)) {
    if (!file) continue;
    if (auto header = read_header(file, problems)) headers.push_back(std::move(*header));
  }
  return headers;
}

// Chooses the number of times in a file. Candidates are the multiples of 4, at least kShortest, that divide the number of all
// times. Chooses the largest candidate that gives enough files, or the smallest candidate if no candidate does. Without a
// candidate, a file has all times.
std::int64_t chosen_length(std::int64_t times, std::int64_t polarisations) {
  std::int64_t shortest = times;
  for (std::int64_t length = times; length >= kShortest; --length) {
    if (times % length != 0 || length % 4 != 0) continue;
    shortest = length;
    if (times / length * polarisations >= kFilesWanted) break;
  }
  return shortest;
}

std::string size_text(double size, const std::string& unit) { return significant(size, 4) + (unit.empty() ? "" : " " + unit); }

class Converter {
 public:
  Converter(const Wish& wish, const std::filesystem::path& out) : wish_(wish), out_(out) {}

  Converted run() {
    for (const std::string& text : wish_.left_out) add_notice("left out", text);
    open(foreground_, wish_.foreground);
    open(signal_, wish_.signal);
    compare();
    refuse_all(problems_);
    const Role& first = foreground_.files.empty() ? signal_ : foreground_;
    choose_length(first.axes);
    for (Role* role : {&foreground_, &signal_}) write(*role);
    refuse_all(problems_);
    if (std::max(foreground_.axes.polarisations.size(), signal_.axes.polarisations.size()) > 1)
      add_notice("split",
                 "each polarisation becomes separate files of the same sky and times, so a run may train on one polarisation and "
                 "validate with another; --pol chooses a single one");
    if (wish_.made_signal_rms) make_signals();
    if (foreground_.written > 0 && signal_.written > 0) write_config(first.axes);
    return std::move(converted_);
  }

 private:
  void add_notice(const std::string& word, const std::string& line) { converted_.notices.emplace_back(word, line); }

  void open(Role& role, const std::vector<std::filesystem::path>& paths) {
    if (paths.empty()) return;
    role.files = open_files(paths, problems_);
    if (role.files.empty()) return;
    auto axes = axes_of(role.files, wish_.selection, problems_);
    if (!axes) return;
    role.axes = std::move(*axes);
    for (const Header& file : role.files) add_notice(role.name, printable(file.name()) + "  " + header_text(file));
    for (const std::string& text : role.axes.notices) add_notice("chosen", text);
    add_notice("taken", std::to_string(role.axes.baselines.size()) + " baselines, " +
                            with_commas(static_cast<std::int64_t>(role.axes.freq_hz.size())) + " channels, " +
                            with_commas(static_cast<std::int64_t>(role.axes.times.size())) + " times, polarisations " +
                            joined(role.axes.polarisations, " ", polarisation_name));
    note_gaps(role.axes);
  }

  void note_gaps(const Axes& axes) {
    if (axes.freq_hz.size() < 3) return;
    std::vector<double> steps;
    for (std::size_t i = 1; i < axes.freq_hz.size(); ++i) steps.push_back(axes.freq_hz[i] - axes.freq_hz[i - 1]);
    std::vector<double> sorted = steps;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    const double usual = sorted[sorted.size() / 2];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i] > kGapInChannels * usual)
        add_notice("gap", fixed(steps[i] / 1e6, 3) + " MHz between channels " + std::to_string(i) + " and " +
                              std::to_string(i + 1) + ": the network treats them as neighbours");
    }
  }

  void compare() {
    if (foreground_.files.empty() || signal_.files.empty() || !problems_.empty()) return;
    const Axes& a = foreground_.axes;
    const Axes& b = signal_.axes;
    const auto refuse = [&](const std::string& what, const std::string& next) {
      problems_.push_back({what, signal_.files.front().file->path().string(), next});
    };
    if (a.baselines.size() != b.baselines.size())
      refuse("the signal has " + std::to_string(b.baselines.size()) + " baselines, the foreground " +
                 std::to_string(a.baselines.size()),
             "choose the same baselines of both with --baselines or --antennas");
    const double width = a.freq_hz.size() > 1 ? a.freq_hz[1] - a.freq_hz[0] : 1;
    bool same = a.freq_hz.size() == b.freq_hz.size();
    for (std::size_t i = 0; same && i < a.freq_hz.size(); ++i) same = std::abs(a.freq_hz[i] - b.freq_hz[i]) < 0.01 * width;
    if (!same)
      refuse("the signal has " + std::to_string(b.freq_hz.size()) + " channels from " + fixed(b.freq_hz.front() / 1e6, 3) +
                 " MHz, the foreground " + std::to_string(a.freq_hz.size()) + " from " + fixed(a.freq_hz.front() / 1e6, 3) +
                 " MHz",
             "choose the same channels of both with --band or --channels");
    if (a.baselines.size() == b.baselines.size() && !turn_like(signal_.axes, a))
      add_notice("pairing",
                 "signal and foreground have different antennas: baselines are paired in the order of their antennas' numbers; "
                 "the first pair is " +
                     text_of(b.baselines.front()) + " with " + text_of(a.baselines.front()));
    if (a.unit != b.unit)
      refuse("the signal is in " + quoted(b.unit) + ", the foreground in " + quoted(a.unit), "convert both to the same unit");
  }

  void choose_length(const Axes& axes) {
    const auto times = static_cast<std::int64_t>(axes.times.size());
    const auto polarisations = static_cast<std::int64_t>(axes.polarisations.size());
    length_ = wish_.times_per_file < 0    ? times
              : wish_.times_per_file == 0 ? chosen_length(times, polarisations)
                                          : wish_.times_per_file;
    for (const Role* role : {&foreground_, &signal_}) {
      if (role->files.empty()) continue;
      const auto has = static_cast<std::int64_t>(role->axes.times.size());
      if (has < length_)
        problems_.push_back(
            {"the " + role->name + " has " + std::to_string(has) + " times, but a file needs " + std::to_string(length_),
             "--times-per-file", "give a smaller number"});
      else if (has % length_ != 0)
        add_notice("left out", "the last " + std::to_string(has % length_) + " of " + std::to_string(has) + " times of the " +
                                   role->name + ", too few for a file of " + std::to_string(length_));
    }
    refuse_all(problems_);
  }

  // The number of baselines of this role that are converted in one pass over the files.
  std::int64_t baselines_of_a_pass(const Role& role) {
    const std::uint64_t memory = wish_.memory > 0 ? wish_.memory : device::available_memory_bytes() / 4;
    const auto all = static_cast<std::int64_t>(role.axes.baselines.size());
    const std::int64_t at_once = std::min(all, baselines_at_once(role.axes, memory));
    if (at_once < all)
      add_notice("memory", "the " + role.name + " is read " + std::to_string((all + at_once - 1) / at_once) +
                               " times for each polarisation, " + with_commas(at_once) +
                               " baselines at a time, because all baselines take " +
                               human_bytes(static_cast<double>(*element_count(role.axes.shape()) * kBytesOfAValue)) +
                               " and only " + human_bytes(static_cast<double>(memory)) + " are available");
    return at_once;
  }

  void refuse_twice(const Role& role, std::int64_t polarisation, std::span<const std::int64_t> twice) {
    for (std::size_t i = 0; i < twice.size(); ++i) {
      if (twice[i] == 0) continue;
      problems_.push_back({role.files[i].name() + ": " + with_commas(twice[i]) + " of its values of " +
                               polarisation_name(polarisation) + " are also in an earlier file, or twice in this file",
                           role.files[i].file->path().string(),
                           "give each value only once: leave out this file or the earlier file"});
    }
  }

  void write(Role& role) {
    if (role.files.empty()) return;
    Fs::real().create_directories(out_ / role.name);
    const auto all = static_cast<std::int64_t>(role.axes.baselines.size());
    const std::int64_t at_once = baselines_of_a_pass(role);
    for (const std::int64_t polarisation : role.axes.polarisations) {
      const std::string name = polarisation_name(polarisation);
      std::vector<std::int64_t> twice(role.files.size(), 0);
      FlagWork flags(wish_.flags, role.name + " " + name);
      Parts parts(out_ / role.name, name, role.axes, length_);
      for (std::int64_t first = 0; first < all; first += at_once) {
        const Axes axes = of_baselines(role.axes, first, std::min(at_once, all - first));
        Visibilities block = read_visibilities(role.files, axes, polarisation, twice);
        flags.apply(block, axes);
        for (const auto& value : block.values) role.sum_of_squares += std::norm(value);
        role.values += static_cast<std::int64_t>(block.values.size());
        parts.add(block);
      }
      refuse_twice(role, polarisation, twice);
      const FlagCount count = flags.finish(problems_);
      if (!problems_.empty()) continue;  // continues with the next polarisation, which may have further problems to report
      add_notice("flags", role.name + " " + name + ": " + text_of_flags(count, wish_.flags));
      role.written += parts.write();
    }
    if (!problems_.empty()) return;
    const Shape shape = role.axes.shape();
    add_notice(role.name, std::to_string(role.written) + (role.written == 1 ? " file of " : " files of ") +
                              to_text({shape[0], shape[1], length_}) + " baselines, channels, times; rms " +
                              size_text(role.rms(), role.axes.unit));
  }

  void make_signals() {
    const Shape shape = foreground_.axes.shape();
    const SkySize size{.baselines = shape[0], .frequencies = shape[1], .ra = length_};
    Fs::real().create_directories(out_ / "signal");
    Axes axes = foreground_.axes;
    axes.wide = false;
    axes.times.resize(static_cast<std::size_t>(length_));
    const double factor = *wish_.made_signal_rms / kSignalRms;
    for (std::int64_t file = 0; file < wish_.made_signals; ++file) {
      Visibilities cube{.shape = size.shape(), .values = sky_signal(size, wish_.seed, file), .states = {}};
      for (auto& value : cube.values) value *= factor;
      write_part(out_ / "signal" / ("made-" + padded(file) + ".h5"), axes, 0, length_, stored(cube, axes, 0, length_));
    }
    signal_.written = wish_.made_signals;
    signal_.sum_of_squares = *wish_.made_signal_rms * *wish_.made_signal_rms;
    signal_.values = 1;
    add_notice("signal",
               std::to_string(wish_.made_signals) + " generated files, rms " + size_text(*wish_.made_signal_rms, axes.unit));
  }

  void write_config(const Axes& axes) {
    const Shape shape = axes.shape();
    const std::int64_t training = std::max<std::int64_t>(1, signal_.written * 3 / 4);
    Json recipe = {
        {"ra_keep", length_}, {"split", 1}, {"add_noise", false}, {"scale", signal_.rms() > 0 ? 1 / signal_.rms() : 1.0}};
    if (shape[1] <= kUsualComponents) recipe["n_fg"] = std::max<std::int64_t>(1, shape[1] / 2);
    std::vector<std::string> lengths;
    for (const auto& [count, what] : {std::pair{shape[0], "baselines"}, {shape[1], "channels"}, {length_, "times"}}) {
      if (count % 4 != 0) lengths.push_back(std::to_string(count) + " " + what + " to " + std::to_string((count + 3) / 4 * 4));
    }
    if (!lengths.empty()) {
      recipe["pad"] = "mirror";
      add_notice("padding",
                 joined(lengths, ", ") +
                     ": the run pads by mirroring (recipe.pad), and leaves the padding out of loss, metrics and output");
    }
    converted_.config = {{"data", {{"dir", "."}, {"batch_size", std::min(kLargestBatch, training)}}}, {"recipe", recipe}};
    write_atomically(Fs::real(), out_ / "train.json", converted_.config.dump(2) + "\n");
  }

  const Wish& wish_;
  const std::filesystem::path& out_;
  std::vector<Problem> problems_;
  Role foreground_{.name = "foreground", .files = {}, .axes = {}};
  Role signal_{.name = "signal", .files = {}, .axes = {}};
  std::int64_t length_ = 0;  // number of times in a file
  Converted converted_;
};

}  // namespace

Converted convert(const Wish& wish, const std::filesystem::path& out) { return Converter(wish, out).run(); }

}  // namespace millrace::recipes::cosmology::uvh5
