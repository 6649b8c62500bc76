// Makes a schema from a config struct, and converts between the struct and its canonical JSON.
#pragma once

#include <concepts>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/config/reflect.h"
#include "millrace/config/schema.h"
#include "millrace/config/value_type.h"

namespace millrace::config {
namespace detail {

// Describes a type of member: type() for the schema, write() to canonical JSON, read() from canonical JSON.
template <class T>
struct Codec {
  static_assert(HasFields<T>, "a config member can't have this type: config/field.h lists the possible types");
};

[[noreturn]] void wrong_kind(const char* expected, const Json& value);
[[nodiscard]] ValueType wrap(ValueType::Kind kind, ValueType inner);
// Marks a text as a path, also inside a list or an optional.
[[nodiscard]] ValueType as_path(ValueType type);
[[nodiscard]] std::vector<std::string> words_between_bars(std::string_view words);
[[nodiscard]] Leaf make_leaf(std::string path, std::string_view help, std::string_view unit, ValueType type, const Limits& limits,
                             Json default_value, bool required);

template <>
struct Codec<bool> {
  static ValueType type() { return {.kind = ValueType::Kind::boolean}; }
  static Json write(bool value) { return value; }
  static bool read(const Json& value) {
    if (!value.is_boolean()) wrong_kind("true or false", value);
    return value.get<bool>();
  }
};

template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct Codec<T> {
  static_assert(!std::same_as<T, char> && !std::same_as<T, wchar_t>, "use std::string or std::int8_t");
  static ValueType type() {
    return {.kind = ValueType::Kind::integer,
            .lowest = static_cast<std::int64_t>(std::numeric_limits<T>::min()),
            .highest = static_cast<std::uint64_t>(std::numeric_limits<T>::max())};
  }
  static Json write(T value) { return value; }
  static T read(const Json& value) {
    if (!value.is_number_integer()) wrong_kind("an integer", value);
    return value.get<T>();
  }
};

template <std::floating_point T>
struct Codec<T> {
  static ValueType type() {
    return {.kind = ValueType::Kind::number, .largest = static_cast<double>(std::numeric_limits<T>::max())};
  }
  static Json write(T value) { return static_cast<double>(value); }
  static T read(const Json& value) {
    if (!value.is_number()) wrong_kind("a number", value);
    return value.get<T>();
  }
};

template <>
struct Codec<std::string> {
  static ValueType type() { return {.kind = ValueType::Kind::text}; }
  static Json write(const std::string& value) { return value; }
  static std::string read(const Json& value) {
    if (!value.is_string()) wrong_kind("text", value);
    return value.get<std::string>();
  }
};

template <>
struct Codec<std::filesystem::path> {
  static ValueType type() { return {.kind = ValueType::Kind::path}; }
  static Json write(const std::filesystem::path& value) { return value.string(); }
  static std::filesystem::path read(const Json& value) { return Codec<std::string>::read(value); }
};

template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static ValueType type() {
    ValueType type{.kind = ValueType::Kind::word};
    for (const std::string_view name : kEnumNames<E>) {
      if (!name.empty()) type.words.emplace_back(name);
    }
    return type;
  }
  static Json write(E value) {
    const auto index = static_cast<std::size_t>(value);
    MR_CHECK(index < kEnumNames<E>.size() && !kEnumNames<E>[index].empty(), "an enum in a config has a value without a name");
    return std::string(kEnumNames<E>[index]);
  }
  static E read(const Json& value) {
    const std::string word = Codec<std::string>::read(value);
    for (std::size_t i = 0; i < kEnumNames<E>.size(); ++i) {
      if (!word.empty() && kEnumNames<E>[i] == word) return static_cast<E>(i);
    }
    wrong_kind("a word of the enum", value);
  }
};

template <class T>
struct Codec<std::optional<T>> {
  static ValueType type() { return wrap(ValueType::Kind::nullable, Codec<T>::type()); }
  static Json write(const std::optional<T>& value) { return value ? Codec<T>::write(*value) : Json(nullptr); }
  static std::optional<T> read(const Json& value) {
    if (value.is_null()) return std::nullopt;
    return Codec<T>::read(value);
  }
};

template <class T>
struct Codec<Auto<T>> {
  static ValueType type() { return wrap(ValueType::Kind::automatic, Codec<T>::type()); }
  static Json write(const Auto<T>& value) { return value.is_auto() ? Json("auto") : Codec<T>::write(value.value()); }
  static Auto<T> read(const Json& value) {
    if (value.is_string() && value.get_ref<const std::string&>() == "auto") return {};
    return Codec<T>::read(value);
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static ValueType type() { return wrap(ValueType::Kind::list, Codec<T>::type()); }
  static Json write(const std::vector<T>& values) {
    Json json = Json::array();
    for (const T& value : values) json.push_back(Codec<T>::write(value));
    return json;
  }
  static std::vector<T> read(const Json& json) {
    if (!json.is_array()) wrong_kind("a list", json);
    std::vector<T> values;
    for (const Json& value : json) values.push_back(Codec<T>::read(value));
    return values;
  }
};

template <class T, class Less>
struct Codec<std::map<std::string, T, Less>> {
  using Map = std::map<std::string, T, Less>;
  static ValueType type() { return wrap(ValueType::Kind::map, Codec<T>::type()); }
  static Json write(const Map& values) {
    Json json = Json::object();
    for (const auto& [key, value] : values) json[key] = Codec<T>::write(value);
    return json;
  }
  static Map read(const Json& json) {
    if (!json.is_object()) wrong_kind("a map", json);
    Map values;
    for (const auto& [key, value] : json.items()) values.emplace(key, Codec<T>::read(value));
    return values;
  }
};

// The first alternative that fits a value is taken.
template <class... T>
struct Codec<std::variant<T...>> {
  using Variant = std::variant<T...>;
  static ValueType type() { return {.kind = ValueType::Kind::choice, .inner = {Codec<T>::type()...}}; }
  static Json write(const Variant& value) {
    return std::visit([]<class V>(const V& held) { return Codec<V>::write(held); }, value);
  }
  static Variant read(const Json& json) {
    std::optional<Variant> result;
    ((result || !is_exactly(Codec<T>::type(), json) ? void() : void(result.emplace(Codec<T>::read(json)))), ...);
    if (!result) wrong_kind("one of the alternatives", json);
    return *std::move(result);
  }
};

// Calls visit.operator()<Member>(spec) for each member of T in order of fields().
template <class T, class Visit>
void for_each_field(Visit&& visit) {
  static_assert(check_struct<T>());
  std::apply(
      [&]<auto... Member>(const FieldSpec<Member>&... specs) { (visit.template operator()<Member>(specs), ...); }, T::fields());
}

template <auto Member>
Limits limits_of(const FieldSpec<Member>& spec) {
  return {.minimum = spec.minimum,
          .maximum = spec.maximum,
          .minimum_open = spec.minimum_open,
          .maximum_open = spec.maximum_open,
          .least_size = spec.least_size,
          .greatest_size = spec.greatest_size};
}

template <HasFields T>
struct Codec<T> {
  static ValueType type() {
    ValueType type{.kind = ValueType::Kind::record};
    const T defaults{};
    for_each_field<T>([&]<auto Member>(const FieldSpec<Member>& spec) {
      using M = MemberType<Member>;
      type.fields.push_back({.name = std::string(member_name<Member>()),
                             .type = Codec<M>::type(),
                             .limits = limits_of(spec),
                             .default_value = Codec<M>::write(defaults.*Member),
                             .required = spec.is_required});
    });
    return type;
  }
  static Json write(const T& value) {
    Json json = Json::object();
    for_each_field<T>([&]<auto Member>(const FieldSpec<Member>&) {
      json[std::string(member_name<Member>())] = Codec<MemberType<Member>>::write(value.*Member);
    });
    return json;
  }
  static T read(const Json& json) {
    if (!json.is_object()) wrong_kind("an object", json);
    T value{};
    for_each_field<T>([&]<auto Member>(const FieldSpec<Member>&) {
      const auto found = json.find(member_name<Member>());
      if (found != json.end()) value.*Member = Codec<MemberType<Member>>::read(*found);
    });
    return value;
  }
};

template <HasFields T>
void add_leaves(const std::string& prefix, const T& defaults, bool free_on_resume, Schema& schema) {
  for_each_field<T>([&]<auto Member>(const FieldSpec<Member>& spec) {
    using M = MemberType<Member>;
    const bool is_free = free_on_resume || spec.is_free_on_resume;
    std::string path = prefix + std::string(member_name<Member>());
    if constexpr (HasFields<M>) {
      schema.groups[path] = std::string(spec.help);
      add_leaves<M>(path + ".", defaults.*Member, is_free, schema);
    } else {
      ValueType type = spec.is_path ? as_path(Codec<M>::type()) : Codec<M>::type();
      Leaf leaf = make_leaf(std::move(path), spec.help, spec.unit_text, std::move(type), limits_of(spec),
                            Codec<M>::write(defaults.*Member), spec.is_required);
      leaf.words_beside_path = words_between_bars(spec.words_beside_path);
      if (!leaf.words_beside_path.empty()) leaf.type = std::string(spec.words_beside_path) + "|" + leaf.type;
      leaf.free_on_resume = is_free;
      schema.leaves.push_back(std::move(leaf));
    }
  });
}

}  // namespace detail

// Members of T that are structs become sections; all other members become leaves. All paths start with `prefix` and a dot,
// unless `prefix` is empty.
template <class T>
[[nodiscard]] Schema schema_of(std::string_view prefix = "") {
  Schema schema;
  detail::add_leaves<T>(prefix.empty() ? std::string() : std::string(prefix) + ".", T{}, /*free_on_resume=*/false, schema);
  return schema;
}

// Makes a T from canonical values (Resolved::values or one of its sections). Missing keys keep T's default, unknown keys are
// ignored. Throws InternalError if a value is not canonical, which is a mistake in Millrace.
template <class T>
[[nodiscard]] T read(const Json& values) {
  return detail::Codec<T>::read(values);
}

// Returns the canonical JSON of a T; read<T>(write(x)) == x.
template <class T>
[[nodiscard]] Json write(const T& value) {
  return detail::Codec<T>::write(value);
}

}  // namespace millrace::config
