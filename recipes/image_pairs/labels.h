// Scores of images, and the answer that follows from two of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::recipes::image_pairs {

enum class Answer : std::uint8_t { first, second, similar };
[[nodiscard]] const std::string& name_of(Answer answer);  // "First", "Second", "Similar"
[[nodiscard]] std::optional<Answer> answer_named(std::string_view name);

// The image with the higher score; similar if the scores differ by `theta` or less, compared in millionths, as in pair files.
[[nodiscard]] Answer answer_of(double first, double second, double theta);

struct Labelled {
  std::string name;
  double score = 0;
  std::string group;  // shared by images of the same subject; "" = the image is alone
};
// Reads lines "name score" of a UTF-8 text, in the order of names; blank lines and lines that begin with "#" are skipped. The
// name may contain blanks. Also accepted: a byte-order mark, names in quotes, and a tab, semicolon or comma in each line in place
// of the blank; scores may then have decimal commas (all of them or none), but not with commas as separators. DataError with line
// numbers: no number behind the name, a number that is not finite, a repeated name. Groups are read from groups.txt next to the
// file, if it exists: lines "name<tab>group"; DataError for a line without a tab.
[[nodiscard]] std::vector<Labelled> read_labels(const std::filesystem::path& file);

// At most `most` images per `width` of scores, drawn with `seed`; in the order of names.
[[nodiscard]] std::vector<Labelled> even_in_score(std::vector<Labelled> labels, std::int64_t most, double width,
                                                  std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
