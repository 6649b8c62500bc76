// `millrace uvh5`: reads the command's arguments and prints its output.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "millrace/base/format.h"
#include "millrace/base/shell_word.h"
#include "millrace/config/arguments.h"
#include "millrace/telemetry/console.h"
#include "millrace/train/run_folder/sample_data.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/originals/uvh5_convert.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::string_view kUvh5Help =
    R"(usage: millrace uvh5 FILE|FOLDER... --out DIR [--signal FILE|FOLDER | --make-signal RMS] [options]

Makes the folder of a cosmology run from uvh5 files (pyuvdata's format for an interferometer's visibilities). Files are joined along
times, channels, baselines and polarisations; their rows may be in any order. Each polarisation and stretch of times becomes a
separate file in DIR/foreground or DIR/signal; DIR/train.json is the config to train with.

  --out DIR             a new or empty folder
  --signal FILE|FOLDER  uvh5 files of the signal alone; the selection applies to them too; may be given several times
  --make-signal RMS     generate signals whose truth is known; RMS is their root mean square in the unit of the files
  --signals N           number of generated signals (default 40)
  --seed N              seed of the generated signals (default 0)
Selection (default: everything except autos)
  --pol xx,yy           polarisations
  --baselines 0-1,0-2   pairs of antennas
  --antennas 0,1,2      baselines between these antennas
  --autos               also baselines between an antenna and itself
  --band LOW:HIGH       channels inside this band, MHz
  --channels A:B        channels A to B - 1, counted from 0 (after --band)
  --times A:B           times A to B - 1, counted from 0
  --times-per-file N    times in a sample; "all": one sample per polarisation. Default: ten files, if there are enough times
Flagged values
  --flags RULE          interpolate (default; along frequency, or along time for whole spectra), zero, or keep = no change
  --max-flagged SHARE   largest share of flagged values in a polarisation; more are an error (default 0.5)
  --fill-bad            values that no file has, or that are not finite, count as flagged; otherwise they are an error
)";

using uvh5::Baseline;
using uvh5::FlagRule;
using uvh5::Part;

// Parses the arguments of the command into a Wish. All mistakes are collected in one list.
class Uvh5Words {
 public:
  explicit Uvh5Words(std::span<const std::string> words) : arguments_(words) {}

  struct Result {
    uvh5::Wish wish;
    std::filesystem::path out;
  };

  Result take() {
    Result result;
    uvh5::Wish& wish = result.wish;
    if (const auto out = arguments_.value("out")) result.out = *out;
    wish.signal = paths_of(arguments_.values({"signal"}), wish.left_out);
    if (const auto rms = number("make-signal", "the signal's rms in the unit of the files' values, such as 0.01"))
      wish.made_signal_rms = rms;
    wish.made_signals = arguments_.integer("signals", wish.made_signals, 1);
    wish.seed = static_cast<std::uint64_t>(arguments_.integer("seed", 0, 0));
    take_selection(wish.selection);
    take_length(wish);
    take_flags(wish.flags);
    std::vector<std::string> words;
    while (auto word = arguments_.positional()) words.push_back(std::move(*word));
    wish.foreground = paths_of(words, wish.left_out);
    check(result);
    arguments_.finish("uvh5");
    return result;
  }

 private:
  void refuse(const std::string& flag, const std::string& text, const std::string& what, const std::string& next) {
    arguments_.problems().push_back({"--" + flag + " is " + quoted(text) + ", " + what, "flag --" + flag + "=" + text, next});
  }

  std::vector<std::filesystem::path> paths_of(const std::vector<std::string>& words, std::vector<std::string>& left_out) {
    std::vector<std::filesystem::path> all;
    for (const std::string& word : words) {
      const auto files = uvh5::files_of(word, left_out);
      if (files.empty())
        arguments_.problems().push_back({"the folder holds no .uvh5 file", quoted(word), "name the files themselves"});
      all.insert(all.end(), files.begin(), files.end());
    }
    return all;
  }

  static std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
      if (c == separator) {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    return parts;
  }

  static std::optional<std::int64_t> whole(const std::string& text) {
    char* end = nullptr;
    const bool digits = !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
    const long long value = digits ? std::strtoll(text.c_str(), &end, 10) : 0;
    return digits ? std::optional<std::int64_t>(value) : std::nullopt;
  }

  static std::optional<double> real(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && std::isfinite(value) ? std::optional(value) : std::nullopt;
  }

  std::optional<double> number(const std::string& flag, const std::string& wanted) {
    const auto text = arguments_.value(flag);
    if (!text) return std::nullopt;
    const auto value = real(*text);
    if (!value || *value <= 0) refuse(flag, *text, "no number above zero", "give " + wanted);
    return value;
  }

  std::vector<std::string> list(const std::string& flag) {
    std::vector<std::string> all;
    for (const std::string& text : arguments_.values({flag})) {
      for (std::string& word : split(text, ',')) all.push_back(std::move(word));
    }
    return all;
  }

  Part part(const std::string& flag) {
    const auto text = arguments_.value(flag);
    if (!text) return {};
    const auto words = split(*text, ':');
    const auto begin = words.size() == 2 && words[0].empty() ? std::optional<std::int64_t>(0) : whole(words[0]);
    const auto end = words.size() == 2 && words[1].empty() ? std::optional<std::int64_t>(-1) : whole(words.back());
    if (words.size() == 2 && begin && end) return {*begin, *end};
    refuse(flag, *text, "not BEGIN:END", "write for example --" + flag + "=0:512; either end may be left out");
    return {};
  }

