// The table of this file's instruction set.
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
  return {.name = name,
          .keep_bits = keep_bits,
          .dropout = dropout,
          .norm_forward = norm_forward,
          .norm_backward = norm_backward,
          .gelu = gelu,
          .quick_gelu = quick_gelu,
          .smooth_leaky = smooth_leaky,
          .attention_scratch = attention_scratch,
          .attention_forward = attention_forward,
          .attention_backward = attention_backward,
          .cross_entropy_forward = cross_entropy_forward,
          .cross_entropy_backward = cross_entropy_backward,
          .pack_panels = pack_panels,
          .pack_word_rows = pack_word_rows,
          .components_scratch = components_scratch,
          .remove_components = remove_components,
          .multiply = multiply,
          .conv3d_forward = conv3d_forward,
          .conv3d_weights = conv3d_weights,
          .rms_norm_scratch = rms_norm_scratch,
          .rms_norm = rms_norm,
          .group_norm_moments = group_norm_moments,
          .group_norm_sums = group_norm_sums,
          .group_norm_apply = group_norm_apply,
          .soft_pool_scratch = soft_pool_scratch,
          .soft_pool = soft_pool,
          .rms_rows_forward = rms_rows_forward,
          .rms_rows_backward = rms_rows_backward,
          .swiglu = swiglu,
          .rotate = rotate,
          .one_query_forward = one_query_forward,
          .one_query_backward = one_query_backward};
}

}  // namespace
