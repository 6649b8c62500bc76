// What a NIfTI header says of a volume's place in the world, in words.
#pragma once

#include <string>

#include "millrace/data/files/nifti.h"

namespace millrace::data {

// Where the axes x, y and z of the voxels lead: "RAS" is right, anterior and superior. As nibabel.aff2axcodes of the affine has
// it; "?" for an axis that the affine gives no length, "???" where it has numbers that are not finite.
[[nodiscard]] std::string orientation_of(const NiftiHeader& header);
// What the affine is of: "the sform (scanner)", "the qform (aligned)", "voxel sizes alone, without a form".
[[nodiscard]] std::string form_of(const NiftiHeader& header);
// "mm" of lengths, "s" of the fourth axis; "" where the header does not say.
[[nodiscard]] std::string length_unit(const NiftiHeader& header);
// Millimetres of a length of 1; 1 where the header does not say.
[[nodiscard]] double millimetres(const NiftiHeader& header);
[[nodiscard]] std::string time_unit(const NiftiHeader& header);
// "1 x 1 x 2 mm", x first. Of the header's sizes; where the affine has others, these too.
[[nodiscard]] std::string voxel_text(const NiftiHeader& header);
// All of it in one line: "RAS by the sform (scanner), voxels of 1 x 1 x 2 mm".
[[nodiscard]] std::string read_as(const NiftiHeader& header);

}  // namespace millrace::data
