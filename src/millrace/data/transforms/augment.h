// Augmentation: steps that change an array of a sample. Each read draws them anew, from the sample's own random numbers, after
// the cache.
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
// An array has the axes that it has in a batch, without the batch axis: a picture [C, H, W] has channels, rows and columns; a
// volume [C, D, H, W] has channels, depth, rows and columns. Sizes of crops and margins are those of the last axes, so the same
// steps work for pictures, volumes, arrays without channels and signals [C, T]. (ImageSource with normalise=false puts channels
// last.) Axes are counted from the end: -1 columns (left and right), -2 rows (up and down), -3 depth.
//
// Steps run on the reader threads. That is best for steps that make data smaller (crop), and good for all steps if the readers
// are fast enough. The comments below say which steps could run on the device instead, for the whole batch in
// Recipe::prepare(). That is worthwhile if log lines show that training waits for data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// A step: a function of an array and random numbers. Const and thread-safe. To write your own step, derive from this class.
class Augmentation {
 public:
  virtual ~Augmentation() = default;
  // Returns the field that the step makes of the input `field`: dtype and shape may change, the name stays. Called once, when
  // the source is made. Throws a ConfigError with the field's name if the step does not support the field.
  [[nodiscard]] virtual Field made_of(const Field& field) const = 0;
  // Returns the step and its parameters for the fingerprint, such as "random_flip -1 p 0.5".
  [[nodiscard]] virtual std::string text() const = 0;
  // Returns true if apply() accepts the same memory for `from` and `to`, provided that made_of(field) equals `field`.
  [[nodiscard]] virtual bool works_in_place() const { return false; }
  // Computes all of `to` from `from`. `field` describes `from`, and made_of(field) describes `to`. `random` is the beginning of
  // the stream for this step and sample.
  virtual void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const = 0;
};

using Step = std::shared_ptr<const Augmentation>;

// Returns a source whose samples are those of `source` with the steps applied, in order, to each of `fields`; other fields stay
// unchanged. All fields of a call get the same random numbers, so a picture and its mask of the same height and width are
// cropped and flipped alike. For steps on one field only (noise on the picture), or for separate draws, wrap the result in
// another call. Throws ConfigError for a missing field, or a field that a step does not support.
[[nodiscard]] std::shared_ptr<const Source> augment(std::shared_ptr<const Source> source, const std::vector<std::string>& fields,
                                                    const std::vector<Step>& steps);

enum class Border : std::uint8_t {
  constant,  // elements outside the array are Padding::value
  reflect    // elements outside are a mirror image of the array without its edge: d c b [a b c d] c b a; a margin is less than
             // the axis
};

struct Padding {
  Shape margin = {};  // for each of the last axes, the elements added on both sides; empty: no margin
  Border border = Border::constant;
  double value = 0;  // value of the elements outside; must be a value of the dtype
};

// Cuts out a part of `size` (a number for each of the last axes) at a random place within the array and its margins. All places
// are equally likely. `size` must not exceed the array with its margins. Works for any dtype.
[[nodiscard]] Step random_crop(Shape size, Padding padding = {});
// Cuts out the central part. If two places are equally central, takes the first.
[[nodiscard]] Step centre_crop(Shape size, Padding padding = {});
// Adds the margins. Works for any dtype.
[[nodiscard]] Step pad(Padding padding);

// Reverses each of `axes` with `probability`; each axis is drawn separately. Works for any dtype. Could run on the device:
// at::flip of the rows that were drawn.
[[nodiscard]] Step random_flip(std::vector<std::int64_t> axes, double probability = 0.5);

// Shifts each of `axes` cyclically by a random number of places, from 0 to the size of the axis - 1. For periodic arrays
// (angles, periodic boxes) of any dtype. Could run on the device: at::roll.
[[nodiscard]] Step random_roll(std::vector<std::int64_t> axes);

// Computes (x - mean) / deviation as f32, where x = value / 255 for u8 and x = value for f32. `mean` and `deviation` have a value
// for each index of the first axis, the channels, or one value for all. Could run on the device, which would get a fourth of the
// bytes for u8: (batch["image"].to(at::kFloat) / 255 - mean) / deviation.
[[nodiscard]] Step normalise(std::vector<float> mean, std::vector<float> deviation);

// Adds to each value of an f32 array a normal random number with mean 0 and this standard deviation. Method: Box and Muller, "A
// note on the generation of random normal deviates" (1958), from Philox numbers of 24 bits, so no number is beyond 5.9
// deviations. Takes about 15 ns a value, far more than the other steps, so move it first if training waits for data. Could run
// on the device: at::randn_like, with the device's random numbers.
[[nodiscard]] Step gaussian_noise(double deviation);

}  // namespace millrace::data
