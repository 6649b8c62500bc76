// Augmentation: steps over one array of a sample, drawn anew at each read with the sample's own random numbers, after the cache.
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
// An array has its axes as in a batch, without the batch's: channels, then rows and columns of a picture [C, H, W]; channels,
// then depth, rows and columns of a volume [C, D, H, W]. Sizes of crops and margins belong to the last axes, so the same steps do
// for pictures, volumes, arrays without channels and signals [C, T]. (ImageSource with normalise=false has its channels last.)
// Axes are counted from the end: -1 columns (left and right), -2 rows (up and down), -3 depth.
//
// Steps run on the readers, which is the place for what makes less data of more (crop) and for all of it as long as the readers
// keep up. What could run on the device instead, for the whole batch in Recipe::prepare(), says so below: it is worth moving when
// log lines show that training waits for data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// One step: a function of an array and of random numbers. Const and thread-safe. For a step of your own derive from this class.
class Augmentation {
 public:
  virtual ~Augmentation() = default;
  // What comes out when `field` goes in: another dtype or shape perhaps, the same name. ConfigError that names the field when the
  // step can't take it. Asked once, when the source is made.
  [[nodiscard]] virtual Field made_of(const Field& field) const = 0;
  // The step with its parameters, "random_flip -1 p 0.5": for the fingerprint.
  [[nodiscard]] virtual std::string text() const = 0;
  // True: apply() may be given the same memory for `from` and `to` when made_of(field) is `field`.
  [[nodiscard]] virtual bool works_in_place() const { return false; }
  // Writes all of `to`, a made_of(field), from `from`, a `field`. `random` is at the beginning of a stream of this step and
  // sample.
  virtual void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const = 0;
};

using Step = std::shared_ptr<const Augmentation>;

// `source` with the steps applied in turn to each of `fields`; other fields are passed on. All fields of one call see the same
// random numbers: a picture and its mask of the same height and width are cropped and flipped alike. Call it again, around the
// first call, for what is for one of them only (noise on the picture), or to draw for each by itself. ConfigError: a field that
// is not there, or that a step can't take.
[[nodiscard]] std::shared_ptr<const Source> augment(std::shared_ptr<const Source> source, const std::vector<std::string>& fields,
                                                    const std::vector<Step>& steps);

enum class Border : std::uint8_t {
  constant,  // Padding::value
  reflect    // the array mirrored at its edge, which is not said twice: d c b [a b c d] c b a; less than the axis is long
};

struct Padding {
  Shape margin = {};  // on each side of each of the last axes; empty: none
  Border border = Border::constant;
  double value = 0;  // a number that the dtype can hold
};

// A part of `size`, one size for each of the last axes, anywhere within the array and its margins with equal probability; any
// dtype. No larger than the array with its margins.
[[nodiscard]] Step random_crop(Shape size, Padding padding = {});
// The part in the middle; where there is no middle, the one before it.
[[nodiscard]] Step centre_crop(Shape size, Padding padding = {});
// The array with all its margins; any dtype.
[[nodiscard]] Step pad(Padding padding);

// Each of `axes` reversed with `probability`, each by a draw of its own; any dtype. Could run on the device: at::flip of the rows
// that are drawn.
[[nodiscard]] Step random_flip(std::vector<std::int64_t> axes, double probability = 0.5);

// Each of `axes` moved round by a number of places from 0 to its size - 1: what leaves at one end comes in at the other. Of
// arrays that close on themselves (angles, periodic boxes); any dtype. Could run on the device: at::roll.
[[nodiscard]] Step random_roll(std::vector<std::int64_t> axes);

// f32 of (x - mean) / deviation, x = value / 255 of an u8 and the value itself of an f32: one mean and deviation for each of the
// first axis, the channels, or one for all. Could run on the device, where an u8 is a fourth of the bytes to copy:
// (batch["image"].to(at::kFloat) / 255 - mean) / deviation.
[[nodiscard]] Step normalise(std::vector<float> mean, std::vector<float> deviation);

// An f32 array plus normal numbers of mean 0 and the given standard deviation, one for each value. Box and Muller, "A note on the
// generation of random normal deviates" (1958), of Philox blocks: 24 bits, so none is further out than 5.9 deviations. Some 15 ns
// a value, many times what the other steps take: the first to move when training waits for data. Could run on the device:
// at::randn_like, then with the device's random numbers.
[[nodiscard]] Step gaussian_noise(double deviation);

}  // namespace millrace::data
