// A text that a signal handler can build: it allocates nothing, takes no lock, and leaves out what does not fit.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

class HandlerText {
 public:
  explicit HandlerText(std::span<char> room) noexcept : room_(room) {}  // `room` still belongs to the caller
  HandlerText& add(std::string_view more) noexcept {
    for (std::size_t i = 0; i < more.size() && used_ < room_.size(); ++i) room_[used_++] = more[i];
    return *this;
  }
  HandlerText& add(std::int64_t number) noexcept { return add_in_base(number, 10); }
  HandlerText& add_hex(std::uint64_t number) noexcept { return add("0x").add_in_base(number, 16); }
  [[nodiscard]] std::string_view view() const noexcept { return {room_.data(), used_}; }

 private:
  template <class Number>
  HandlerText& add_in_base(Number number, int base) noexcept {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
    return add({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  std::span<char> room_;
  std::size_t used_ = 0;
};

}  // namespace millrace
