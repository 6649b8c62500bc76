// The pictures and tables of a validation, and which of them stay in a run folder.
//
//   NAME.csv                          a table of the latest validation
//   pictures/NAME.png                 of the latest validation
//   pictures/NAME.step-00001200.png   of the validation after that step; log.pictures_kept sets how many stay
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/metrics/confusion.h"
#include "millrace/picture/picture.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {

// The recipe's pictures, and a matrix for each table of counts. `when`: for the titles, "after step 1,200".
[[nodiscard]] std::vector<Picture> pictures_of(Recipe& recipe, const std::vector<metrics::Confusion>& tables,
                                               const std::string& when);
[[nodiscard]] std::string png_of(const Picture& picture);  // the bytes of its file

// Selects, from these ascending steps, those to drop so that at most `most` are left. Each time the step whose neighbours are
// closest together is dropped; the first and the last step are never chosen while a step between them is left. With most = 1 the
// last step stays.
[[nodiscard]] std::vector<std::int64_t> steps_to_drop(std::vector<std::int64_t> steps, std::size_t most);

// Writes a picture of the validation after `step`; if `most` > 0 also under the step's name. Returns its file's bytes. FsError,
// UsageError.
std::string keep_picture(RunFolder& folder, Fs& fs, const Picture& picture, std::int64_t step, std::size_t most);
// Writes <table>.csv for the latest validation. FsError, UsageError.
void keep_table(RunFolder& folder, Fs& fs, const TextTable& table);
// Removes the pictures of steps that need not be kept, for all names of pictures.
void thin_pictures(RunFolder& folder, std::size_t most);

}  // namespace millrace
