#include "millrace/hdf5/detail/blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace millrace::hdf5::detail {

std::int64_t product(Sizes sizes) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

Runs runs_of(Sizes shape, Sizes count) noexcept {
  Runs runs{.axes = count.size(), .run = 1};
  while (runs.axes > 0) {
    --runs.axes;
    runs.run *= count[runs.axes];
    if (count[runs.axes] != shape[runs.axes]) break;
  }
  return runs;
}

bool in_one_piece(Sizes shape, Sizes count) noexcept { return product(count.first(runs_of(shape, count).axes)) == 1; }

std::int64_t flat(Sizes shape, Sizes at) noexcept {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
  return index;
}

bool advance(std::span<std::int64_t> at, Sizes count) noexcept {
  for (std::size_t d = at.size(); d-- > 0;) {
    if (++at[d] < count[d]) return true;
    at[d] = 0;
  }
  return false;
}

void copy_block(const std::byte* from, Corner source, std::byte* to, Corner target, Sizes count,
                std::size_t element_bytes) noexcept {
  const Runs one = runs_of(source.shape, count);
  const Runs other = runs_of(target.shape, count);
  const std::size_t axes = std::max(one.axes, other.axes);
  const std::size_t bytes = static_cast<std::size_t>(std::min(one.run, other.run)) * element_bytes;
  std::array<std::int64_t, kMaxRank> counter{};
  std::array<std::int64_t, kMaxRank> a{};
  std::array<std::int64_t, kMaxRank> b{};
  const std::size_t rank = count.size();
  do {
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t step = d < axes ? counter[d] : 0;
      a[d] = source.at[d] + step;
      b[d] = target.at[d] + step;
    }
    const auto read = static_cast<std::size_t>(flat(source.shape, Sizes(a).first(rank)));
    const auto written = static_cast<std::size_t>(flat(target.shape, Sizes(b).first(rank)));
    std::memcpy(to + written * element_bytes, from + read * element_bytes, bytes);
  } while (advance(std::span(counter).first(axes), count));
}

}  // namespace millrace::hdf5::detail
