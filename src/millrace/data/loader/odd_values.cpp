#include "millrace/data/loader/odd_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "millrace/base/format.h"
#include "millrace/base/half.h"
#include "millrace/base/median.h"

namespace millrace::data {
namespace {

constexpr std::int64_t kMostForMedian = 1 << 16;

template <class T>
T value_at(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

float of_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

// Calls use(read, parts). read(i) is the i-th number; an element consists of `parts` numbers (two if it is complex). Returns
// false for types other than floats.
template <class Use>
bool with_reader(DType dtype, const std::byte* data, const Use& use) {
  switch (dtype) {
    case DType::f16:
      use([data](std::int64_t i) { return of_half(value_at<std::uint16_t>(data, i)); }, 1);
      return true;
    case DType::bf16:
      use([data](std::int64_t i) { return of_bfloat(value_at<std::uint16_t>(data, i)); }, 1);
      return true;
    case DType::f32:
    case DType::c64:
      use([data](std::int64_t i) { return value_at<float>(data, i); }, dtype == DType::c64 ? 2 : 1);
      return true;
    case DType::f64:
    case DType::c128:
      use([data](std::int64_t i) { return value_at<double>(data, i); }, dtype == DType::c128 ? 2 : 1);
      return true;
    default:
      return false;
  }
}

Shape index_in(const Shape& shape, std::int64_t element) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = element % std::max<std::int64_t>(shape[axis], 1);
    element /= std::max<std::int64_t>(shape[axis], 1);
  }
  return index;
}

std::optional<NotFinite> look_at(const Field& field, const std::byte* row) {
  std::optional<NotFinite> found;
  const std::int64_t elements = element_count(field.shape).value_or(0);
  with_reader(field.dtype, row, [&](const auto& read, int parts) {
    for (std::int64_t i = 0; i < elements; ++i) {
      for (int part = 0; part < parts; ++part) {
        const auto value = read(i * parts + part);
        if (std::isfinite(value)) continue;
        if (!found) found = NotFinite{.field = field.name, .of = elements, .first = index_in(field.shape, i), .value = value};
        ++found->count;
        break;
      }
    }
  });
  return found;
}

}  // namespace

std::vector<NotFinite> not_finite_in(const HostBatch& batch) {
  std::vector<NotFinite> all;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const HostBatch::Group& group = batch.groups[g];
    for (std::size_t row = 0; row < group.positions.size(); ++row) {
      for (std::size_t f = 0; f < group.fields.size(); ++f) {
        std::optional<NotFinite> found = look_at(group.fields[f], group.data[f] + row * group.fields[f].bytes());
        if (!found) continue;
        found->group = g;
        found->row = static_cast<std::int64_t>(row);
        all.push_back(*std::move(found));
      }
    }
  }
  return all;
}

std::string to_text(const NotFinite& found) {
  return "field " + printable(found.field) + ": " + with_commas(found.count) + " of " + with_commas(found.of) +
         (found.count == 1 ? " values is" : " values are") + " not finite, the first, " + fixed(found.value, 0) + ", at " +
         millrace::to_text(found.first);
}

std::optional<Absurd> absurd_in(const FieldValues& field) {
  std::optional<Absurd> found;
  const std::int64_t of_row = element_count(field.shape).value_or(0);
  with_reader(field.dtype, field.data, [&](const auto& read, int parts) {
    const std::int64_t count = field.rows * of_row * parts, stride = std::max<std::int64_t>(count / kMostForMedian, 1);
    double most = 0;
    std::int64_t place = 0;
    std::vector<double> some;
    for (std::int64_t i = 0; i < count; ++i) {
      const double size = std::abs(static_cast<double>(read(i)));
      if (size > most) {
        most = size;
        place = i;
      }
      if (i % stride == 0 && size > 0 && std::isfinite(size)) some.push_back(size);
    }
    const bool is_infinite = std::isinf(most);
    const double usual = some.empty() || is_infinite ? 0 : median(std::move(some));
    if (!is_infinite && !(usual > 0 && most > kAbsurd * usual)) return;
    const std::int64_t element = place / parts;
    found = Absurd{.row = element / of_row, .at = index_in(field.shape, element % of_row), .value = most, .usual = usual};
  });
  return found;
}

}  // namespace millrace::data
