#include "recipes/cosmology/originals/uvh5_flags.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

using Complex = std::complex<double>;

bool is_finite(const Complex& value) { return std::isfinite(value.real()) && std::isfinite(value.imag()); }

// Replaces the bad values among `count` values by interpolation. The values are `stride` elements apart. Returns false if all
// these values are bad.
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
  return "baseline " + text_of(axes.baselines[static_cast<std::size_t>(b)]) + ", channel " + std::to_string(f) + " (" +
         fixed(axes.freq_hz[static_cast<std::size_t>(f)] / 1e6, 3) + " MHz), time " + std::to_string(t) + " (JD " +
         fixed(axes.times[static_cast<std::size_t>(t)], 5) + ")";
}

}  // namespace

// Counts missing and non-finite values and marks them as flagged. If such values are not allowed, finish() reports them.
void FlagWork::count_states(Visibilities& block, const Axes& axes) {
  const Shape& s = block.shape;
  for (std::size_t i = 0; i < block.values.size(); ++i) {
    Value& state = block.states[i];
    const auto place = static_cast<std::int64_t>(i);
    const auto here = [&] { return place_text(axes, place / (s[1] * s[2]), place / s[2] % s[1], place % s[2]); };
    const bool bad =
        state != Value::absent && !is_finite(block.values[i]) && (state == Value::good || wish_.rule == FlagRule::keep);
    if (state == Value::absent) {
      if (count_.absent++ == 0) absent_place_ = here();
      state = Value::flagged;
    } else if (bad) {
      if (count_.not_finite++ == 0) bad_place_ = here();
      state = Value::flagged;
    }
    count_.flagged += state == Value::flagged ? 1 : 0;
  }
  count_.values += static_cast<std::int64_t>(block.values.size());
}

void FlagWork::interpolate(Visibilities& block, const Axes& axes) {
  const Shape& s = block.shape;
  for (std::int64_t b = 0; b < s[0]; ++b) {
    const std::int64_t origin = b * s[1] * s[2];
    std::vector<Value> of_time(static_cast<std::size_t>(s[2]), Value::good);
    for (std::int64_t t = 0; t < s[2]; ++t) {
      if (interpolate_line(&block.values[static_cast<std::size_t>(origin + t)],
                           &block.states[static_cast<std::size_t>(origin + t)], s[1], s[2]))
        continue;
      of_time[static_cast<std::size_t>(t)] = Value::flagged;
      ++count_.spectra;
    }
    if (std::find(of_time.begin(), of_time.end(), Value::good) == of_time.end()) {
      dead_.push_back(text_of(axes.baselines[static_cast<std::size_t>(b)]));
      continue;
    }
    for (std::int64_t f = 0; f < s[1]; ++f)
      interpolate_line(&block.values[static_cast<std::size_t>(origin + f * s[2])], of_time.data(), s[2], 1);
  }
}

void FlagWork::apply(Visibilities& block, const Axes& axes) {
  const std::int64_t before = count_.flagged;
  count_states(block, axes);
  if (count_.flagged == before) return;
  if (wish_.rule == FlagRule::interpolate) interpolate(block, axes);
  if (wish_.rule != FlagRule::zero) return;
  for (std::size_t i = 0; i < block.values.size(); ++i) {
    if (block.states[i] == Value::flagged) block.values[i] = 0;
  }
}

FlagCount FlagWork::finish(std::vector<Problem>& problems) const {
  const std::size_t before = problems.size();
  const bool keeps = wish_.rule == FlagRule::keep;
  const auto refuse = [&](std::int64_t bad, const std::string& how, const std::string& place) {
    if (bad == 0 || (wish_.fill_bad && !keeps)) return;
    problems.push_back(
        {what_ + ": " + with_commas(bad) + " of " + with_commas(count_.values) + " values " + how, "the first: " + place,
         keeps ? "--flags=keep has no value to write for them: give --flags=interpolate --fill-bad"
               : "choose baselines, channels or times without them, or give --fill-bad: then they count as flagged"});
  };
  refuse(count_.absent, "are in no file", absent_place_);
  refuse(count_.not_finite, "are not finite and not flagged", bad_place_);
  const double share = static_cast<double>(count_.flagged) / static_cast<double>(std::max<std::int64_t>(1, count_.values));
  if (share > wish_.most)
    problems.push_back({what_ + ": " + percent(share, 1) + " of the values are flagged, more than " + percent(wish_.most, 1),
                        "/Data/flags", "choose other channels (--channels, --band), times or baselines, or raise --max-flagged"});
  if (problems.size() == before && !dead_.empty())
    problems.push_back({what_ + ": " + (dead_.size() == 1 ? "baseline " : "baselines ") + joined(dead_, ", ") +
                            (dead_.size() == 1 ? " is" : " are") +
                            " flagged completely, so there is no value to interpolate from",
                        "/Data/flags", "leave them out with --baselines or --antennas, or give --flags=zero"});
  return count_;
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
