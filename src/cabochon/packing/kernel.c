/* Scale and zero point of blocks, as search.py finds them: the same operations in the same order, so the same bytes.

   A lane is a block: sixteen blocks go side by side, and no sum crosses lanes. Everything is f32 as IEEE 754 has it;
   it must be compiled without contraction to fused operations. Letters as in search.py.
*/
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "sums would have more digits than in numpy"
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
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

enum { LANES = 16, LONGEST = 128, BF16 = 0, F16 = 1, F32 = 2 };
#define EACH_LANE for (int l = 0; l < LANES; l++)
/* The same outside of loops over a block, where unrolling would come before vectors do. */
#if defined(__GNUC__) && !defined(__clang__)
#define EACH_BLOCK _Pragma("GCC unroll 1") EACH_LANE
#else
#define EACH_BLOCK EACH_LANE
#endif

typedef float Lanes[LANES];
typedef struct {
  int block, top, middle, symmetric, search, half;
  const float *steps;
  int steps_count;
} Scheme;
typedef struct {
  Lanes s, z;
} Found;

INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

INLINE float larger(float a, float b) { return a > b ? a : b; }
INLINE float smaller(float a, float b) { return a < b ? a : b; }
INLINE float size_of(float x) { return float_of(bits_of(x) & 0x7FFFFFFF); }
INLINE float or_one(float x) { return x == 0.0f ? 1.0f : x; }

/* To the nearest, ties to even, of |x| < 2^22. */
INLINE float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }
INLINE float clipped(float x, float low, float high) { return smaller(larger(x, low), high); }

/* An f32 of a number in the type that it is read in; infinite where that was not finite. */
INLINE float read_bf16(uint16_t bits) { return float_of((uint32_t)bits << 16); }
INLINE float read_f16(uint16_t bits) {
  uint32_t size = (uint32_t)(bits & 0x7FFF) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
  float x = float_of(size) * float_of(239u << 23); /* times 2^112: another bias; numbers below normal come out right */
  return float_of(sign | (size >= 0x7C00u << 13 ? 0x7F800000u : bits_of(x)));
}

