// Texts for people about where a NIfTI header places its volume in space.
#pragma once

#include <string>

#include "millrace/data/files/nifti.h"

namespace millrace::data {

// Returns the directions of the voxel axes x, y and z, as nibabel.aff2axcodes gives them for the affine: "RAS" means right,
// anterior, superior. An axis that has length 0 in the affine gives "?". The result is "???" if the affine has numbers that are
// not finite.
[[nodiscard]] std::string orientation_of(const NiftiHeader& header);
// Returns where the affine comes from: "the sform (scanner)", "the qform (aligned)", "only voxel sizes, without a form".
[[nodiscard]] std::string form_of(const NiftiHeader& header);
// Returns the unit of lengths, such as "mm"; time_unit() returns the unit of the fourth axis, such as "s". Returns "" if the
// header does not say.
[[nodiscard]] std::string length_unit(const NiftiHeader& header);
// Returns the millimetres per length unit; 1 if the header does not say.
[[nodiscard]] double millimetres(const NiftiHeader& header);
[[nodiscard]] std::string time_unit(const NiftiHeader& header);
// Returns a text such as "1 x 1 x 2 mm", x first. The numbers are the header's voxel sizes; if the sizes in the affine differ,
// the text has those too.
[[nodiscard]] std::string voxel_text(const NiftiHeader& header);
// Returns directions, origin and voxel sizes in one line: "RAS by the sform (scanner), voxels of 1 x 1 x 2 mm".
[[nodiscard]] std::string read_as(const NiftiHeader& header);

}  // namespace millrace::data
