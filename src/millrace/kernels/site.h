// A dropout site whose elements are not one after the other in the site's stream: the raw kernels take stretches that are.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// Elements begin, begin + 1, ..., begin + count - 1 of a tensor, whose numbers in the stream are first, first + 1, ...
struct Stretch {
  std::int64_t begin = 0, count = 0, first = 0;
};

// Those of a tensor with so many elements, in its order. InternalError when the site's runs have another number of elements.
[[nodiscard]] std::vector<Stretch> stretches_of(const Dropout& site, std::int64_t elements);

// The site of elements begin, ..., begin + count - 1 of a tensor with so many elements.
[[nodiscard]] Dropout part_of(const Dropout& site, std::int64_t elements, std::int64_t begin, std::int64_t count);

// Runs table.dropout over a whole tensor, table.gelu likewise, in parallel. `args` describes all of it; its `keep` is set here.
void run_dropout(const detail::DropoutArgs& args, const Dropout& site);
void run_gelu(const detail::GeluArgs& args, const Dropout& site);

// Calls body(keep, first, last) for parts of [begin, end), in order: units of `width` elements each, of which the tensor has
// `units`, so that each part lies in one stretch. `keep` counts from the tensor's first element.
class UnitsOfSite {
 public:
  UnitsOfSite(const Dropout& site, std::int64_t units, std::int64_t width);
  void each(std::int64_t begin, std::int64_t end,
            const std::function<void(const detail::Keep&, std::int64_t, std::int64_t)>& body) const;

 private:
  detail::Keep keep_;
  std::int64_t width_;
  std::vector<Stretch> stretches_;
};

}  // namespace millrace::kernels
