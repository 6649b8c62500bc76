#include "millrace/kernels/product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using detail::kPanelColumns;

constexpr std::int64_t kGroupRows = 192;  // rows that use a panel while it is in the cache

std::uint32_t* words_of(const at::Tensor& memory) { return reinterpret_cast<std::uint32_t*>(memory.mutable_data_ptr<int>()); }
const std::uint32_t* words_in(const at::Tensor& fp32) {
  return reinterpret_cast<const std::uint32_t*>(fp32.const_data_ptr<float>());
}

// Bytes of the second operand that are packed at a time, if it is packed in parts. A part stays in the cache, and no full copy of
// a large operand is in memory.
constexpr std::int64_t kPackedBytes = std::int64_t{512} << 10U;
// The first operand is read again for each packed part of the second operand. If the first operand has more bytes than this, it
// does not stay in the core's caches, so the second operand is packed as a whole.
constexpr std::int64_t kReadAgainBytes = std::int64_t{1200} << 10U;

// Returns the number of panels to pack at a time: all of them if the first operand exceeds kReadAgainBytes. Otherwise there must
// be enough panels to give each thread one of the panels times row_groups items of work.
std::int64_t panels_at_a_time(const detail::Product& args) {
  const std::int64_t row_bytes = args.words * static_cast<std::int64_t>(sizeof(std::uint32_t)),
                     panel_bytes = kPanelColumns * row_bytes;
  if (args.rows * row_bytes > kReadAgainBytes) return args.columns;
  const std::int64_t shares = (at::get_num_threads() + args.row_groups - 1) / args.row_groups;
  return std::max(shares, kPackedBytes / std::max<std::int64_t>(1, panel_bytes));
}

// Multiplies args.a by `matrix`, which is packed by `layout`. If `whole` is true, the matrix is packed as a whole, because a
// word-major args.a would otherwise be packed again for each part of the matrix.
at::Tensor multiply(detail::Product args, const at::Tensor& matrix, detail::Pack::Layout layout, bool whole) {
  const std::int64_t panels = (args.columns + kPanelColumns - 1) / kPanelColumns;
  args.row_groups = std::max<std::int64_t>(1, args.rows / kGroupRows);
  args.c_stride = args.columns;
  const std::int64_t most = whole ? panels : std::min(panels, panels_at_a_time(args));
  const at::Tensor memory = at::empty({most * kPanelColumns * args.words}, matrix.options().dtype(at::kInt));
  at::Tensor c = at::empty({args.rows, args.columns}, matrix.options().dtype(at::kFloat));
  args.panels = words_of(memory);
  const detail::Table& table = detail::table();
  for (std::int64_t first = 0; first < panels; first += most) {
    const std::int64_t count = std::min(most, panels - first), column = first * kPanelColumns;
    const detail::Pack pack{matrix.const_data_ptr(), words_of(memory), matrix.size(0), matrix.size(1), layout, first};
    parallel(count, [&](std::int64_t begin, std::int64_t end) { table.pack_panels(pack, first + begin, first + end); });
    detail::Product part = args;
    part.c = c.mutable_data_ptr<float>() + column;
    part.bias = args.bias == nullptr ? nullptr : args.bias + column;
    part.columns = std::min(args.columns - column, count * kPanelColumns);
    parallel(count * part.row_groups, [&](std::int64_t begin, std::int64_t end) { table.multiply(part, begin, end); });
  }
  return c;
}

}  // namespace

at::Tensor product_with_transposed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  return multiply({.a = words_in(x),
                   .panels = nullptr,
                   .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                   .c = nullptr,
                   .a_stride = x.size(1),
                   .c_stride = 0,
                   .rows = x.size(0),
                   .columns = w.size(0),
                   .words = w.size(1),
                   .row_groups = 1,
                   .type = detail::Type::f32,
                   .word_major = false},
                  w, detail::Pack::Layout::transposed, /*whole=*/false);
}

at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  return multiply({.a = words_in(x),
                   .panels = nullptr,
                   .bias = nullptr,
                   .c = nullptr,
                   .a_stride = x.size(1),
                   .c_stride = 0,
                   .rows = x.size(0),
                   .columns = w.size(1),
                   .words = w.size(0),
                   .row_groups = 1,
                   .type = detail::Type::f32,
                   .word_major = false},
                  w, detail::Pack::Layout::rows, /*whole=*/false);
}

at::Tensor product_of_transposed(const at::Tensor& y, const at::Tensor& x, const at::Tensor& column_sums) {
  const bool fp32 = y.scalar_type() == at::kFloat;
  const std::int64_t words = fp32 ? y.size(0) : (y.size(0) + 1) / 2;
  const auto layout = fp32 ? detail::Pack::Layout::rows : detail::Pack::Layout::pairs;
  detail::Product args{.a = nullptr,
                       .panels = nullptr,
                       .bias = nullptr,
                       .c = nullptr,
                       .a_stride = y.size(1),
                       .c_stride = 0,
                       .rows = y.size(1),
                       .columns = x.size(1),
                       .words = words,
                       .row_groups = 1,
                       .type = type_of(y),
                       .word_major = true};
  if (fp32) {
    args.a = words_in(y);
    return multiply(args, x, layout, /*whole=*/true);
  }
  args.a_stride = (y.size(1) + 15) / 16 * 16;
  const at::Tensor pairs = at::empty({words * args.a_stride}, y.options().dtype(at::kInt));
  const detail::WordRows rows{.matrix = static_cast<const std::uint16_t*>(y.const_data_ptr()),
                              .words = words_of(pairs),
                              .column_sums = column_sums.defined() ? column_sums.mutable_data_ptr<float>() : nullptr,
                              .rows = y.size(0),
                              .columns = y.size(1),
                              .stride = args.a_stride};
  const detail::Table& table = detail::table();
  parallel(args.a_stride / 16, [&](std::int64_t begin, std::int64_t end) { table.pack_word_rows(rows, begin, end); });
  args.a = words_of(pairs);
  return multiply(args, x, layout, /*whole=*/true);
}

}  // namespace millrace::kernels
