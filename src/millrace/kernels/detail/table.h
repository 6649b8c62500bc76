// The raw kernels behind kernels.h: they take plain pointers and do one share of the work per call. Each instruction set has a
// table, and all tables are made from the same templates (*.inl). The files that define the tables are compiled with the
// instruction set's flags. These files include no header with inline functions, because a copy compiled with these flags could
// end up in the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace millrace::kernels::detail {

enum class Type : std::uint8_t { f32, bf16, f16 };  // the tables below support only f32 and bf16

// The dropout of a site; see dropout_map.h.
struct Keep {
  std::uint64_t key = 0;
  std::int64_t first = 0;       // number of the tensor's first element in the site's stream
  std::uint32_t threshold = 0;  // 0 = keep all
  float scale = 1.0F;
};

// A run: elements begin, begin + 1, ..., begin + count - 1 of a tensor. Their numbers in a site's stream are first, first + 1,
// ...
struct DropoutRun {
  std::int64_t begin = 0, count = 0, first = 0;
};

// The values of a dropout that change from step to step. A device that has recorded a step reads them from its memory.
struct RecordedSite {
  std::uint64_t key = 0;
  // Number of the tensor's first element in the site's stream; the other elements have the numbers that follow.
  std::int64_t first = 0;
};

// out = keep * scale * x (+ residual); the residual has the type of `out`. The backward pass makes the same call with the
// gradient as x.
struct DropoutArgs {
  const void* x;
  const void* residual;  // may be null
  void* out;
  Type x_type, out_type;
  std::int64_t count;
  Keep keep;
};

// A row has `width` elements. With a branch, sum = residual + keep * scale * branch. Without a branch, sum is the residual, and
// sum is not written.
struct NormForward {
  const void* residual;
  const void* branch;  // may be null; has y's type
  void* sum;           // has the residual's type
  void* y;
  const float *weight, *bias;
  float* statistics;  // mean and 1 / deviation of each row
  Type residual_type, y_type;
  std::int64_t width;
  float epsilon;
  Keep keep;
};

struct NormBackward {
  const void* sum;
  const void* y_gradient;    // may be null
  const void* sum_gradient;  // may be null
  void* residual_gradient;   // has the residual's type
  void* branch_gradient;     // may be null
  const float *statistics, *weight;
  Type residual_type, y_type;
  std::int64_t width;
  Keep keep;
};

// out = dropout(gelu(x)); with a gradient out = keep * scale * gradient * gelu'(x).
struct GeluArgs {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  Type type;
  std::int64_t count;
  Keep keep;
};

// out = f(x); with a gradient out = gradient * f'(x). The work is divided into groups of 128 elements. `out` may be x or the
// gradient.
struct PointwiseArgs {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  Type type;
  std::int64_t count;
};

// A view (B, T, H, D). Strides are in elements; the last dimension is contiguous.
struct HeadView {
  void* data;
  std::int64_t batch_stride, row_stride, head_stride;
};

struct Attention {
  HeadView q, k, v, out;
  HeadView out_gradient, q_gradient, k_gradient, v_gradient;  // backward only
  // (B, H, T): log of the sum of exp(scores), saved for the backward pass
  float* log_sums;
  Type type;
  std::int64_t batch, rows, heads, head_size;
  float scale;
  bool causal;  // true: each row sees the keys up to its own position; false: all keys
  Keep keep;
};

struct CrossEntropy {
  const void* logits;
  const std::int64_t* targets;
  float* log_sums;        // (N): written in the forward pass, read in the backward pass
  void* gradient;         // backward pass only
  const float* upstream;  // backward pass only: gradient of the sum
  Type type;
  std::int64_t classes, ignore_index;
};

// Sums over a share of the rows. `bad_row` is the first row whose target lies outside [0, classes); -1 if all targets are valid.
struct CrossEntropySum {
  double loss = 0;
  std::int64_t count = 0;
  std::int64_t bad_row = -1;
};

