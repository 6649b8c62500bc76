#include "millrace/recipes/cosmology/uvh5_flags.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

using Complex = std::complex<double>;

bool is_finite(const Complex& value) { return std::isfinite(value.real()) && std::isfinite(value.imag()); }

// `count` values from `values` with that stride, a line of the cube. False when none of them is good.
bool interpolate_line(Complex* values, const Value* states, std::int64_t count, std::int64_t stride) {
  const auto next_good = [&](std::int64_t i) {
    while (i < count && states[i * stride] != Value::good) ++i;
    return i;
  };
  std::int64_t before = -1;
  for (std::int64_t after = next_good(0); after < count || before >= 0; after = next_good(after + 1)) {
    for (std::int64_t i = before + 1; i < after; ++i) {
      Complex& value = values[i * stride];
      if (before < 0) {
        value = values[after * stride];
      } else if (after >= count) {
        value = values[before * stride];
      } else {
        const double t = static_cast<double>(i - before) / static_cast<double>(after - before);
        value = values[before * stride] * (1 - t) + values[after * stride] * t;
      }
    }
    before = after;
    if (after >= count) return true;
  }
  return false;
}

std::string place_text(const Axes& axes, std::int64_t b, std::int64_t f, std::int64_t t) {
  const Baseline& baseline = axes.baselines[static_cast<std::size_t>(b)];
  return "baseline " + std::to_string(baseline.first) + "-" + std::to_string(baseline.second) + ", channel " + std::to_string(f) +
         " (" + fixed(axes.freq_hz[static_cast<std::size_t>(f)] / 1e6, 3) + " MHz), time " + std::to_string(t) + " (JD " +
         fixed(axes.times[static_cast<std::size_t>(t)], 5) + ")";
}

// Counts states, turning absent and not finite values into flagged ones; the problems are those that forbid it.
FlagCount count_states(Visibilities& cube, const Axes& axes, const FlagWish& wish, const std::string& what,
                       std::vector<Problem>& problems) {
  FlagCount count;
  std::string absent_place;
  std::string bad_place;
  const Shape& s = cube.shape;
  for (std::size_t i = 0; i < cube.values.size(); ++i) {
    Value& state = cube.states[i];
    const auto place = static_cast<std::int64_t>(i);
    const auto here = [&] { return place_text(axes, place / (s[1] * s[2]), place / s[2] % s[1], place % s[2]); };
    const bool bad =
        state != Value::absent && !is_finite(cube.values[i]) && (state == Value::good || wish.rule == FlagRule::keep);
    if (state == Value::absent) {
      if (count.absent++ == 0) absent_place = here();
      state = Value::flagged;
    } else if (bad) {
      if (count.not_finite++ == 0) bad_place = here();
      state = Value::flagged;
    }
    count.flagged += state == Value::flagged ? 1 : 0;
  }
  count.values = static_cast<std::int64_t>(cube.values.size());
  const bool keeps = wish.rule == FlagRule::keep;
  const auto refuse = [&](std::int64_t bad, const std::string& how, const std::string& place) {
    if (bad == 0 || (wish.fill_bad && !keeps)) return;
    problems.push_back(
        {what + ": " + with_commas(bad) + " of " + with_commas(count.values) + " values " + how, "the first: " + place,
         keeps ? "keep leaves nothing to put there: give --flags=interpolate --fill-bad"
               : "choose baselines, channels or times without them, or give --fill-bad: then they count as flagged"});
  };
  refuse(count.absent, "are in no file", absent_place);
  refuse(count.not_finite, "are not finite and not flagged", bad_place);
  return count;
}

void interpolate(Visibilities& cube, const Axes& axes, const std::string& what, FlagCount& count,
                 std::vector<Problem>& problems) {
  const Shape& s = cube.shape;
  std::vector<std::string> dead;
  for (std::int64_t b = 0; b < s[0]; ++b) {
    const std::int64_t origin = b * s[1] * s[2];
    std::vector<Value> of_time(static_cast<std::size_t>(s[2]), Value::good);
    for (std::int64_t t = 0; t < s[2]; ++t) {
      if (interpolate_line(&cube.values[static_cast<std::size_t>(origin + t)], &cube.states[static_cast<std::size_t>(origin + t)],
                           s[1], s[2]))
        continue;
      of_time[static_cast<std::size_t>(t)] = Value::flagged;
      ++count.spectra;
    }
    if (std::find(of_time.begin(), of_time.end(), Value::good) == of_time.end()) {
      const Baseline& baseline = axes.baselines[static_cast<std::size_t>(b)];
      dead.push_back(std::to_string(baseline.first) + "-" + std::to_string(baseline.second));
      continue;
    }
    for (std::int64_t f = 0; f < s[1]; ++f)
      interpolate_line(&cube.values[static_cast<std::size_t>(origin + f * s[2])], of_time.data(), s[2], 1);
  }
  if (!dead.empty())
    problems.push_back({what + ": " + (dead.size() == 1 ? "baseline " : "baselines ") + joined(dead, ", ") +
                            " flagged throughout: there is nothing to interpolate from",
                        "/Data/flags", "leave them out with --baselines or --antennas, or give --flags=zero"});
}

}  // namespace

FlagCount apply_flags(Visibilities& cube, const Axes& axes, const FlagWish& wish, const std::string& what,
                      std::vector<Problem>& problems) {
  const std::size_t before = problems.size();
  FlagCount count = count_states(cube, axes, wish, what, problems);
  const double share = static_cast<double>(count.flagged) / static_cast<double>(std::max<std::int64_t>(1, count.values));
  if (share > wish.most)
    problems.push_back({what + ": " + percent(share, 1) + " of the values are flagged, more than " + percent(wish.most, 1),
                        "/Data/flags", "choose other channels (--channels, --band), times or baselines, or raise --max-flagged"});
  if (problems.size() > before || count.flagged == 0) return count;
  if (wish.rule == FlagRule::interpolate) interpolate(cube, axes, what, count, problems);
  if (wish.rule == FlagRule::zero) {
    for (std::size_t i = 0; i < cube.values.size(); ++i) {
      if (cube.states[i] == Value::flagged) cube.values[i] = 0;
    }
  }
  return count;
}

std::string text_of_flags(const FlagCount& count, const FlagWish& wish) {
  if (count.flagged == 0) return "none";
  std::string text = percent(static_cast<double>(count.flagged) / static_cast<double>(count.values), 2) + " of the values (" +
                     with_commas(count.flagged) + ") ";
  text += wish.rule == FlagRule::interpolate ? "interpolated" : wish.rule == FlagRule::zero ? "set to zero" : "kept as they are";
  if (count.spectra > 0)
    text += ", among them " + with_commas(count.spectra) + (count.spectra == 1 ? " whole spectrum" : " whole spectra") +
            " along time";
  if (count.absent > 0) text += "; " + with_commas(count.absent) + " are in no file";
  if (count.not_finite > 0) text += "; " + with_commas(count.not_finite) + " are not finite";
  return text;
}

}  // namespace millrace::recipes::cosmology::uvh5
