// Splits the elements of a dropout site into runs, as the raw kernels need them. The elements of a run are consecutive in the
// site's stream.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

using detail::DropoutRun;

// Address of the element that lies `elements` after `data`; null stays null.
[[nodiscard]] inline const void* moved(const void* data, std::int64_t elements, detail::Type type) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + elements * (type == detail::Type::f32 ? 4 : 2);
}
[[nodiscard]] inline void* moved(void* data, std::int64_t elements, detail::Type type) {
  return data == nullptr ? nullptr : static_cast<char*>(data) + elements * (type == detail::Type::f32 ? 4 : 2);
}

// Returns the runs of a tensor with `elements` elements, in the tensor's order. Throws InternalError if the site's runs have
// another number of elements.
[[nodiscard]] std::vector<DropoutRun> dropout_runs(const Dropout& site, std::int64_t elements);

// Returns the site of a part of a tensor, the elements begin, ..., begin + count - 1. The tensor has `elements` elements and the
// site `site`.
[[nodiscard]] Dropout part_of(const Dropout& site, std::int64_t elements, std::int64_t begin, std::int64_t count);

// Applies a kernel to a whole tensor: on the CPU the table's kernel, in parallel; on another device that device's kernel, on the
// current stream. `args` describes the whole tensor; the function sets `args.keep`.
void run_dropout(const detail::DropoutArgs& args, const Dropout& site, c10::Device device);
void run_gelu(const detail::GeluArgs& args, const Dropout& site, c10::Device device);

// Calls body for each run of dropout_runs(site, elements), in order. The second argument of body is the run's RecordedSite on the
// device in a step that a device records, and null in other steps.
void each_run(const Dropout& site, std::int64_t elements,
              const std::function<void(const DropoutRun&, const detail::RecordedSite*)>& body);

// Applies dropout to a tensor that consists of `units` units (rows, or heads of an attention), each with `width` elements.
class DropoutUnits {
 public:
  DropoutUnits(const Dropout& site, std::int64_t units, std::int64_t width);
  // Calls body(keep, first, last) for parts of the units [begin, end), in order, each part within one run. `keep` counts from the
  // tensor's first element.
  void each(std::int64_t begin, std::int64_t end,
            const std::function<void(const detail::Keep&, std::int64_t, std::int64_t)>& body) const;

 private:
  detail::Keep keep_;
  std::int64_t width_;
  std::vector<DropoutRun> stretches_;
};

}  // namespace millrace::kernels
