// Sixteen lanes in two AVX2 registers, with FMA. vector_portable.inl has the readable definition of each function.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace {

using Mask = std::uint16_t;  // one bit per lane

struct F {
  __m256 low, high;
};
struct U {
  __m256i low, high;
};

// There are sixteen registers. Six rows of one vector take twelve, and the operands take the rest.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 1;
inline constexpr int kWordsAtOnce = 2;
inline constexpr std::int64_t kBlockWords = 256;  // 256 words of 16 columns fill half of a first-level cache

inline __m256 as_floats(__m256i x) { return _mm256_castsi256_ps(x); }
inline __m256i as_words(__m256 x) { return _mm256_castps_si256(x); }
inline __m256i load_half(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_half(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

// Sets all bits of a lane to the lane's bit of the mask.
inline __m256i spread(unsigned mask, int first) {
  const __m256i bit = first == 0 ? _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128)
                                 : _mm256_setr_epi32(256, 512, 1024, 2048, 4096, 8192, 16384, 32768);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bit), bit);
}
inline unsigned first_bits(int n) { return (1U << static_cast<unsigned>(n)) - 1U; }

inline __m256 widen_half(const std::uint16_t* p) {
  return as_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline __m256i round_half(__m256 x) {  // leaves bf16 in the lower half of each word
  const __m256i bits = as_words(x);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  const __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, nan, as_words(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

inline F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F load(const std::uint16_t* p) { return {widen_half(p), widen_half(p + 8)}; }
inline F load_first(const float* p, int n) {
  const unsigned mask = first_bits(n);
  return {_mm256_maskload_ps(p, spread(mask, 0)), _mm256_maskload_ps(p + 8, spread(mask, 8))};
}
inline F load_first(const std::uint16_t* p, int n) {
  std::uint16_t copy[16] = {};
  __builtin_memcpy(copy, p, sizeof(std::uint16_t) * static_cast<std::size_t>(n));
  return load(copy);
}
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline void store(std::uint16_t* p, F x) {
  store_half(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(round_half(x.low), round_half(x.high)), 0xD8));
}
inline void store_first(float* p, F x, int n) {
  const unsigned mask = first_bits(n);
  _mm256_maskstore_ps(p, spread(mask, 0), x.low);
  _mm256_maskstore_ps(p + 8, spread(mask, 8), x.high);
}
inline void store_first(std::uint16_t* p, F x, int n) {
  std::uint16_t copy[16];
  store(copy, x);
  __builtin_memcpy(p, copy, sizeof(std::uint16_t) * static_cast<std::size_t>(n));
}
inline U load_words(const std::uint32_t* p) { return {load_half(p), load_half(p + 8)}; }
inline void store_words(std::uint32_t* p, U x) {
  store_half(p, x.low);
  store_half(p + 8, x.high);
}

inline F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)}; }
inline F fnma(F a, F b, F c) { return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)}; }
inline F reciprocal(F a) {  // divides, because the short approximation differs between CPU makers
  const __m256 one = _mm256_set1_ps(1.0F);
  return {_mm256_div_ps(one, a.low), _mm256_div_ps(one, a.high)};
}
inline F absolute(F a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline F keep_lanes(Mask mask, F a) {
  return {_mm256_and_ps(as_floats(spread(mask, 0)), a.low), _mm256_and_ps(as_floats(spread(mask, 8)), a.high)};
}
inline F select(Mask mask, F yes, F no) {
  return {_mm256_blendv_ps(no.low, yes.low, as_floats(spread(mask, 0))),
          _mm256_blendv_ps(no.high, yes.high, as_floats(spread(mask, 8)))};
}
inline Mask not_negative(F a) {
  const __m256 zero = _mm256_setzero_ps();
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, zero, _CMP_GE_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, zero, _CMP_GE_OQ));
  return static_cast<Mask>(static_cast<unsigned>(low) | static_cast<unsigned>(high) << 8U);
}
inline F round_to_int(F a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
}
inline __m256 power_of_two(__m256 n) {
  return as_floats(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline F times_power_of_two(F a, F n) { return mul(a, {power_of_two(n.low), power_of_two(n.high)}); }
inline float sum(F a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(F a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline __m256 upper_half(__m256i pairs) {
  return as_floats(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
inline __m256 lower_half(__m256i pairs) { return as_floats(_mm256_slli_epi32(pairs, 16)); }

template <class T>
inline F multiply_accumulate(F c, std::uint32_t a, U b) {
  if constexpr (sizeof(T) == 4) {
    float number;
    __builtin_memcpy(&number, &a, 4);
    return fma(splat(number), {as_floats(b.low), as_floats(b.high)}, c);
  } else {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(a));
    const F high = fma({upper_half(x), upper_half(x)}, {upper_half(b.low), upper_half(b.high)}, c);
    return fma({lower_half(x), lower_half(x)}, {lower_half(b.low), lower_half(b.high)}, high);
  }
}
inline __m256i zip_half(const std::uint16_t* low, const std::uint16_t* high) {
  const __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  const __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
  return _mm256_or_si256(a, _mm256_slli_epi32(b, 16));
}
inline U zip(const std::uint16_t* low, const std::uint16_t* high) { return {zip_half(low, high), zip_half(low + 8, high + 8)}; }
inline F add_pairs(F sum, U pairs) {
  const F low{lower_half(pairs.low), lower_half(pairs.high)};
  const F high{upper_half(pairs.low), upper_half(pairs.high)};
  return add(sum, add(low, high));
}
inline void transpose_block(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out, std::int64_t out_stride) {
  __m256i r[8];
  __m256i s[8];
  for (int i = 0; i < 8; ++i) r[i] = load_half(in + i * in_stride);
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(s[i], s[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(s[i], s[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(s[i + 1], s[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    store_half(out + j * out_stride, _mm256_permute2x128_si256(r[j], r[j + 4], 0x20));
    store_half(out + (j + 4) * out_stride, _mm256_permute2x128_si256(r[j], r[j + 4], 0x31));
  }
}
inline void transpose(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out, std::int64_t out_stride) {
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 16; j += 8) transpose_block(in + i * in_stride + j, in_stride, out + j * out_stride + i, out_stride);
  }
}

struct Words {
  U word[4];
};
struct WideProduct {
  __m256i high, low;
};
inline WideProduct multiply_wide(__m256i a, __m256i factor) {
  const __m256i even = _mm256_mul_epu32(a, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA), _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}
struct Counters {
  __m256i c0, c1, c2, c3;
};
inline void philox_round(Counters& c, __m256i k0, __m256i k1) {
  const WideProduct a = multiply_wide(c.c0, _mm256_set1_epi32(static_cast<int>(0xD2511F53U)));
  const WideProduct b = multiply_wide(c.c2, _mm256_set1_epi32(static_cast<int>(0xCD9E8D57U)));
  c = {_mm256_xor_si256(_mm256_xor_si256(b.high, c.c1), k0), b.low, _mm256_xor_si256(_mm256_xor_si256(a.high, c.c3), k1), a.low};
}
inline Words philox(std::uint64_t first, std::uint64_t key) {
  const __m256i begin = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i above = _mm256_set1_epi32(static_cast<int>(first >> 32U));
  const __m256i zero = _mm256_setzero_si256();
  Counters low{begin, above, zero, zero};
  Counters high{_mm256_add_epi32(begin, _mm256_set1_epi32(8)), above, zero, zero};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const __m256i key0 = _mm256_set1_epi32(static_cast<int>(k0));
    const __m256i key1 = _mm256_set1_epi32(static_cast<int>(k1));
    philox_round(low, key0, key1);
    philox_round(high, key0, key1);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{{low.c0, high.c0}, {low.c1, high.c1}, {low.c2, high.c2}, {low.c3, high.c3}}};
}
inline std::uint32_t halves_at_least(U words, std::uint32_t threshold) {
  const __m256i least = _mm256_set1_epi16(static_cast<short>(threshold));
  const __m256i low = _mm256_cmpeq_epi16(_mm256_max_epu16(words.low, least), words.low);
  const __m256i high = _mm256_cmpeq_epi16(_mm256_max_epu16(words.high, least), words.high);
  return static_cast<std::uint32_t>(
      // packs works on 128-bit halves; the permutation restores the order.
      _mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8)));
}

}  // namespace