/* f32 rounded to the type of scales: 11 binary digits, none below 2^-24, nothing above 65504. No -0. */
INLINE float stored(float s, int half) {
  float size = size_of(s);
  uint32_t bits = bits_of(size);
  float normal = float_of((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000u);
  float small = (size + 0.5f) - 0.5f;
  float kept = smaller(size < 6.103515625e-05f ? small : normal, 65504.0f);
  float as_half = float_of(bits_of(kept) | (bits_of(s) & 0x80000000u));
  return (half ? as_half : s) + 0.0f;
}

/* The bits of an f16 that `stored` has rounded. */
INLINE uint16_t half_bits(float s) {
  uint32_t bits = bits_of(s) & 0x7FFFFFFF, sign = (bits_of(s) >> 16) & 0x8000;
  uint32_t small = bits_of(float_of(bits) + 0.5f) & 0x7FFFFF, normal = (bits >> 13) - (112u << 10);
  return (uint16_t)(sign | (float_of(bits) < 6.103515625e-05f ? small : normal));
}

/* The best scale for the codes that rounded numbers t = x / s make with z, and what it takes off the error. */
INLINE void add_moments(float *wdx, float *wdd, float t, float z, float x, float w, float top) {
  float d = clipped(t, -z, top - z), wd = w * d;
  *wdx += wd * x;
  *wdd += wd * d;
}

INLINE void keep_better(Lanes gain, Found *best, const Lanes wdx, const Lanes wdd, const Lanes z) {
  EACH_BLOCK {
    float s = wdx[l] / or_one(wdd[l]), found = wdx[l] * s;
    int better = found > gain[l];
    best->s[l] = better ? s : best->s[l];
    best->z[l] = better ? z[l] : best->z[l];
    gain[l] = better ? found : gain[l];
  }
}

INLINE void try_one(const Lanes *x, const Lanes *w, const Lanes r, const Lanes z, Lanes gain, Found *best, Scheme is) {
  Lanes wdx = {0}, wdd = {0};
  float top = (float)is.top;
  for (int i = 0; i < is.block; i++)
    EACH_LANE add_moments(&wdx[l], &wdd[l], rounded(x[i][l] * r[l]), z[l], x[i][l], w[i][l], top);
  keep_better(gain, best, wdx, wdd, z);
}

/* Two candidates that share r: zero points z and y, or, of the symmetric ones, r and -r. */
INLINE void try_two(const Lanes *x, const Lanes *w, const Lanes r, const Lanes z, const Lanes y, Lanes gain, Found *best,
                    Scheme is) {
  Lanes wdx = {0}, wdd = {0}, vdx = {0}, vdd = {0};
  float top = (float)is.top, second = is.symmetric ? -1.0f : 1.0f;
  for (int i = 0; i < is.block; i++)
    EACH_LANE {
      float t = rounded(x[i][l] * r[l]);
      add_moments(&wdx[l], &wdd[l], t, z[l], x[i][l], w[i][l], top);
      add_moments(&vdx[l], &vdd[l], t * second, y[l], x[i][l], w[i][l], top);
    }
  keep_better(gain, best, wdx, wdd, z);
  keep_better(gain, best, vdx, vdd, y);
}

INLINE void search(const Lanes *x, const Lanes *w, const Lanes low, const Lanes high, Found *best, Scheme is) {
  Lanes gain, inverse, r, z, y;
  float top = (float)is.top, middle = (float)is.middle;
  EACH_BLOCK {
    gain[l] = best->s[l] = 0.0f;
    best->z[l] = z[l] = y[l] = middle;
    inverse[l] = 1.0f / or_one(is.symmetric ? larger(high[l], -low[l]) : high[l] - low[l]);
  }
  for (int step = 0; step < is.steps_count; step++) {
    float more = is.steps[step], levels = is.symmetric ? middle + more : top + more;
    EACH_BLOCK r[l] = levels * inverse[l];
    if (!is.symmetric)
      EACH_BLOCK {
        float below = rounded(-low[l] * r[l] - (more * 0.5f + 0.5f));
        z[l] = clipped(below, 0.0f, top);
        y[l] = clipped(below + 1.0f, 0.0f, top);
      }
    try_two(x, w, r, z, y, gain, best, is);
  }
  EACH_BLOCK r[l] = 1.0f / or_one(best->s[l]);
  EACH_BLOCK z[l] = best->z[l];
  try_one(x, w, r, z, gain, best, is);
}

INLINE void deviations(const Lanes *x, const Found *found, Lanes *d, Scheme is) {
  float top = (float)is.top;
  for (int i = 0; i < is.block; i++)
    EACH_LANE {
      float s = found->s[l], ratio = x[i][l] / or_one(s);
      d[i][l] = rounded(clipped(s == 0.0f ? 0.0f : ratio, -found->z[l], top - found->z[l]));
    }
}

/* Weighted and plain squared errors; weights are importance, or else root + |x|. */
INLINE void errors(const Lanes *x, const Lanes *importance, const Lanes root, const Lanes *d, const Lanes s,
                   Lanes weighted, Lanes plain, Scheme is) {
  EACH_BLOCK weighted[l] = plain[l] = 0.0f;
  for (int i = 0; i < is.block; i++)
    EACH_LANE {
      float off = x[i][l] - s[l] * d[i][l], square = off * off;
      weighted[l] += (importance ? importance[i][l] : size_of(x[i][l])) * square;
      plain[l] += square;
    }
  if (!importance)
    EACH_BLOCK weighted[l] = root[l] * plain[l] + weighted[l];
}

INLINE void choose(const Lanes *x, const Lanes *importance, const Lanes root, Found *found, Lanes *d, const Found *best,
                   Scheme is) {
  Lanes other[LONGEST], weighted, plain, best_weighted, best_plain;
  const float margin = 1.0f - 1.0f / 65536;
  deviations(x, best, other, is);
  errors(x, importance, root, d, found->s, weighted, plain, is);
  errors(x, importance, root, other, best->s, best_weighted, best_plain, is);
  int32_t better[LANES];
  EACH_BLOCK better[l] = (best_weighted[l] < weighted[l] * margin) &
                        ((importance != 0) | (best_plain[l] < plain[l] * margin));
  EACH_BLOCK found->s[l] = better[l] ? best->s[l] : found->s[l];
  EACH_BLOCK found->z[l] = better[l] ? best->z[l] : found->z[l];
  for (int i = 0; i < is.block; i++)
    EACH_LANE d[i][l] = better[l] ? other[i][l] : d[i][l];
}

/* Sixteen blocks: codes as d + z in `d`, scales as they are stored in found->s, zero points in found->z. */
INLINE void fit(Lanes *x, const Lanes *importance, Found *found, Lanes *d, Scheme is) {
  Lanes low = {0}, high = {0}, up, down;
  Found best;
  for (int i = 0; i < is.block; i++)
    EACH_LANE {
      low[l] = smaller(x[i][l], low[l]);
      high[l] = larger(x[i][l], high[l]);
    }
  EACH_BLOCK {
    int32_t e = (int32_t)(bits_of(larger(high[l], -low[l])) >> 23) - 127;
    e = e < -126 ? -126 : e > 126 ? 126 : e;
    up[l] = float_of((uint32_t)(127 + e) << 23);
    down[l] = float_of((uint32_t)(127 - e) << 23);
    low[l] *= down[l];
    high[l] *= down[l];
  }
  for (int i = 0; i < is.block; i++)
    EACH_LANE x[i][l] *= down[l];
  EACH_BLOCK {
    float widest = is.symmetric ? (high[l] >= -low[l] ? high[l] : low[l]) / (float)-is.middle
                                : (high[l] - low[l]) / (float)is.top;
    float s = stored(widest * up[l], is.half) * down[l];
    float z = rounded(clipped(-low[l] / or_one(s), 0.0f, (float)is.top));
    found->s[l] = s;
    found->z[l] = is.symmetric | (s == 0.0f) ? (float)is.middle : z;
  }
  deviations(x, found, d, is);
  if (is.search) {
    Lanes w[LONGEST], root = {0};
    for (int i = 0; i < is.block; i++)
      EACH_LANE root[l] += x[i][l] * x[i][l];
    EACH_BLOCK root[l] = sqrtf(root[l] * (1.0f / (float)is.block));
    for (int i = 0; i < is.block; i++)
      EACH_LANE w[i][l] = 2.0f * root[l] + size_of(x[i][l]);
    const Lanes *weights = importance ? importance : (const Lanes *)w;
    search(x, weights, low, high, &best, is);
    EACH_BLOCK best.s[l] = stored(best.s[l] * up[l], is.half) * down[l];
    choose(x, importance, root, found, d, &best, is);
  }
  EACH_BLOCK found->s[l] *= up[l];
  for (int i = 0; i < is.block; i++)
    EACH_LANE d[i][l] += found->z[l];
}

/* One block into its lane; false where a number is not below `limit` in size. */
INLINE int read_block(const void *values, int type, int64_t first, int count, float limit, Lanes *x, int l) {
  int wrong = 0;
  for (int i = 0; i < count; i++) {
    float number = type == BF16  ? read_bf16(((const uint16_t *)values)[first + i])
                   : type == F16 ? read_f16(((const uint16_t *)values)[first + i])
                                 : ((const float *)values)[first + i];
    wrong |= !(size_of(number) < limit);
    x[i][l] = number;
  }
  return !wrong;
}

INLINE int pack(const void *values, int type, int64_t rows, int64_t columns, int bits, float limit,
                const float *importance, uint8_t *codes, void *scales, uint8_t *zero_points, Scheme is) {
  int64_t in_row = (columns + is.block - 1) / is.block, blocks = rows * in_row;
  int in_bytes = is.block * bits / 8;
  Lanes x[LONGEST], weights[LONGEST], d[LONGEST];
  Found found;
  for (int64_t start = 0; start < blocks; start += LANES) {
    int lanes = blocks - start < LANES ? (int)(blocks - start) : LANES;
    for (int l = 0; l < LANES; l++) {
      int64_t row = (start + l) / in_row, column = (start + l) % in_row * is.block;
      int count = l >= lanes ? 0 : columns - column < is.block ? (int)(columns - column) : is.block;
      if (!read_block(values, type, row * columns + column, count, limit, x, l)) return 1;
      for (int i = count; i < is.block; i++) x[i][l] = 0.0f;
      if (importance)
        for (int i = 0; i < is.block; i++) weights[i][l] = i < count ? importance[column + i] : 0.0f;
    }
    fit(x, importance ? weights : 0, &found, d, is);
    for (int l = 0; l < lanes; l++) {
      uint8_t *out = codes + (start + l) * in_bytes;
      if (bits == 8)
        for (int i = 0; i < is.block; i++) out[i] = (uint8_t)(int)d[i][l];
      else
        for (int i = 0; i < in_bytes; i++) out[i] = (uint8_t)((int)d[2 * i][l] | (int)d[2 * i + 1][l] << 4);
      if (is.half)
        ((uint16_t *)scales)[start + l] = half_bits(found.s[l]);
      else
        ((float *)scales)[start + l] = found.s[l];
      zero_points[start + l] = (uint8_t)(int)found.z[l];
    }
  }
  return 0;
}

/* values [rows, columns] of type 0 bf16, 1 f16, 2 f32; importance f32 [columns] or null; codes uint8 [rows, blocks,
   block * bits / 8]; scales f16 (half) or f32 [rows, blocks]; zero_points uint8 [rows, blocks], a byte each. Without
   steps nothing is searched. 1 where a number is not finite or not below `limit` in size, else 0. */
FOR_EACH_PROCESSOR PUBLIC int32_t cabochon_blocks_1(const void *values, int32_t type, int64_t rows, int64_t columns,
                                                    int32_t block, int32_t bits, int32_t symmetric, int32_t half,
                                                    const float *steps, int32_t steps_count, float limit,
                                                    const float *importance, uint8_t *codes, void *scales,
                                                    uint8_t *zero_points) {
  Scheme is = {block, (1 << bits) - 1, 1 << (bits - 1), symmetric, steps_count > 0, half, steps, steps_count};
  return pack(values, type, rows, columns, bits, limit, importance, codes, scales, zero_points, is);
}

/* values [blocks, block]; between: the 15 numbers from which on the next entry of the table is nearer; codes uint8
   [blocks, block / 2], the first of two in the high half. */
FOR_EACH_PROCESSOR PUBLIC int32_t cabochon_nf4_1(const void *values, int32_t type, int64_t blocks, int32_t block,
                                                 int32_t half, const float *between, float limit, uint8_t *codes,
                                                 void *scales) {
  Lanes x[LONGEST], size, s;
  uint8_t code[LONGEST * LANES];
  for (int64_t start = 0; start < blocks; start += LANES) {
    int lanes = blocks - start < LANES ? (int)(blocks - start) : LANES;
    memset(x, 0, sizeof x);
    for (int l = 0; l < lanes; l++)
      if (!read_block(values, type, (start + l) * block, block, limit, x, l)) return 1;
    EACH_BLOCK size[l] = 0.0f;
    for (int i = 0; i < block; i++)
      EACH_LANE size[l] = larger(size_of(x[i][l]), size[l]);
    EACH_BLOCK s[l] = stored(size[l], half);
    for (int i = 0; i < block; i++) {
      Lanes ratio;
      int32_t found[LANES] = {0};
      EACH_BLOCK ratio[l] = s[l] == 0.0f ? 0.0f : x[i][l] / or_one(s[l]);
      for (int k = 0; k < 15; k++)
        EACH_LANE found[l] += ratio[l] > between[k];
      EACH_BLOCK code[i * LANES + l] = (uint8_t)found[l];
    }
    for (int l = 0; l < lanes; l++) {
      for (int i = 0; i < block / 2; i++)
        codes[(start + l) * (block / 2) + i] = code[2 * i * LANES + l] << 4 | code[(2 * i + 1) * LANES + l];
      if (half)
        ((uint16_t *)scales)[start + l] = half_bits(s[l]);
      else
        ((float *)scales)[start + l] = s[l];
    }
  }
  return 0;
}
