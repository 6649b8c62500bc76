// Signs of a text that is not what its owner takes it for, counted as it is read, in memory that does not grow with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data::detail {

class TextSigns {
 public:
  void add(std::string_view piece);  // of UTF-8, cut between code points

  [[nodiscard]] bool ends_lines_by_two() const noexcept;  // most lines end with carriage return and line feed
  [[nodiscard]] bool is_markup() const noexcept;
  [[nodiscard]] bool is_json() const noexcept;  // most lines are an object each
  // One line each, without the name of the file: "holds 120 characters U+FFFD, which …".
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  struct Frequent {  // of lines that are alike
    std::uint64_t hash = 0;
    std::int64_t bytes = 0;  // by which it leads, those of all others taken off: no more than there are
    std::int64_t count = 0;  // met since it is here
    std::string begin;
  };
  void end_line();
  void count_line();
  void add_to_line(std::string_view character);
  void count_character(char32_t character);
  [[nodiscard]] const Frequent& most_frequent() const;

  std::int64_t bytes_ = 0, lines_ = 0, returns_ = 0, objects_ = 0, tags_ = 0, lost_ = 0, twice_ = 0;
  bool begins_as_page_ = false;
  struct Line {
    std::uint64_t hash = 0;
    std::int64_t size = 0;     // bytes from the first that is no blank
    char first = 0, last = 0;  // that are no blanks; of other alphabets 1
    std::string begin;
  };
  Line line_;  // that is read
  char32_t before_ = 0;
  std::array<Frequent, 16> frequent_;
};

// What to say of `all`, a line for each sign, the name of its source before it. A sign that all of two and more sources show is
// how they are meant to be.
[[nodiscard]] std::vector<std::string> told_of_signs(const std::vector<TextSigns>& all, const std::vector<std::string>& labels);

}  // namespace millrace::data::detail
