// The kernels for AVX-512 with AVX512_BF16: bf16 products in hardware.
#include "millrace/kernels/detail/vector_avx512.inl"

// table.inl uses the vectors that are included above.
#include "millrace/kernels/detail/table.inl"

namespace millrace::kernels::detail {

const Table& avx512_bf16_table() noexcept {
  static constexpr Table kTable = make_table("avx512_bf16");
  return kTable;
}

}  // namespace millrace::kernels::detail
