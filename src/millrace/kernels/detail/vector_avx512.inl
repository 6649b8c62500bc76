// Sixteen lanes in one AVX-512 register; bf16 products by AVX512_BF16 if the file is compiled with it. vector_portable.inl has
// the readable definition of each function.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace {

using Mask = __mmask16;
using F = __m512;
using U = __m512i;

// There are thirty-two registers. A tile's sums take 24, and a row of the second operand takes four.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;
inline constexpr int kWordsAtOnce = 1;
inline constexpr std::int64_t kBlockWords = 512;

inline Mask first_lanes(int n) { return static_cast<Mask>((1U << static_cast<unsigned>(n)) - 1U); }

inline F widen(__m256i halves) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16)); }
inline __m256i round_bf16(F x) {
#ifdef __AVX512BF16__
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  const U bits = _mm512_castps_si512(x);
  const U odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const U rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const U nan = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
#endif
}

inline F splat(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline F load(const std::uint16_t* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline F load_first(const std::uint16_t* p, int n) { return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline void store(std::uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_bf16(x)); }
inline void store_first(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
inline void store_first(std::uint16_t* p, F x, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n), round_bf16(x)); }
inline U load_words(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
inline void store_words(std::uint32_t* p, U x) { _mm512_storeu_si512(p, x); }

inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
inline F reciprocal(F a) {  // one Newton step: exact except for the last bit
  const F x = _mm512_rcp14_ps(a);
  return _mm512_mul_ps(x, _mm512_fnmadd_ps(a, x, _mm512_set1_ps(2.0F)));
}
inline F absolute(F a) { return _mm512_abs_ps(a); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F keep_lanes(Mask mask, F a) { return _mm512_maskz_mov_ps(mask, a); }
inline F select(Mask mask, F yes, F no) { return _mm512_mask_mov_ps(no, mask, yes); }
inline Mask not_negative(F a) { return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GE_OQ); }
inline F round_to_int(F a) { return _mm512_roundscale_ps(a, 0); }
inline F times_power_of_two(F a, F n) { return _mm512_scalef_ps(a, n); }
inline float sum(F a) { return _mm512_reduce_add_ps(a); }
inline float largest(F a) { return _mm512_reduce_max_ps(a); }

template <class T>
inline F multiply_accumulate(F c, std::uint32_t a, U b) {
  if constexpr (sizeof(T) == 4) {  // loads a float, not a word, so that the compiler broadcasts it within the instruction
    return _mm512_fmadd_ps(_mm512_set1_ps(__builtin_bit_cast(float, a)), _mm512_castsi512_ps(b), c);
  } else {
    const U x = _mm512_set1_epi32(static_cast<int>(a));
#ifdef __AVX512BF16__
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(b));
#else
    const U upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    const auto high = [&](U y) { return _mm512_castsi512_ps(_mm512_and_si512(y, upper)); };
    const auto low = [](U y) { return _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)); };
    return _mm512_fmadd_ps(low(x), low(b), _mm512_fmadd_ps(high(x), high(b), c));
#endif
  }
}
inline U zip(const std::uint16_t* low, const std::uint16_t* high) {
  const U a = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  const U b = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
  return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}
inline F add_pairs(F sum, U pairs) {
  const F low = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  const F high = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  return _mm512_add_ps(sum, _mm512_add_ps(low, high));
}
inline void transpose(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out, std::int64_t out_stride) {
  U r[16];
  U s[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(in + i * in_stride);
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      s[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      s[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xDD);
    }
  }
  for (int j = 0; j < 8; ++j) {
    _mm512_storeu_si512(out + j * out_stride, _mm512_shuffle_i32x4(s[j], s[j + 8], 0x88));
    _mm512_storeu_si512(out + (j + 8) * out_stride, _mm512_shuffle_i32x4(s[j], s[j + 8], 0xDD));
  }
}

struct Words {
  U word[4];
};
struct WideProduct {
  U high, low;
};
inline WideProduct multiply_wide(U a, U factor) {
  const U even = _mm512_mul_epu32(a, factor);
  const U odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
  return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd),
          _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32))};
}
inline Words philox(std::uint64_t first, std::uint64_t key) {
  const U m0 = _mm512_set1_epi32(static_cast<int>(0xD2511F53U));
  const U m1 = _mm512_set1_epi32(static_cast<int>(0xCD9E8D57U));
  U c0 = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  U c1 = _mm512_set1_epi32(static_cast<int>(first >> 32U));
  U c2 = _mm512_setzero_si512();
  U c3 = c2;
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const WideProduct a = multiply_wide(c0, m0);
    const WideProduct b = multiply_wide(c2, m1);
    c0 = _mm512_ternarylogic_epi32(b.high, c1, _mm512_set1_epi32(static_cast<int>(k0)), 0x96);
    c1 = b.low;
    c2 = _mm512_ternarylogic_epi32(a.high, c3, _mm512_set1_epi32(static_cast<int>(k1)), 0x96);
    c3 = a.low;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}
inline std::uint32_t halves_at_least(U words, std::uint32_t threshold) {
  return _mm512_cmpge_epu16_mask(words, _mm512_set1_epi16(static_cast<short>(threshold)));
}

}  // namespace
