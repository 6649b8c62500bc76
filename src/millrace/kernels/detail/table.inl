// Defines the table of the instruction set for which a file is compiled.
#pragma once

#include "millrace/kernels/detail/attention.inl"
#include "millrace/kernels/detail/components.inl"
#include "millrace/kernels/detail/conv3d.inl"
#include "millrace/kernels/detail/decoder.inl"
#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/group_norm.inl"
#include "millrace/kernels/detail/product.inl"
#include "millrace/kernels/detail/rms_norm.inl"
#include "millrace/kernels/detail/rows.inl"
#include "millrace/kernels/detail/soft_pool.inl"

namespace {

constexpr Table make_table(const char* name) {
#define MILLRACE_ENTRY(result, kernel, arguments) .kernel = (kernel),
  return {.name = name, MILLRACE_KERNELS(MILLRACE_ENTRY)};
#undef MILLRACE_ENTRY
}

}  // namespace
