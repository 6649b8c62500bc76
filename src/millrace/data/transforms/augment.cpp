#include "millrace/data/transforms/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/scratch.h"
#include "millrace/data/sources/array_ops.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/data/transforms/detail/compose.h"

namespace millrace::data {
namespace {

[[noreturn]] void refuse_step(const Field& field, const Augmentation& step, const std::string& why, std::string next) {
  detail::refuse_composing(
      "field " + quoted(field.name) + ' ' + std::string(name_of(field.dtype)) + ' ' + to_text(field.shape) + ' ' + why,
      step.text(), std::move(next));
}

// Writes an element of the dtype into `element`. Returns false if the dtype can't hold the value.
bool element_of(DType dtype, double value, std::vector<std::byte>& element) {
  element.assign(size_of(dtype), std::byte{0});
  if (value == 0) return true;
  const auto put = [&]<class T>(T converted) {
    std::memcpy(element.data(), &converted, sizeof converted);
    return true;
  };
  const auto whole = [&]<class T>(T) {
    const bool fits = value == std::floor(value) && value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                      value < std::ldexp(1.0, std::numeric_limits<T>::digits);
    return fits && put(static_cast<T>(value));
  };
  switch (dtype) {
    case DType::boolean:
      return value == 1 && put(true);
    case DType::u8:
      return whole(std::uint8_t{});
    case DType::i8:
      return whole(std::int8_t{});
    case DType::u16:
      return whole(std::uint16_t{});
    case DType::i16:
      return whole(std::int16_t{});
    case DType::u32:
      return whole(std::uint32_t{});
    case DType::i32:
      return whole(std::int32_t{});
    case DType::u64:
      return whole(std::uint64_t{});
    case DType::i64:
      return whole(std::int64_t{});
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f64:
      return put(value);
    case DType::c64:
      return put(std::complex<float>(static_cast<float>(value)));
    case DType::c128:
      return put(std::complex<double>(value));
    case DType::f16:
    case DType::bf16:
      return false;
  }
  return false;
}

enum class Place : std::uint8_t { random, centre, whole };

class Windowing final : public Augmentation {
 public:
  // Place::whole ignores `size`, because it takes the whole array.
  Windowing(Place place, Shape size, Padding padding) : place_(place), size_(std::move(size)), padding_(std::move(padding)) {
    if (padding_.margin.empty()) padding_.margin.assign(size_.size(), 0);
    if (place_ == Place::whole) size_.assign(padding_.margin.size(), 1);
    const auto below = [](const Shape& shape, std::int64_t least) {
      return std::any_of(shape.begin(), shape.end(), [least](std::int64_t value) { return value < least; });
    };
    if (size_.empty() || size_.size() != padding_.margin.size() || below(size_, 1) || below(padding_.margin, 0)) {
      detail::refuse_composing(
          "a step can't have sizes " + to_text(place_ == Place::whole ? Shape{} : size_) + " and margins " +
              to_text(padding_.margin),
          text(), "give a size >= 1 for each of the last axes, and either no margins or a margin >= 0 for each of these axes");
    }
  }

