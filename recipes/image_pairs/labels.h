// The scores of images, and the answer about a pair that follows from two scores.
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

// Returns First or Second for the image with the higher score, but Similar if the scores, rounded to millionths as in files of
// pairs, differ by at most `theta`.
[[nodiscard]] Answer answer_of(double first, double second, double theta);

struct Labelled {
  std::string name;
  double score = 0;
  std::string group;  // images of the same subject have the same group; "" = the image has no group
};
// Reads lines "name score" of a UTF-8 text and returns them sorted by name. Blank lines and lines that begin with "#" are
// skipped. A name may contain blanks. A byte-order mark and names in quotes are accepted. Name and score may also be separated
// by a tab, semicolon or comma, the same one in all lines. If commas are not the separators, scores may have decimal commas,
// either all scores or none. Throws DataError with line numbers if a name has no number, a number is not finite, or a name is
// repeated. If groups.txt exists in the same folder, reads groups from its lines "name<tab>group"; throws DataError for a line
// without a tab.
[[nodiscard]] std::vector<Labelled> read_labels(const std::filesystem::path& file);

// Draws with `seed` at most `most` images from each interval of scores of the width `width`. Returns them sorted by name.
[[nodiscard]] std::vector<Labelled> even_in_score(std::vector<Labelled> labels, std::int64_t most, double width,
                                                  std::uint64_t seed);

}  // namespace millrace::recipes::image_pairs
