// The pictures and tables of validations in a run folder, and which of them are kept.
//
//   NAME.csv                          a table of the latest validation
//   pictures/NAME.png                 a picture of the latest validation
//   pictures/NAME.step-00001200.png   the picture of the validation after that step; log.pictures_kept sets how many are kept
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/metrics/confusion.h"
#include "millrace/picture/picture.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {

// The recipe's pictures, and a picture of a matrix for each confusion table. `when` is added to the titles: "after step 1,200".
[[nodiscard]] std::vector<Picture> pictures_of(Recipe& recipe, const std::vector<metrics::Confusion>& tables,
                                               const std::string& when);
[[nodiscard]] std::string png_of(const Picture& picture);  // the bytes of the PNG file

// Selects which of the ascending `steps` to drop so that at most `most` are left. Drops the step whose two neighbours are
// closest to each other, again and again. The first and the last step stay until no step between them is left. With most = 1
// only the last step is kept.
[[nodiscard]] std::vector<std::int64_t> steps_to_drop(std::vector<std::int64_t> steps, std::size_t most);

// Writes a picture of the validation after `step` as NAME.png, and if `most` > 0 also under a name with the step. Returns the
// bytes of the file. Throws FsError, UsageError.
std::string keep_picture(RunFolder& folder, Fs& fs, const Picture& picture, std::int64_t step, std::size_t most);
// Writes <table>.csv, which replaces the table of the previous validation. Throws FsError, UsageError.
void keep_table(RunFolder& folder, Fs& fs, const TextTable& table);
// Keeps the pictures of at most `most` steps, and removes those of the steps that steps_to_drop() returns.
void thin_pictures(RunFolder& folder, std::size_t most);

}  // namespace millrace
