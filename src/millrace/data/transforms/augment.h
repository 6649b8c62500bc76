// Augmentation: steps over one array of a sample, drawn anew at each read from the sample's own random numbers, after the cache.
//
//   // Pictures in memory: one byte a pixel and channel, and a label each.
//   const auto all = std::make_shared<data::MemorySource>(std::vector{
//       data::memory_array("image", {3, 32, 32}, pixels), data::memory_array("label", {}, labels)});
//   const data::Step scaled = data::normalise({0.49F, 0.48F, 0.45F}, {0.25F, 0.24F, 0.26F});
//   if (split == Split::validation)
//     return data::single(data::augment(data::random_subset(all, {.from = 0.9}), {"image"}, {scaled}));
//   return data::single(data::augment(data::random_subset(all, {.to = 0.9}), {"image"},
//       {data::random_crop({32, 32}, {.margin = {4, 4}, .border = data::Border::reflect}), data::random_flip({-1}), scaled}));
//
// An array has the axes that it has in a batch, without the batch axis: channels, then rows and columns of a picture [C, H, W];
// channels, then depth, rows and columns of a volume [C, D, H, W]. Sizes of crops and margins apply to the last axes, so the same
// steps work for pictures, volumes, arrays without channels and signals [C, T]. (ImageSource with normalise=false puts channels
// last.) Axes are counted from the end: -1 columns (left and right), -2 rows (up and down), -3 depth.
//
// Steps run on the reader threads: the right place for steps that shrink data (crop), and for all steps while the readers keep
// up. The comments below say which steps could run on the device instead, for the whole batch in Recipe::prepare(): worth doing
// if log lines show that training waits for data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// One step: a function of an array and random numbers. Const and thread-safe. Derive from this class to write your own step.
class Augmentation {
 public:
  virtual ~Augmentation() = default;
  // The result's field for the input `field`: dtype and shape may change, the name stays. Called once, when the source is made.
  // ConfigError naming the field if the step does not support it.
  [[nodiscard]] virtual Field made_of(const Field& field) const = 0;
  // The step with its parameters, for the fingerprint: "random_flip -1 p 0.5".
  [[nodiscard]] virtual std::string text() const = 0;
  // True if apply() accepts the same memory for `from` and `to` when made_of(field) equals `field`.
  [[nodiscard]] virtual bool works_in_place() const { return false; }
  // Computes all of `to`, described by made_of(field), from `from`, described by `field`. `random` is at the beginning of the
  // stream for this step and sample.
  virtual void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const = 0;
};

using Step = std::shared_ptr<const Augmentation>;

// Returns `source` with the steps applied in turn to each of `fields`; other fields stay unchanged. All fields of one call get
// the same random numbers: a picture and its mask of the same height and width are cropped and flipped alike. Wrap the result in
// another call for steps on one field only (noise on the picture), or for separate draws. ConfigError for a missing field, or one
// that a step does not support.
[[nodiscard]] std::shared_ptr<const Source> augment(std::shared_ptr<const Source> source, const std::vector<std::string>& fields,
                                                    const std::vector<Step>& steps);

enum class Border : std::uint8_t {
  constant,  // Padding::value
  reflect    // the array mirrored at its edge without repeating it: d c b [a b c d] c b a; less than the axis is long
};

struct Padding {
  Shape margin = {};  // per last axis, added on both sides; empty: none
  Border border = Border::constant;
  double value = 0;  // must fit the dtype
};

// Cuts a part of `size` (one size per last axis), placed uniformly within the array and its margins; any dtype. At most as large
// as the array with its margins.
[[nodiscard]] Step random_crop(Shape size, Padding padding = {});
// Cuts the central part; of two candidates, the first.
[[nodiscard]] Step centre_crop(Shape size, Padding padding = {});
// Adds the margins; any dtype.
[[nodiscard]] Step pad(Padding padding);

// Reverses each of `axes` with `probability`, by separate draws; any dtype. Could run on the device: at::flip of the drawn rows.
[[nodiscard]] Step random_flip(std::vector<std::int64_t> axes, double probability = 0.5);

// Shifts each of `axes` cyclically by 0 to its size - 1 places. For periodic arrays (angles, periodic boxes); any dtype. Could
// run on the device: at::roll.
[[nodiscard]] Step random_roll(std::vector<std::int64_t> axes);

// Computes f32 (x - mean) / deviation, with x = value / 255 for u8 and x = value for f32: one mean and deviation per index of the
// first axis, the channels, or one for all. Could run on the device, where u8 means a fourth of the bytes to copy:
// (batch["image"].to(at::kFloat) / 255 - mean) / deviation.
[[nodiscard]] Step normalise(std::vector<float> mean, std::vector<float> deviation);

// Adds to each value of an f32 array a normal number of mean 0 and the given standard deviation. Box and Muller, "A note on the
// generation of random normal deviates" (1958), from Philox blocks: 24 bits, so no number is beyond 5.9 deviations. About 15 ns
// per value, far more than the other steps: the first to move if training waits for data. Could run on the device:
// at::randn_like, with the device's random numbers.
[[nodiscard]] Step gaussian_noise(double deviation);

}  // namespace millrace::data