  void take_selection(uvh5::Selection& selection) {
    for (const std::string& word : list("pol")) {
      if (const auto pol = uvh5::polarisation_number(word)) {
        selection.polarisations.push_back(*pol);
      } else {
        refuse("pol", word, "no polarisation", "they are xx yy xy yx rr ll rl lr pi pq pu pv");
      }
    }
    for (const std::string& word : list("baselines")) {
      const auto ends = split(word, '-');
      const auto a = whole(ends[0]);
      const auto b = whole(ends.back());
      if (ends.size() == 2 && a && b) {
        selection.baselines.emplace_back(*a, *b);
      } else {
        refuse("baselines", word, "no pair of antennas", "write for example --baselines=0-1,0-2");
      }
    }
    for (const std::string& word : list("antennas")) {
      if (const auto antenna = whole(word)) {
        selection.antennas.push_back(*antenna);
      } else {
        refuse("antennas", word, "no antenna's number", "write for example --antennas=0,1,2");
      }
    }
    selection.autos = arguments_.flag("autos");
    selection.channels = part("channels");
    selection.times = part("times");
    if (const auto text = arguments_.value("band")) {
      const auto words = split(*text, ':');
      const auto low = real(words[0]);
      const auto high = real(words.back());
      if (words.size() == 2 && low && high && *low < *high) {
        selection.band_mhz = {*low, *high};
      } else {
        refuse("band", *text, "not LOW:HIGH", "write for example --band=120:180, in MHz");
      }
    }
  }

  void take_length(uvh5::Wish& wish) {
    const auto text = arguments_.value("times-per-file");
    if (!text) return;
    const auto length = *text == "all" ? std::optional<std::int64_t>(-1) : whole(*text);
    if (length && *length != 0) {
      wish.times_per_file = *length;
    } else {
      refuse("times-per-file", *text, "no number of times", "give 1 or more, or all");
    }
  }

  void take_flags(uvh5::FlagWish& flags) {
    if (const auto text = arguments_.value("flags")) {
      if (*text == "interpolate") {
        flags.rule = FlagRule::interpolate;
      } else if (*text == "zero") {
        flags.rule = FlagRule::zero;
      } else if (*text == "keep") {
        flags.rule = FlagRule::keep;
      } else {
        refuse("flags", *text, "no rule", "it is interpolate, zero or keep");
      }
    }
    if (const auto text = arguments_.value("max-flagged")) {
      const auto share = real(*text);
      if (share && *share >= 0 && *share <= 1) {
        flags.most = *share;
      } else {
        refuse("max-flagged", *text, "no share", "give a number from 0 to 1");
      }
    }
    flags.fill_bad = arguments_.flag("fill-bad");
  }

  void check(const Result& result) {
    auto& problems = arguments_.problems();
    const uvh5::Wish& wish = result.wish;
    if (result.out.empty()) problems.push_back({"--out is missing", "millrace uvh5", "name a new folder: --out=sky"});
    if (wish.foreground.empty() && wish.signal.empty() && problems.empty())
      problems.push_back({"no file is named", "millrace uvh5", "name uvh5 files, or a folder of them"});
    if (wish.made_signal_rms && !wish.signal.empty())
      problems.push_back({"--signal and --make-signal exclude each other", "millrace uvh5", "leave one out"});
    if (wish.made_signal_rms && wish.foreground.empty())
      problems.push_back(
          {"--make-signal needs files of the foreground", "millrace uvh5", "name uvh5 files, or a folder of them"});
    if (!result.out.empty() && has_sample_data(Fs::real(), result.out))
      problems.push_back(
          {"the folder is not empty", "--out=" + result.out.string(), "choose another folder, or remove this one first"});
  }

  config::Arguments arguments_;
};

void print_converted(const uvh5::Converted& converted, const std::filesystem::path& out) {
  constexpr std::size_t kColumn = 12;
  std::string before;
  for (const auto& [word, line] : converted.notices) {
    std::string head = word == before ? "" : word;
    head.resize(std::max(kColumn, head.size() + 1), ' ');
    std::cout << head << line << "\n";
    before = word;
  }
  if (converted.config.empty()) {
    std::cout << "next        give FILE... together with --signal or --make-signal: a run needs foreground and signal\n";
  } else {
    std::cout << "next        millrace train cosmology --config " << shell_word((out / "train.json").string()) << "\n";
  }
}

}  // namespace

int uvh5_command(std::span<const std::string> words) {
  if (words.empty() || std::find(words.begin(), words.end(), "--help") != words.end() ||
      std::find(words.begin(), words.end(), "-h") != words.end()) {
    std::cout << kUvh5Help;
    return words.empty() ? 2 : 0;
  }
  const auto [wish, out] = Uvh5Words(words).take();
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  uvh5::Converted converted;
  const bool made = make_sample_data(
      Fs::real(), out,
      {.make = [&wish = wish, &converted](const std::filesystem::path& folder) { converted = uvh5::convert(wish, folder); },
       .begin = {},
       .report = [&](const std::string& text) { console.notice(text); }});
  if (!made)
    throw UsageError(
        {"another process has made the folder meanwhile", "--out=" + out.string(), "choose another folder with --out"});
  print_converted(converted, out);
  return 0;
}

}  // namespace millrace::recipes::cosmology
