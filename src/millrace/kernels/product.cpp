#include "millrace/kernels/product.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using detail::kPanelColumns;

constexpr std::int64_t kGroupRows = 192;  // rows that share a panel while it is in the cache

std::uint32_t* words_of(const at::Tensor& memory) { return reinterpret_cast<std::uint32_t*>(memory.mutable_data_ptr<int>()); }
const std::uint32_t* words_in(const at::Tensor& fp32) {
  return reinterpret_cast<const std::uint32_t*>(fp32.const_data_ptr<float>());
}

// The second operand in panels; `columns` of the product, `words` high.
at::Tensor packed(const at::Tensor& matrix, detail::Pack::Layout layout, std::int64_t columns, std::int64_t words) {
  const std::int64_t panels = (columns + kPanelColumns - 1) / kPanelColumns;
  at::Tensor memory = at::empty({panels * kPanelColumns * words}, matrix.options().dtype(at::kInt));
  const detail::Pack args{matrix.const_data_ptr(), words_of(memory), matrix.size(0), matrix.size(1), layout};
  const detail::Table& table = detail::table();
  parallel(panels, [&](std::int64_t begin, std::int64_t end) { table.pack_panels(args, begin, end); });
  return memory;
}

at::Tensor run(detail::Product args, const at::Tensor& like) {
  at::Tensor c = at::empty({args.rows, args.columns}, like.options().dtype(at::kFloat));
  args.c = c.mutable_data_ptr<float>();
  args.row_groups = std::max<std::int64_t>(1, args.rows / kGroupRows);
  const detail::Table& table = detail::table();
  parallel((args.columns + kPanelColumns - 1) / kPanelColumns * args.row_groups,
           [&](std::int64_t begin, std::int64_t end) { table.multiply(args, begin, end); });
  return c;
}

}  // namespace

at::Tensor product_with_transposed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  const at::Tensor panels = packed(w, detail::Pack::Layout::transposed, w.size(0), w.size(1));
  return run({.a = words_in(x),
              .panels = words_of(panels),
              .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
              .c = nullptr,
              .a_stride = x.size(1),
              .rows = x.size(0),
              .columns = w.size(0),
              .words = w.size(1),
              .row_groups = 1,
              .type = detail::Type::f32,
              .word_major = false},
             x);
}

at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor panels = packed(w, detail::Pack::Layout::rows, w.size(1), w.size(0));
  return run({.a = words_in(x),
              .panels = words_of(panels),
              .bias = nullptr,
              .c = nullptr,
              .a_stride = x.size(1),
              .rows = x.size(0),
              .columns = w.size(1),
              .words = w.size(0),
              .row_groups = 1,
              .type = detail::Type::f32,
              .word_major = false},
             x);
}

at::Tensor product_of_transposed(const at::Tensor& y, const at::Tensor& x, const at::Tensor& column_sums) {
  const bool fp32 = y.scalar_type() == at::kFloat;
  const std::int64_t words = fp32 ? y.size(0) : (y.size(0) + 1) / 2;
  const auto layout = fp32 ? detail::Pack::Layout::rows : detail::Pack::Layout::pairs;
  const at::Tensor panels = packed(x, layout, x.size(1), words);
  detail::Product args{.a = nullptr,
                       .panels = words_of(panels),
                       .bias = nullptr,
                       .c = nullptr,
                       .a_stride = y.size(1),
                       .rows = y.size(1),
                       .columns = x.size(1),
                       .words = words,
                       .row_groups = 1,
                       .type = type_of(y),
                       .word_major = true};
  if (fp32) {
    args.a = words_in(y);
    return run(args, x);
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
  return run(args, x);
}

}  // namespace millrace::kernels