  [[nodiscard]] Field made_of(const Field& field) const override {
    const std::string axes = std::to_string(size_.size());
    if (field.shape.size() < size_.size()) refuse_step(field, *this, "has fewer than " + axes + " axes", "give fewer sizes");
    Field made = field;
    for (std::size_t a = 0; a < size_.size(); ++a) {
      std::int64_t& length = made.shape[field.shape.size() - size_.size() + a];
      const std::int64_t margin = padding_.margin[a];
      if (padding_.border == Border::reflect && margin >= length) {
        refuse_step(field, *this, "can't be mirrored by " + std::to_string(margin) + " elements",
                    "give margins smaller than the axes, or take data::Border::constant");
      }
      const std::int64_t most = length + 2 * margin;
      const std::int64_t size = place_ == Place::whole ? most : size_[a];
      // The part must not be larger than the array, because a centred part would then extend beyond both ends.
      if (size > most) refuse_step(field, *this, "is smaller than the part", "take a smaller part or wider margins");
      length = size;
    }
    std::vector<std::byte> element;
    if (!element_of(field.dtype, padding_.value, element)) {
      refuse_step(field, *this, "can't hold the value " + significant(padding_.value, 6), "pad with a value of the dtype");
    }
    return made;
  }
  [[nodiscard]] std::string text() const override {
    std::string text = place_ == Place::whole    ? "pad"
                       : place_ == Place::random ? "random_crop " + to_text(size_)
                                                 : "centre_crop " + to_text(size_);
    if (place_ != Place::whole && std::all_of(padding_.margin.begin(), padding_.margin.end(), [](auto m) { return m == 0; }))
      return text;
    text += " margin " + to_text(padding_.margin);
    return text + (padding_.border == Border::reflect ? " reflect" : " constant " + lasting(padding_.value, 17));
  }
  void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const override {
    constexpr std::size_t kFewAxes = 8;
    std::array<detail::Window::Axis, kFewAxes> few;
    std::vector<detail::Window::Axis> many(size_.size() > kFewAxes ? size_.size() : 0);
    const std::span<detail::Window::Axis> axes = many.empty() ? std::span(few).first(size_.size()) : std::span(many);
    const std::size_t first = field.shape.size() - size_.size();
    detail::Window window{.axes = axes, .reflects = padding_.border == Border::reflect};
    for (std::size_t i = 0; i < first; ++i) window.outer *= field.shape[i];
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const std::int64_t whole = field.shape[first + a];
      const std::int64_t margin = padding_.margin[a];
      const std::int64_t size = place_ == Place::whole ? whole + 2 * margin : size_[a];
      const std::int64_t room = whole + 2 * margin - size;
      const std::int64_t place =
          place_ == Place::random ? static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room) + 1)) : room / 2;
      axes[a] = {.whole = whole, .begin = place - margin, .size = size};
    }
    thread_local std::vector<std::byte> element;
    (void)element_of(field.dtype, padding_.value, element);
    window.fill = element;
    detail::copy_window(window, from, to);
  }

 private:
  Place place_;
  Shape size_;
  Padding padding_;
};

// The base class of steps along axes that are counted from the end.
class AlongAxes : public Augmentation {
 public:
  explicit AlongAxes(std::vector<std::int64_t> axes) : axes_(std::move(axes)) {}
  [[nodiscard]] Field made_of(const Field& field) const override {
    const auto rank = static_cast<std::int64_t>(field.shape.size());
    for (auto axis = axes_.begin(); axis != axes_.end(); ++axis) {
      if (*axis >= 0 || *axis < -rank || std::find(axes_.begin(), axis, *axis) != axis) {
        refuse_step(field, *this, "has no axis " + std::to_string(*axis) + ", or the axis is given twice",
                    "count axes from the end, each once: -1 is the last");
      }
    }
    return field;
  }

 protected:
  [[nodiscard]] std::string axes_text() const {
    return joined(axes_, ",", [](std::int64_t axis) { return std::to_string(axis); });
  }
  [[nodiscard]] static detail::AxisView view_of(const Field& field, std::int64_t axis) {
    return detail::axis_of(field.shape, field.shape.size() - static_cast<std::size_t>(-axis), size_of(field.dtype));
  }
  const std::vector<std::int64_t> axes_;
};

class Flip final : public AlongAxes {
 public:
  Flip(std::vector<std::int64_t> axes, double probability) : AlongAxes(std::move(axes)), probability_(probability) {
    if (!(probability >= 0 && probability <= 1)) {
      detail::refuse_composing("the probability is " + significant(probability, 6), text(), "set it between 0 and 1");
    }
  }
  [[nodiscard]] std::string text() const override { return "random_flip " + axes_text() + " p " + lasting(probability_, 9); }
  [[nodiscard]] bool works_in_place() const override { return true; }
  void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const override {
    for (const std::int64_t axis : axes_) {
      if (random.uniform() >= probability_) continue;
      detail::reverse_axis(view_of(field, axis), from, to);
      from = to;
    }
    if (from != to) std::memcpy(to, from, field.bytes());
  }

 private:
  double probability_;
};