// A contiguous matrix (rows, columns), packed into panels of kPanelColumns columns. A panel is `words` rows high. A word is one
// fp32 number, or two bf16 neighbours along the axis that a product sums over. The order within a panel depends on the table.
inline constexpr std::int64_t kPanelColumns = 64;
struct Pack {
  enum class Layout : std::uint8_t {
    rows,        // fp32; the product sums over the matrix's rows
    transposed,  // fp32; the product sums over the matrix's columns
    pairs        // bf16; the product sums over the matrix's rows
  };
  const void* matrix;
  std::uint32_t* panels;
  std::int64_t rows, columns;
  Layout layout;
  std::int64_t first_panel;  // the number of the panel at `panels`
};

// A bf16 matrix (rows, columns) as words: words[pair * stride + column] holds the elements of two neighbouring rows in one
// column. The work is divided into strips of 16 columns.
struct WordRows {
  const std::uint16_t* matrix;
  std::uint32_t* words;
  float* column_sums;  // may be null
  std::int64_t rows, columns, stride;
};

// c (rows, columns) = a times panels + bias, in fp32; c's rows are c_stride apart. The word (row, word) of a is a[row * a_stride
// + word], or a[word * a_stride + row] with word_major. In bf16, a is always word_major, and a_stride is at least six. In fp32,
// `rows` is at least six. The work is divided into panels times row_groups items.
struct Product {
  const std::uint32_t* a;
  const std::uint32_t* panels;
  const float* bias;  // may be null
  float* c;
  std::int64_t a_stride, c_stride, rows, columns, words, row_groups;
  Type type;
  bool word_major;
};

// out = d - vectors (vectors^T d) with d = x - mean, for planes (frequencies, pixels). The work is divided into tiles of 64
// pixels of a plane.
struct Components {
  const float* x;
  float* out;
  const float* mean;  // (frequencies)
  // (frequencies, count): each column is a component; count is rounded up to a multiple of 4 with zero columns
  const float* vectors;
  std::int64_t frequencies, pixels, count;
};

// A convolution with kernel 3 and stride 1 over volumes (samples, depth, height, width, channels) with circular padding. The
// channels of `more` follow those of x. The work is divided into bands of `band` rows of a plane. `columns` is out_channels
// rounded up to a multiple of 16. Panels are (27, channels, columns). In bf16, a word holds two neighbouring channels; an odd
// last channel is paired with a zero. The weights' gradient is summed in an array (9, columns, 3 * channels rounded up to a
// multiple of 16). The array's first axis counts the kernel's planes and rows, the second the output channels, the third the
// kernel's columns and the input channels.
struct Conv3d {
  const void* x;
  const void* more;             // may be null
  const std::uint32_t* panels;  // for the forward pass
  const float* bias;            // for the forward pass: `columns` numbers, or null
  void* out;                    // for the forward pass
  const void* out_gradient;     // for the gradients of the weights
  std::int64_t samples, depth, height, width, channels, more_channels, out_channels, band;
  Type type;
};
inline constexpr std::int64_t kConvSlack = 32;  // a tile may read this many pixels beyond the end of a copied row

// out = SiLU(x * rate) with rate = rsqrt(mean over channels of x^2 + epsilon); with a gradient out = the gradient of x. Volumes
// are (samples, channels, positions), or (samples, positions, channels) with channels_last. The work is divided into blocks of
// kRmsBlock positions: of one sample, or with channels_last of all samples together.
struct RmsNorm {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  float* rates;  // (samples, positions): written in the forward pass, read in the backward pass
  Type type;
  std::int64_t samples, channels, positions;
  bool channels_last;
  float epsilon;
};
inline constexpr std::int64_t kRmsBlock = 64;

// Group norm and its activation: out = act(x * scale + shift); with a gradient out = the gradient of x, scale * act' * gradient
// + x * factor + offset. Volumes are (samples, channels, positions), or (samples, positions, channels) with channels_last. The
// work is divided into segments of `segment` positions: of one channel, or with channels_last of all channels of a sample.
// Partial sums are (samples, channels, segments, 2), or (samples, segments, 2, channels) with channels_last.
struct GroupNorm {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  float* partials;
  const float *scale, *shift, *factor, *offset;  // (samples, channels); factor and offset only in the backward pass
  Type type;
  std::int64_t samples, channels, positions, segment, segments;
  bool channels_last;
  bool silu;    // SiLU; otherwise a leaky ReLU
  float slope;  // slope of the leaky ReLU below zero
};

