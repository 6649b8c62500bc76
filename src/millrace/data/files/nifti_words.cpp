#include "millrace/data/files/nifti_words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/data/files/detail/nifti_header.h"

namespace millrace::data {
namespace {

using Matrix3 = std::array<std::array<double, 3>, 3>;

double length_of_column(const NiftiHeader& header, std::size_t column) {
  return std::sqrt(std::pow(header.affine[0][column], 2) + std::pow(header.affine[1][column], 2) +
                   std::pow(header.affine[2][column], 2));
}

// Returns the unit vector perpendicular to columns `a` and `b` of the matrix; zeros if the columns are parallel.
std::array<double, 3> across(const Matrix3& m, std::size_t a, std::size_t b) {
  std::array<double, 3> vector{};
  for (std::size_t i = 0; i < 3; ++i) vector[i] = m[(i + 1) % 3][a] * m[(i + 2) % 3][b] - m[(i + 2) % 3][a] * m[(i + 1) % 3][b];
  const double length = std::hypot(vector[0], vector[1], vector[2]);
  for (double& value : vector) value = length > 0 ? value / length : 0;
  return vector;
}

// Returns the transpose of the inverse; zeros if the matrix is singular.
Matrix3 inverse_transposed(const Matrix3& m) {
  Matrix3 result{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      const std::size_t a = (i + 1) % 3, b = (i + 2) % 3, c = (j + 1) % 3, d = (j + 2) % 3;
      result[i][j] = m[a][c] * m[b][d] - m[a][d] * m[b][c];
    }
  }
  const double determinant = m[0][0] * result[0][0] + m[0][1] * result[0][1] + m[0][2] * result[0][2];
  if (!(std::abs(determinant) > 1e-15)) return {};
  for (auto& row : result) {
    for (double& value : row) value /= determinant;
  }
  return result;
}

// Returns the rotation, perhaps with a reflection, that is nearest to the affine's directions: Newton's iteration for the polar
// decomposition (Higham, "Computing the polar decomposition", 1986). A column of zeros stays zero. If two columns are zero or
// parallel, the result is the directions themselves.
Matrix3 directions_of(const NiftiHeader& header) {
  Matrix3 m{};
  std::vector<std::size_t> empty;
  for (std::size_t j = 0; j < 3; ++j) {
    const double length = length_of_column(header, j);
    if (length == 0) empty.push_back(j);
    for (std::size_t i = 0; i < 3; ++i) m[i][j] = length == 0 ? 0 : header.affine[i][j] / length;
  }
  if (empty.size() == 1) {
    const std::array<double, 3> normal = across(m, (empty[0] + 1) % 3, (empty[0] + 2) % 3);
    for (std::size_t i = 0; i < 3; ++i) m[i][empty[0]] = normal[i];
  }
  constexpr int kSteps = 100;  // many, because the first steps only halve the error if columns are nearly parallel
  for (int step = 0; step < kSteps; ++step) {
    const Matrix3 inverse = inverse_transposed(m);
    if (inverse == Matrix3{}) break;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) m[i][j] = (m[i][j] + inverse[i][j]) / 2;
    }
  }
  for (const std::size_t j : empty) {
    for (auto& row : m) row[j] = 0;
  }
  return m;
}

double strength(const Matrix3& m, std::size_t column) {
  return std::max({std::abs(m[0][column]), std::abs(m[1][column]), std::abs(m[2][column])});
}

// Returns the name of a qform or sform code, as in nifti1.h.
std::string code_text(int code) {
  constexpr std::array kNames = {"unknown", "scanner", "aligned", "Talairach", "MNI", "template"};
  return kNames.at(static_cast<std::size_t>(code));
}

std::string sizes_text(const std::array<double, 3>& sizes) {
  return joined(sizes, " x ", [](double size) { return significant(size, 5); });
}

}  // namespace

std::string orientation_of(const NiftiHeader& header) {
  constexpr std::array<std::array<char, 2>, 3> kCodes = {{{'L', 'R'}, {'P', 'A'}, {'I', 'S'}}};
  Matrix3 directions = directions_of(header);
  std::string codes = "???";
  for (const auto& row : directions) {
    if (!std::all_of(row.begin(), row.end(), [](double value) { return std::isfinite(value); })) return codes;
  }
  // The axis with the clearest direction chooses first, as in nibabel.
  std::array<std::size_t, 3> order = {0, 1, 2};
  const Matrix3 whole = directions;
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t axis) { return strength(whole, axis); });
  for (const std::size_t axis : order) {
    std::size_t to = 0;
    for (std::size_t i = 1; i < 3; ++i) {
      if (std::abs(directions[i][axis]) > std::abs(directions[to][axis])) to = i;
    }
    constexpr double kNothing = 1e-8;
    if (std::abs(directions[to][axis]) <= kNothing) continue;
    codes[axis] = kCodes[to][directions[to][axis] > 0 ? 1 : 0];
    directions[to] = {};
  }
  return codes;
}

std::string form_of(const NiftiHeader& header) {
  if (header.sform_code > 0) return "the sform (" + code_text(header.sform_code) + ")";
  if (header.qform_code > 0) return "the qform (" + code_text(header.qform_code) + ")";
  return "only voxel sizes, without a form";
}

std::string length_unit(const NiftiHeader& header) {
  constexpr std::array kUnits = {"", "m", "mm", "um", "", "", "", ""};
  return kUnits[header.units & 7U];
}

double millimetres(const NiftiHeader& header) {
  constexpr std::array<double, 8> kLengths = {1, 1000, 1, 0.001, 1, 1, 1, 1};
  return kLengths[header.units & 7U];
}

std::string time_unit(const NiftiHeader& header) {
  constexpr std::array kUnits = {"", "s", "ms", "us", "Hz", "ppm", "rad/s", ""};
  return kUnits[(header.units >> 3U) & 7U];
}

std::string voxel_text(const NiftiHeader& header) {
  std::array<double, 3> of_header{}, of_affine{};
  bool differs = false;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const bool there = axis < header.shape.size();
    of_header[axis] = there ? detail::voxel_size(header.pixdim[axis + 1]) : 1;
    of_affine[axis] = length_of_column(header, axis);
    constexpr double kSame = 1e-3;  // sizes count as equal if they differ by at most this share, which exceeds f32 rounding
    differs = differs || !(std::abs(of_affine[axis] - of_header[axis]) <= kSame * of_header[axis]);
  }
  const std::string unit = length_unit(header);
  return sizes_text(of_header) + (unit.empty() ? ", without a unit" : " " + unit) +
         (differs ? " (by the affine " + sizes_text(of_affine) + ")" : "");
}

std::string read_as(const NiftiHeader& header) {
  return orientation_of(header) + " by " + form_of(header) + ", voxels of " + voxel_text(header);
}

}  // namespace millrace::data
