// Kernels for AVX-512 with AVX512_BF16 and AMX: the matrix unit computes attention's bf16 products.
#include "millrace/kernels/detail/vector_avx512.inl"

// table.inl uses the vectors that are included above.
#include "millrace/kernels/detail/table.inl"

namespace millrace::kernels::detail {

const Table& amx_table() noexcept {
  static constexpr Table kTable = make_table("amx");
  return kTable;
}

}  // namespace millrace::kernels::detail
