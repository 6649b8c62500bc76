// Finds the names of members and enumerators, and the number of a struct's members, at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "millrace/config/field.h"

namespace millrace::config::detail {

// The compiler's text for a template argument: "&millrace::C::x", "millrace::E::word", "(millrace::E)7".
template <auto Argument>
consteval std::string_view argument_text() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const std::size_t begin = text.find("Argument = ") + 11;
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

template <auto Member>
consteval std::string_view member_name() {
  constexpr std::string_view kText = argument_text<Member>();
  return kText.substr(kText.rfind("::") + 2);
}

// The name of the enumerator; "" if no enumerator has this value. An enumerator whose name would be a C++ keyword is declared
// with a final underscore, which is dropped here.
template <auto Value>
consteval std::string_view enumerator_name() {
  constexpr std::string_view kText = argument_text<Value>();
  if (kText.front() == '(' || kText.front() == '-' || (kText.front() >= '0' && kText.front() <= '9')) return "";
  std::string_view name = kText.substr(kText.rfind("::") + 2);
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

inline constexpr std::size_t kEnumScan = 128;

// The names of the enumerators, indexed by value from 0 to 127; "" for a value without an enumerator. Enumerators outside that
// range can't be used in a config.
template <class E>
inline constexpr auto kEnumNames = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I)>{enumerator_name<static_cast<E>(I)>()...};
}
(std::make_index_sequence<kEnumScan>{});

// Stands for any member in an initialiser; never evaluated.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// Converts only to base classes of T.
template <class T>
struct AnyBase {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>) operator B() const;  // NOLINT(google-explicit-constructor)
};

template <class T>
concept HasBase = requires {
  T{AnyBase<T>{}};
};

// Returns the number of members of the aggregate T; each element of a C array counts as a member.
template <class T, class... Known>
consteval std::size_t count_members() {
  if constexpr (requires { T{Known{}..., AnyMember{}}; }) {
    return count_members<T, Known..., AnyMember>();
  } else {
    return sizeof...(Known);
  }
}

template <class T>
concept HasFields = std::is_class_v<T> && requires {
  T::fields();
};

template <class C, class M>
std::type_identity<M> member_type_of(M C::*);
template <auto Member>
using MemberType = typename decltype(member_type_of(Member))::type;

template <class... Specs>
consteval bool names_are_distinct(const std::tuple<Specs...>& specs) {
  return std::apply(
      []<auto... Member>(const FieldSpec<Member>&...) {
        const std::array<std::string_view, sizeof...(Member)> names{member_name<Member>()...};
        for (std::size_t i = 0; i < names.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            if (names[i] == names[j]) return false;
          }
        }
        return true;
      },
      specs);
}

template <class... Specs>
consteval bool has_c_array(const std::tuple<Specs...>& specs) {
  return std::apply(
      []<auto... Member>(const FieldSpec<Member>&...) { return (std::is_array_v<MemberType<Member>> || ...); }, specs);
}

// Gives a readable compile error for a struct that can't be a config, such as one with a member that fields() lacks.
template <class T>
consteval bool check_struct() {
  static_assert(std::is_aggregate_v<T>, "a config struct must be an aggregate: no constructors, no private members");
  static_assert(!HasBase<T>, "a config struct must not have a base class: make it a member");
  constexpr auto kSpecs = T::fields();
  static_assert(!has_c_array(kSpecs), "a config struct must not have a C array: use std::vector with size(n)");
  static_assert(names_are_distinct(kSpecs), "a member is listed twice in fields()");
  static_assert(std::tuple_size_v<decltype(T::fields())> >= count_members<T>(), "a member is missing from fields()");
  return true;
}

}  // namespace millrace::config::detail
