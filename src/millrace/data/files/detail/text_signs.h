// Looks for signs that a text is not the plain text that its owner expects, such as markup or damage. Counts them while the text
// is read, in constant memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data::detail {

class TextSigns {
 public:
  void add(std::string_view piece);  // adds a piece of the text; a piece is UTF-8 and cuts no code point

  [[nodiscard]] bool ends_lines_by_two() const noexcept;  // returns true if most lines end with carriage return and line feed
  [[nodiscard]] bool is_markup() const noexcept;
  [[nodiscard]] bool is_json() const noexcept;  // returns true if most lines are JSON objects
  // Returns a line for each sign, without the name of the file: "holds 120 characters U+FFFD, which …".
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  struct Frequent {  // a line that occurs several times
    std::uint64_t hash = 0;
    std::int64_t bytes = 0;  // a lower bound of the bytes in lines equal to this one; see count_line()
    std::int64_t count = 0;  // occurrences since the line entered the table
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
    std::int64_t size = 0;     // number of bytes from the first non-blank character to the end of the line
    char first = 0, last = 0;  // first and last non-blank characters; a character that is not ASCII is stored as 1
    std::string begin;
  };
  Line line_;  // the line that is being read
  char32_t before_ = 0;
  std::array<Frequent, 16> frequent_;
};

// Returns the lines to log: for each source a line for each sign, beginning with the source's label. If several sources are
// given and all of them are markup (or JSON), that is taken as intended and not reported. If all sources end their lines with
// carriage return and line feed, that is not reported either.
[[nodiscard]] std::vector<std::string> notices_of_signs(const std::vector<TextSigns>& all,
                                                        const std::vector<std::string>& labels);

}  // namespace millrace::data::detail