class Roll final : public AlongAxes {
 public:
  using AlongAxes::AlongAxes;
  [[nodiscard]] std::string text() const override { return "random_roll " + axes_text(); }
  void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const override {
    const detail::Scratch scratch(axes_.size() > 1 ? field.bytes() : 0);
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      const detail::AxisView view = view_of(field, axes_[a]);
      const bool ends_in_to = (axes_.size() - a) % 2 == 1;
      std::byte* const here = ends_in_to ? to : scratch.data();
      detail::roll_axis(view, view.length == 0 ? 0 : random.below(view.length), from, here);
      from = here;
    }
    if (axes_.empty()) std::memcpy(to, from, field.bytes());
  }
};

class Normalise final : public Augmentation {
 public:
  Normalise(std::vector<float> mean, std::vector<float> deviation) : mean_(std::move(mean)), deviation_(std::move(deviation)) {
    const bool positive = std::all_of(deviation_.begin(), deviation_.end(), [](float value) { return value > 0; });
    if (mean_.empty() || mean_.size() != deviation_.size() || !positive) {
      detail::refuse_composing(std::to_string(mean_.size()) + " means and " + std::to_string(deviation_.size()) +
                                   " deviations are given" + (positive ? "" : "; a deviation is not above 0"),
                               "normalise", "give a mean and a deviation above 0 for each channel, or one for all");
    }
    for (std::size_t c = 0; c < mean_.size(); ++c) of_bytes_.push_back(detail::normalised_bytes(mean_[c], deviation_[c]));
  }
  [[nodiscard]] Field made_of(const Field& field) const override {
    if (field.dtype != DType::u8 && field.dtype != DType::f32)
      refuse_step(field, *this, "is neither u8 nor f32", "first convert it to f32 with data::map");
    if (mean_.size() > 1 && (field.shape.empty() || field.shape[0] != static_cast<std::int64_t>(mean_.size()))) {
      refuse_step(field, *this, "does not have " + std::to_string(mean_.size()) + " channels on its first axis",
                  "give a mean and a deviation for each channel, or one for all");
    }
    Field made = field;
    made.dtype = DType::f32;
    return made;
  }
  [[nodiscard]] std::string text() const override {
    std::string text = "normalise";
    for (std::size_t c = 0; c < mean_.size(); ++c) text += ' ' + lasting(mean_[c], 9) + '/' + lasting(deviation_[c], 9);
    return text;
  }
  [[nodiscard]] bool works_in_place() const override { return true; }
  void apply(const Field& field, const std::byte* from, std::byte* to, Philox) const override {
    auto* out = reinterpret_cast<float*>(to);
    const std::size_t count = field.bytes() / size_of(field.dtype) / mean_.size();
    for (std::size_t c = 0; c < mean_.size(); ++c, out += count) {
      if (field.dtype == DType::u8) {
        const std::byte* bytes = from + c * count;
        for (std::size_t i = 0; i < count; ++i) out[i] = of_bytes_[c][std::to_integer<std::size_t>(bytes[i])];
      } else {
        const float* in = reinterpret_cast<const float*>(from) + c * count;
        for (std::size_t i = 0; i < count; ++i) out[i] = (in[i] - mean_[c]) / deviation_[c];
      }
    }
  }

 private:
  std::vector<float> mean_;
  std::vector<float> deviation_;
  std::vector<std::array<float, 256>> of_bytes_;
};

class Noise final : public Augmentation {
 public:
  explicit Noise(double deviation) : deviation_(deviation) {
    if (!(deviation >= 0 && std::isfinite(static_cast<float>(deviation))))
      detail::refuse_composing("the deviation is " + significant(deviation, 6), text(), "set it to a number of 0 or more");
  }
  [[nodiscard]] Field made_of(const Field& field) const override {
    if (field.dtype != DType::f32) refuse_step(field, *this, "is not f32", "put data::normalise before the noise");
    return field;
  }
  [[nodiscard]] std::string text() const override { return "gaussian_noise " + lasting(deviation_, 9); }
  [[nodiscard]] bool works_in_place() const override { return true; }
  void apply(const Field& field, const std::byte* from, std::byte* to, Philox random) const override {
    detail::add_normal(reinterpret_cast<const float*>(from), field.bytes() / sizeof(float), static_cast<float>(deviation_),
                       random, reinterpret_cast<float*>(to));
  }

