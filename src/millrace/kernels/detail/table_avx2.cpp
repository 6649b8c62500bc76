// The kernels for AVX2 with FMA; bf16 is widened to fp32 before it is multiplied.
#include "millrace/kernels/detail/vector_avx2.inl"

// table.inl uses the vectors that are included above.
#include "millrace/kernels/detail/table.inl"

namespace millrace::kernels::detail {

const Table& avx2_table() noexcept {
  static constexpr Table kTable = make_table("avx2");
  return kTable;
}

}  // namespace millrace::kernels::detail