// A blur and a soft pooling of planes (height, width); with a gradient: the gradient of x. x is (planes, pixels), or (planes /
// channels, pixels, channels) with channels_last. The work is divided into groups of sixteen planes; with channels_last the
// planes of a group are channels of one sample.
struct SoftPool {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  Type type;
  std::int64_t planes, channels, height, width, out_height, out_width, stride;
  bool channels_last;
};

// y = sum * rate * weight with sum = x + branch and rate = 1 / sqrt(mean(sum^2) + epsilon), row by row. The branch has y's type.
struct RmsRows {
  const void* x;
  const void* branch;  // may be null
  void* sum;           // x + branch; null without a branch
  void* y;
  const float* weight;
  float* rates;  // `rate` of each row
  Type x_type, y_type;
  std::int64_t width;
  float epsilon;
};
struct RmsRowsBackward {
  const void* x;         // the sum of the forward pass; if null, y and `inverse` are used instead
  const void* y;         // the forward pass's result
  const float* inverse;  // 1 / weight
  const void* y_gradient;
  const void* sum_gradient;  // may be null
  void* x_gradient;
  void* branch_gradient;  // may be null
  const float *rates, *weight;
  Type x_type, y_type;
  std::int64_t width;
};

// Rows of 2 * width numbers, gate and up side by side: out = silu(gate) * up; with a gradient (rows, width): out = the gradient
// of x.
struct Swiglu {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  Type type;
  std::int64_t width;
};

// Rotates the pairs (i, i + half) of each row and head by the angle of the row's position, in place; with `back` in the opposite
// direction. The work is divided into pairs of a batch index and a head.
struct Rotate {
  HeadView x;
  const float *cos, *sin;         // (positions, half)
  const std::int64_t* positions;  // if each batch index has one row: the position of that row; null: a row's position is its row
                                  // number
  Type type;
  std::int64_t rows, heads, half;
  bool back;
};

// Attention of one query for each batch and head; the query sees the keys up to its position. The work is divided into pairs of
// a batch index and a head. The caller provides scratch memory for as many floats as head_size, rounded up to a multiple of 16,
// plus the number of keys.
struct OneQuery {
  HeadView q, k, v, out;
  HeadView out_gradient, q_gradient, k_gradient, v_gradient;  // backward only
  const std::int64_t* positions;
  float* weights;  // (batch, heads, keys): written in the forward pass, read in the backward pass
  Type type;
  std::int64_t heads, keys, head_size;
  float scale;
};

