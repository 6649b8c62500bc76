// Describes in words where a NIfTI header places its volume in space.
#pragma once

#include <string>

#include "millrace/data/files/nifti.h"

namespace millrace::data {

// The directions of the voxel axes x, y and z: "RAS" is right, anterior and superior, as nibabel.aff2axcodes gives for the
// affine; "?" for an axis of length 0 in the affine, "???" if the affine has numbers that are not finite.
[[nodiscard]] std::string orientation_of(const NiftiHeader& header);
// The origin of the affine: "the sform (scanner)", "the qform (aligned)", "voxel sizes alone, without a form".
[[nodiscard]] std::string form_of(const NiftiHeader& header);
// Units: "mm" for lengths; "s" for the fourth axis (time_unit()); "" if the header does not say.
[[nodiscard]] std::string length_unit(const NiftiHeader& header);
// Millimetres per length unit; 1 if the header does not say.
[[nodiscard]] double millimetres(const NiftiHeader& header);
[[nodiscard]] std::string time_unit(const NiftiHeader& header);
// "1 x 1 x 2 mm", x first: the header's sizes, followed by the affine's if they differ.
[[nodiscard]] std::string voxel_text(const NiftiHeader& header);
// All of this in one line: "RAS by the sform (scanner), voxels of 1 x 1 x 2 mm".
[[nodiscard]] std::string read_as(const NiftiHeader& header);

}  // namespace millrace::data
