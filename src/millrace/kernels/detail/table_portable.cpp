// Plain C++ kernels, compiled for any machine the program runs on.
#include "millrace/kernels/detail/vector_portable.inl"

// table.inl uses the vectors that are included above.
#include "millrace/kernels/detail/table.inl"

namespace millrace::kernels::detail {

const Table& portable_table() noexcept {
  static constexpr Table kTable = make_table("portable");
  return kTable;
}

}  // namespace millrace::kernels::detail
