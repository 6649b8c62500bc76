// The kernels for AVX-512 (F, BW, DQ, VL); bf16 is widened to fp32 before it is multiplied.
#include "millrace/kernels/detail/vector_avx512.inl"

// table.inl uses the vectors that are included above.
#include "millrace/kernels/detail/table.inl"

namespace millrace::kernels::detail {

const Table& avx512_table() noexcept {
  static constexpr Table kTable = make_table("avx512");
  return kTable;
}

}  // namespace millrace::kernels::detail
