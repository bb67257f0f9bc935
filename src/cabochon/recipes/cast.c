/* Between bf16, f16 and f32 as cast.py says it: rounded to nearest, ties to even; whether every result is finite.

   All on the bits, by way of f32, which holds every value of the other two: one rounding. Elements go side by side.
*/
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

enum { BF16 = 0, F16 = 1, F32 = 2, CHUNK = 64 };

INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

INLINE uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/* The bits of f32. Below 2^-14 f16 has no leading one: the bits of one are added, and its value taken off again. */
INLINE uint32_t from_f16(uint32_t half) {
  uint32_t size = (half & 0x7FFF) << 13, sign = (half & 0x8000) << 16;
  uint32_t small = bits_of(float_of(size + (113u << 23)) - float_of(113u << 23));
  uint32_t usual = size + (112u << 23), beyond = size + (224u << 23);
  return sign | (size < 1u << 23 ? small : size < 31u << 23 ? usual : beyond);
}

/* Below 2^-14 a sum with 0.5 rounds to what f16 has there: both have a last digit of 2^-24. */
INLINE uint32_t to_f16(uint32_t bits) {
  uint32_t size = bits & 0x7FFFFFFF;
  uint32_t small = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
  uint32_t usual = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
  return (bits >> 16 & 0x8000) | (size < 113u << 23 ? small : size < 0x477FF000 ? usual : 0x7C00);
}

INLINE uint32_t to_bf16(uint32_t bits) {
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* `count` elements from `in` to `out`; whether any source or result is infinite or no number. */
INLINE int32_t convert(const void *in, int source, void *out, int target, int64_t count) {
  uint32_t widest = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t wide = source == BF16  ? (uint32_t)((const uint16_t *)in)[i] << 16
                    : source == F16 ? from_f16(((const uint16_t *)in)[i])
                                    : ((const uint32_t *)in)[i];
    uint32_t made = target == F32 ? wide : target == F16 ? to_f16(wide) : to_bf16(wide);
    widest = larger(wide & 0x7FFFFFFF, widest);
    largest = larger(made & 0x7FFF, largest);
    if (target == F32)
      ((uint32_t *)out)[i] = made;
    else
      ((uint16_t *)out)[i] = (uint16_t)made;
  }
  return widest >= 0x7F800000 || (target != F32 && largest >= (target == F16 ? 0x7C00 : 0x7F80));
}

/* The same from bf16 to f16, sixteen bits at a time: exact from 2^-14 on, and what is smaller is seldom. */
INLINE int32_t halve(const uint16_t *restrict in, uint16_t *restrict out, int64_t count) {
  uint16_t largest = 0;
  for (int64_t start = 0; start < count; start += CHUNK) {
    int64_t end = count - start < CHUNK ? count : start + CHUNK;
    uint16_t smallest = 0xFFFF;
    for (int64_t i = start; i < end; i++) {
      uint16_t size = in[i] & 0x7FFF;
      largest = size > largest ? size : largest;
      smallest = size < smallest ? size : smallest;
      out[i] = (uint16_t)((in[i] & 0x8000) | (uint16_t)((size << 3) - (112 << 10)));
    }
    if (smallest < 113 << 7)
      for (int64_t i = start; i < end; i++) out[i] = (uint16_t)to_f16((uint32_t)in[i] << 16);
  }
  return largest >= (127 + 16) << 7;
}

/* Whether any of `count` elements of one type is infinite or no number. */
INLINE int32_t infinite(const void *in, int type, int64_t count) {
  uint32_t widest = 0;
  uint16_t largest = 0;
  if (type == F32)
    for (int64_t i = 0; i < count; i++) widest = larger(((const uint32_t *)in)[i] & 0x7FFFFFFF, widest);
  else
    for (int64_t i = 0; i < count; i++) {
      uint16_t size = ((const uint16_t *)in)[i] & 0x7FFF;
      largest = size > largest ? size : largest;
    }
  return widest >= 0x7F800000 || largest >= (type == F16 ? 0x7C00 : 0x7F80);
}

#define EACH_ROW(of) \
  for (int64_t row = 0; row < rows; row++) wrong |= of; \
  break
#define IN(size) ((const char *)values + row * stride * size)
#define OUT(size) ((char *)out + row * columns * size)

/* values [rows, columns], a row `stride` elements behind the last; out [rows, columns] without gaps, or null where
   both types are one: then there is nothing to do but to look. Types: 0 bf16, 1 f16, 2 f32. 1 where anything is
   infinite or no number, else 0. */
FOR_EACH_PROCESSOR PUBLIC int32_t cabochon_cast_1(const void *values, int32_t from, int64_t rows, int64_t columns,
                                                  int64_t stride, void *out, int32_t to) {
  int32_t wrong = 0;
  switch (from * 3 + to) {
    case BF16 * 3 + BF16: EACH_ROW(infinite(IN(2), BF16, columns));
    case BF16 * 3 + F16: EACH_ROW(halve((const uint16_t *)IN(2), (uint16_t *)OUT(2), columns));
    case BF16 * 3 + F32: EACH_ROW(convert(IN(2), BF16, OUT(4), F32, columns));
    case F16 * 3 + BF16: EACH_ROW(convert(IN(2), F16, OUT(2), BF16, columns));
    case F16 * 3 + F16: EACH_ROW(infinite(IN(2), F16, columns));
    case F16 * 3 + F32: EACH_ROW(convert(IN(2), F16, OUT(4), F32, columns));
    case F32 * 3 + BF16: EACH_ROW(convert(IN(4), F32, OUT(2), BF16, columns));
    case F32 * 3 + F16: EACH_ROW(convert(IN(4), F32, OUT(2), F16, columns));
    case F32 * 3 + F32: EACH_ROW(infinite(IN(4), F32, columns));
    default: return 1;
  }
  return wrong;
}