// Every kernel: its result, name and arguments. This list generates the table's members here, and each instruction set's table in
// table.inl.
#define MILLRACE_KERNELS(KERNEL)                                                                                                \
  /* writes 16 bytes a group */                                                                                                 \
  KERNEL(void, keep_bits, (const Keep&, std::int64_t first_group, std::int64_t groups, std::uint8_t* bits))                     \
  KERNEL(void, dropout, (const DropoutArgs&, std::int64_t first_group, std::int64_t last_group))                                \
  KERNEL(void, norm_forward, (const NormForward&, std::int64_t first_row, std::int64_t last_row, float* scratch))               \
  /* adds to the last two arguments */                                                                                          \
  KERNEL(void, norm_backward,                                                                                                   \
         (const NormBackward&, std::int64_t first_row, std::int64_t last_row, float* scratch, float* weight_gradient,           \
          float* bias_gradient))                                                                                                \
  KERNEL(void, gelu, (const GeluArgs&, std::int64_t first_group, std::int64_t last_group))                                      \
  KERNEL(void, quick_gelu, (const PointwiseArgs&, std::int64_t first_group, std::int64_t last_group))                           \
  KERNEL(void, smooth_leaky, (const PointwiseArgs&, std::int64_t first_group, std::int64_t last_group))                         \
  /* scratch bytes that each caller of the next two kernels provides */                                                         \
  KERNEL(std::size_t, attention_scratch, (const Attention&, bool backward))                                                     \
  KERNEL(void, attention_forward, (const Attention&, std::int64_t first_head, std::int64_t last_head, void* scratch))           \
  KERNEL(void, attention_backward, (const Attention&, std::int64_t first_head, std::int64_t last_head, void* scratch))          \
  KERNEL(CrossEntropySum, cross_entropy_forward, (const CrossEntropy&, std::int64_t first_row, std::int64_t last_row))          \
  KERNEL(void, cross_entropy_backward, (const CrossEntropy&, std::int64_t first_row, std::int64_t last_row))                    \
  KERNEL(void, pack_panels, (const Pack&, std::int64_t first_panel, std::int64_t last_panel))                                   \
  KERNEL(void, pack_word_rows, (const WordRows&, std::int64_t first_strip, std::int64_t last_strip))                            \
  /* scratch bytes that each caller of the next kernel provides */                                                              \
  KERNEL(std::size_t, components_scratch, (const Components&))                                                                  \
  KERNEL(void, remove_components, (const Components&, std::int64_t first_tile, std::int64_t last_tile, void* scratch))          \
  KERNEL(void, multiply, (const Product&, std::int64_t first_work, std::int64_t last_work))                                     \
  KERNEL(void, conv3d_forward, (const Conv3d&, std::int64_t first_band, std::int64_t last_band, void* scratch))                 \
  /* adds to the last two arguments */                                                                                          \
  KERNEL(void, conv3d_weights,                                                                                                  \
         (const Conv3d&, std::int64_t first_band, std::int64_t last_band, void* scratch, float* weight_sums, float* bias_sums)) \
  /* scratch bytes that each caller of the next kernel provides */                                                              \
  KERNEL(std::size_t, rms_norm_scratch, (const RmsNorm&))                                                                       \
  KERNEL(void, rms_norm, (const RmsNorm&, std::int64_t first_block, std::int64_t last_block, void* scratch))                    \
  /* sums, and squared distances from the mean */                                                                               \
  KERNEL(void, group_norm_moments, (const GroupNorm&, std::int64_t first_share, std::int64_t last_share))                       \
  /* Sums of the gradient before act, and of its product with x * factor + offset. */                                           \
  KERNEL(void, group_norm_sums, (const GroupNorm&, std::int64_t first_share, std::int64_t last_share))                          \
  KERNEL(void, group_norm_apply, (const GroupNorm&, std::int64_t first_share, std::int64_t last_share))                         \
  /* scratch bytes that each caller of the next kernel provides */                                                              \
  KERNEL(std::size_t, soft_pool_scratch, (const SoftPool&))                                                                     \
  KERNEL(void, soft_pool, (const SoftPool&, std::int64_t first_group, std::int64_t last_group, void* scratch))                  \
  KERNEL(void, rms_rows_forward, (const RmsRows&, std::int64_t first_row, std::int64_t last_row))                               \
  /* adds to weight_gradient, which may be null */                                                                              \
  KERNEL(void, rms_rows_backward,                                                                                               \
         (const RmsRowsBackward&, std::int64_t first_row, std::int64_t last_row, float* weight_gradient))                       \
  KERNEL(void, swiglu, (const Swiglu&, std::int64_t first_row, std::int64_t last_row))                                          \
  KERNEL(void, rotate, (const Rotate&, std::int64_t first_item, std::int64_t last_item))                                        \
  KERNEL(void, one_query_forward, (const OneQuery&, std::int64_t first_item, std::int64_t last_item, float* scratch))           \
  KERNEL(void, one_query_backward, (const OneQuery&, std::int64_t first_item, std::int64_t last_item, float* scratch))

struct Table {
  const char* name;
#define MILLRACE_MEMBER(result, kernel, arguments) std::add_pointer_t<result arguments> kernel;
  MILLRACE_KERNELS(MILLRACE_MEMBER)
#undef MILLRACE_MEMBER
};

const Table& portable_table() noexcept;
const Table& avx2_table() noexcept;
const Table& avx512_table() noexcept;
const Table& avx512_bf16_table() noexcept;
const Table& amx_table() noexcept;

}  // namespace millrace::kernels::detail