 private:
  double deviation_;
};

// The steps of a field. The last steps, if they work in place, work on the output itself; the steps before them alternate
// between two buffers.
class Chain {
 public:
  Chain(Field field, const std::vector<Step>& steps) : steps_(steps) {
    fields_.push_back(std::move(field));
    for (const Step& step : steps_) {
      fields_.push_back(step->made_of(fields_.back()));
      const bool stays = step->works_in_place() && fields_.back() == fields_[fields_.size() - 2];
      if (!stays) last_elsewhere_ = fields_.size() - 2;
      stays_.push_back(stays);
    }
    for (std::size_t k = 0; k < last_elsewhere_; ++k) buffer_bytes_ = std::max(buffer_bytes_, fields_[k + 1].bytes());
  }
  [[nodiscard]] const Field& made() const { return fields_.back(); }
  [[nodiscard]] const std::string& name() const { return fields_.front().name; }
  void run(const std::byte* from, std::byte* to, const SampleRandom& random) const {
    const detail::Scratch first(buffer_bytes_);
    const detail::Scratch second(buffer_bytes_);
    std::byte* ours = nullptr;  // the buffer that the latest step wrote; null = no step has run
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      std::byte* here = ours == first.data() ? second.data() : first.data();
      if (stays_[k] && ours != nullptr) here = ours;
      if (k == last_elsewhere_) here = to;
      steps_[k]->apply(fields_[k], from, here, random(k));
      from = ours = here;
    }
  }

 private:
  std::vector<Step> steps_;
  std::vector<Field> fields_;  // the field before each step, and after the last step
  std::vector<bool> stays_;
  std::size_t last_elsewhere_ = 0;  // index of the last step that does not work in place; this step writes into the result
  std::size_t buffer_bytes_ = 0;
};

}  // namespace

Step random_crop(Shape size, Padding padding) {
  return std::make_shared<Windowing>(Place::random, std::move(size), std::move(padding));
}

Step centre_crop(Shape size, Padding padding) {
  return std::make_shared<Windowing>(Place::centre, std::move(size), std::move(padding));
}

Step pad(Padding padding) { return std::make_shared<Windowing>(Place::whole, Shape{}, std::move(padding)); }

Step random_flip(std::vector<std::int64_t> axes, double probability) {
  return std::make_shared<Flip>(std::move(axes), probability);
}

Step random_roll(std::vector<std::int64_t> axes) { return std::make_shared<Roll>(std::move(axes)); }

Step normalise(std::vector<float> mean, std::vector<float> deviation) {
  return std::make_shared<Normalise>(std::move(mean), std::move(deviation));
}

Step gaussian_noise(double deviation) { return std::make_shared<Noise>(deviation); }

std::shared_ptr<const Source> augment(std::shared_ptr<const Source> source, const std::vector<std::string>& fields,
                                      const std::vector<Step>& steps) {
  source = detail::required(std::move(source), "augment()");
  if (fields.empty() || steps.empty() || std::find(steps.begin(), steps.end(), nullptr) != steps.end()) {
    detail::refuse_composing(fields.empty() ? "no field is named" : "a step is missing", "augment()",
                             "give at least one field and one step");
  }
  Mapping mapping{
      .name = "augment " + joined(fields, ",") + ": " + joined(steps, ", ", [](const Step& step) { return step->text(); }),
      .makes = {},
      .function = {}};
  std::vector<std::pair<std::size_t, Chain>> chains;
  for (const std::string& name : fields) {
    const std::size_t number = field_called(name, source->fields());
    chains.emplace_back(number, Chain(source->fields()[number], steps));
    mapping.makes.push_back(chains.back().second.made());
  }
  mapping.function = [chains = std::move(chains)](const Sample& in, const MutableSample& out, const SampleRandom& random) {
    for (std::size_t m = 0; m < chains.size(); ++m) {
      const auto& [number, chain] = chains[m];
      chain.run(in.data(number), out.data(m), random);
    }
  };
  return map(std::move(source), std::move(mapping));
}

}  // namespace millrace::data
