#include <algorithm>
#include <array>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/data/workload/detail/parts.h"

namespace millrace::data::detail {
namespace {

using config::field;

struct AugmentKeys {
  std::vector<std::string> names;
  static consteval auto fields() {
    return std::tuple{
        field<&AugmentKeys::names>("The fields that the steps change; all fields get the same random numbers.").not_empty()};
  }
};

SourcePtr open_augment(const Part& part) {
  Json plain = part.json;
  plain.erase("steps");
  const auto keys = keys_of<AugmentKeys>({plain, part.input, part.place});
  const auto steps = part.json.find("steps");
  if (steps == part.json.end() || !steps->is_array() || steps->empty())
    refuse_part(part, "an augmentation has no steps", "give steps, such as [{\"kind\": \"random_flip\", \"axes\": [-1]}]");
  std::vector<Step> made;
  for (const Json& step : *steps)
    made.push_back(open_step({step, part.input, part.place + ".steps[" + std::to_string(made.size()) + "]"}));
  return augment(open_below(part), keys.names, made);
}

struct ShareKeys {
  double from = 0;
  double to = 1;
  std::int64_t seed = 0;
  static consteval auto fields() {
    using C = ShareKeys;
    return std::tuple{
        field<&C::from>("A sample belongs to the share if its random number in [0, 1) is at least this.").min(0).max(1),
        field<&C::to>("A sample belongs to the share only if its random number is below this.").min(0).max(1),
        field<&C::seed>("Seed of the random numbers.").min(0)};
  }
};

SourcePtr open_share(const Part& part) {
  const auto keys = keys_of<ShareKeys>(part);
  return random_subset(open_below(part), {.from = keys.from, .to = keys.to, .seed = static_cast<std::uint64_t>(keys.seed)});
}

struct SubsetKeys {
  std::vector<std::int64_t> indices;
  static consteval auto fields() {
    return std::tuple{field<&SubsetKeys::indices>("Numbers of the samples, from 0.").min(0).not_empty()};
  }
};

SourcePtr open_subset(const Part& part) { return subset(open_below(part), keys_of<SubsetKeys>(part).indices); }

struct TakeKeys {
  std::int64_t count = 1;
  static consteval auto fields() {
    return std::tuple{field<&TakeKeys::count>("Number of samples, from the first on.").min(1).required()};
  }
};

SourcePtr open_take(const Part& part) { return take(open_below(part), keys_of<TakeKeys>(part).count); }

struct RepeatKeys {
  std::int64_t times = 1;
  static consteval auto fields() {
    return std::tuple{field<&RepeatKeys::times>("Number of passes over all samples.").min(1).required()};
  }
};

SourcePtr open_repeat(const Part& part) { return repeat(open_below(part), keys_of<RepeatKeys>(part).times); }

SourcePtr open_concat(const Part& part) {
  (void)values_of(part, {});
  const auto parts = part.json.find("of");
  if (parts == part.json.end() || !parts->is_array() || parts->empty())
    refuse_part(part, "a part of kind \"concat\" joins a list of parts, but there is no list", "give the list as \"of\"");
  std::vector<SourcePtr> sources;
  for (const Json& below : *parts)
    sources.push_back(open_part({below, part.input, part.place + ".of[" + std::to_string(sources.size()) + "]"}));
  return concat(std::move(sources));
}

struct MadeField {
  std::string dtype = "f32";
  std::vector<std::int64_t> shape;
  static consteval auto fields() {
    return std::tuple{field<&MadeField::dtype>("Such as f32."), field<&MadeField::shape>("Shape in a sample.").min(0)};
  }
};

struct MapKeys {
  std::int64_t function = 0;
  std::string name;
  std::map<std::string, MadeField> makes;
  std::vector<std::string> drops;
  static consteval auto fields() {
    using C = MapKeys;
    return std::tuple{
        field<&C::function>("The number of the function.").min(0),
        field<&C::name>("Name of the function with its parameters; a run resumes only with the same name.").required(),
        field<&C::makes>("Fields that the function writes, with dtype and shape."),
        field<&C::drops>("Fields that batches omit.")};
  }
};

DType dtype_called(const Part& part, const std::string& name) {
  for (auto type = DType::boolean; type <= DType::c128; type = static_cast<DType>(static_cast<int>(type) + 1)) {
    if (name_of(type) == name) return type;
  }
  refuse_part(part, "there is no dtype " + quoted(name), "write a name such as f32, i64, u8 or bool");
}

SourcePtr open_map(const Part& part) {
  const auto keys = keys_of<MapKeys>(part);
  if (static_cast<std::size_t>(keys.function) >= part.input.functions.size()) {
    refuse_part(part, "function " + std::to_string(keys.function) + " is not there",
                "a part of kind \"map\" needs a program that passes its function, as the Python package does");
  }
  Mapping mapping{
      .name = keys.name, .drops = keys.drops, .function = part.input.functions[static_cast<std::size_t>(keys.function)]};
  for (const auto& [name, made] : keys.makes) mapping.makes.push_back({name, dtype_called(part, made.dtype), made.shape});
  return map(open_below(part), std::move(mapping));
}

constexpr std::array kComposeKinds = {
    PartKind{"augment", "random changes of fields, drawn again at each read", [] { return config::schema_of<AugmentKeys>(); },
             open_augment},
    PartKind{"share", "a random share of the samples, the same in every run", [] { return config::schema_of<ShareKeys>(); },
             open_share},
    PartKind{"subset", "samples by their numbers", [] { return config::schema_of<SubsetKeys>(); }, open_subset},
    PartKind{"take", "the first samples", [] { return config::schema_of<TakeKeys>(); }, open_take},
    PartKind{"repeat", "all samples several times", [] { return config::schema_of<RepeatKeys>(); }, open_repeat},
    PartKind{"concat", "the samples of a list of parts, one part after the other", [] { return config::Schema{}; }, open_concat},
    PartKind{"map", "a function of the calling program", [] { return config::schema_of<MapKeys>(); }, open_map},
};

struct CropKeys {
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> margin;
  Border border = Border::constant;
  double value = 0;
  static consteval auto fields() {
    using C = CropKeys;
    return std::tuple{field<&C::size>("Sizes of the part along the last axes.").min(1).not_empty(),
                      field<&C::margin>("Elements added on both sides of the last axes before the cut.").min(0),
                      field<&C::border>("What is in the margin."), field<&C::value>("Value of a constant margin.")};
  }
};

struct PadKeys {
  std::vector<std::int64_t> margin;
  Border border = Border::constant;
  double value = 0;
  static consteval auto fields() {
    using C = PadKeys;
    return std::tuple{field<&C::margin>("Elements added on both sides of the last axes.").min(0).not_empty(),
                      field<&C::border>("What is in the margin."), field<&C::value>("Value of a constant margin.")};
  }
};

struct FlipKeys {
  std::vector<std::int64_t> axes;
  double probability = 0.5;
  static consteval auto fields() {
    return std::tuple{field<&FlipKeys::axes>("Axes to reverse, counted from the end: -1 columns, -2 rows, -3 depth.").not_empty(),
                      field<&FlipKeys::probability>("Probability for each axis.").min(0).max(1)};
  }
};

struct RollKeys {
  std::vector<std::int64_t> axes;
  static consteval auto fields() {
    return std::tuple{field<&RollKeys::axes>("Axes that are shifted cyclically, counted from the end.").not_empty()};
  }
};

struct NormaliseKeys {
  std::vector<float> mean;
  std::vector<float> deviation;
  static consteval auto fields() {
    return std::tuple{
        field<&NormaliseKeys::mean>("Mean of each channel, or one for all.").not_empty(),
        field<&NormaliseKeys::deviation>("Standard deviation of each channel, or one for all.").above(0).not_empty()};
  }
};

struct NoiseKeys {
  double deviation = 0;
  static consteval auto fields() {
    return std::tuple{field<&NoiseKeys::deviation>("Standard deviation of the random numbers.").above(0).required()};
  }
};

Padding padding_of(const auto& keys) { return {.margin = keys.margin, .border = keys.border, .value = keys.value}; }

constexpr std::array kStepKinds = {
    StepKind{"random_crop", "a part at a random place, drawn anew at each read", [] { return config::schema_of<CropKeys>(); },
             [](const Part& part) {
               const auto keys = keys_of<CropKeys>(part);
               return random_crop(keys.size, padding_of(keys));
             }},
    StepKind{"centre_crop", "the central part", [] { return config::schema_of<CropKeys>(); },
             [](const Part& part) {
               const auto keys = keys_of<CropKeys>(part);
               return centre_crop(keys.size, padding_of(keys));
             }},
    StepKind{"pad", "margins", [] { return config::schema_of<PadKeys>(); },
             [](const Part& part) { return pad(padding_of(keys_of<PadKeys>(part))); }},
    StepKind{"random_flip", "axes reversed", [] { return config::schema_of<FlipKeys>(); },
             [](const Part& part) {
               const auto keys = keys_of<FlipKeys>(part);
               return random_flip(keys.axes, keys.probability);
             }},
    StepKind{"random_roll", "axes shifted cyclically", [] { return config::schema_of<RollKeys>(); },
             [](const Part& part) { return random_roll(keys_of<RollKeys>(part).axes); }},
    StepKind{"normalise", "(x - mean) / deviation as 32-bit floats; bytes are first divided by 255",
             [] { return config::schema_of<NormaliseKeys>(); },
             [](const Part& part) {
               auto keys = keys_of<NormaliseKeys>(part);
               return normalise(std::move(keys.mean), std::move(keys.deviation));
             }},
    StepKind{"gaussian_noise", "normal numbers added", [] { return config::schema_of<NoiseKeys>(); },
             [](const Part& part) { return gaussian_noise(keys_of<NoiseKeys>(part).deviation); }},
};

}  // namespace

std::span<const PartKind> compose_kinds() { return kComposeKinds; }
std::span<const StepKind> step_kinds() { return kStepKinds; }

}  // namespace millrace::data::detail
