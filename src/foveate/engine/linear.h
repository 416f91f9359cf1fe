/* Linear maps W x + b of weights in fp32 or int8, in panels of outputs.
 *
 *     int8:  y = s_x s_w ⊙ (W_q x_q) + b,   x_q = round(x / s_x),   s_x = max |x| / 127 of a row
 *
 * Sums of an int8 map are whole numbers, the same on every processor; so are all bits of a model whose
 * maps are int8. */

#if defined(__AVX512F__)
enum { ROWS = 12 };
#else
enum { ROWS = 5 };
#endif
enum { PANEL = 2 * WIDTH, INT8_PANEL = 32, AMX_ROWS = 8 };
enum { MOST_BYTES = 1 << 16 }; /* inputs of an int8 map: of more their sums may not fit 32 bits */

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
enum { OFFSET = 128 }; /* their products are of unsigned by signed bytes */
#else
enum { OFFSET = 0 };
#endif

typedef struct { /* a matrix of a file, row by row, on which nothing is computed as it is */
    int32_t rows, columns;
    const float *floats;  /* or */
    const int8_t *bytes;
    const float *scale;   /* of each row of bytes */
} Matrix;

typedef struct {
    int32_t in, out, padded;     /* `padded`: inputs of an int8 map, a multiple of 4 */
    float *weight;               /* (P, in, PANEL), or */
    int8_t *bytes;               /* (P, padded / 4, INT8_PANEL, 4) */
    float *bias, *scale;         /* as long as the panels */
    int32_t *offset;             /* OFFSET · Σ_k w_k */
} Linear;

static int width_of(const Linear *w) { return w->bytes ? INT8_PANEL : PANEL; }

static void free_linear(Linear *w) {
    free(w->weight), free(w->bytes), free(w->bias), free(w->scale), free(w->offset);
    memset(w, 0, sizeof *w);
}

/* One map whose outputs are those of several matrices, one after the other; a bias may be NULL.
 * False without memory, and for a byte of −128, whose sign not every instruction set can change. */
static int pack_linear(Linear *w, int parts, const Matrix *const *matrix, const float *const *bias) {
    memset(w, 0, sizeof *w);
    w->in = matrix[0]->columns;
    w->padded = (w->in + 3) & ~3;
    for (int p = 0; p < parts; p++) w->out += matrix[p]->rows;
    const int int8 = matrix[0]->bytes != NULL, width = int8 ? INT8_PANEL : PANEL;
    const size_t wide = (size_t)(w->out + width - 1) / width * width;
    w->bias = calloc(wide, sizeof(float));
    if (int8) {
        w->bytes = calloc(wide * w->padded, 1);
        w->scale = calloc(wide, sizeof(float));
        w->offset = calloc(wide, sizeof(int32_t));
    } else w->weight = calloc(wide * w->in, sizeof(float));
    if (!w->bias || (int8 ? !w->bytes || !w->scale || !w->offset : !w->weight)) {
        free_linear(w);
        return 0;
    }
    int bad = 0;
    for (int p = 0, out = 0; p < parts; p++)
        for (int r = 0; r < matrix[p]->rows; r++, out++) {
            const size_t panel = out / width, j = out % width;
            if (bias[p]) w->bias[out] = bias[p][r];
            if (!int8) {
                const float *from = matrix[p]->floats + (size_t)r * w->in;
                float *to = w->weight + panel * w->in * PANEL + j;
                for (int k = 0; k < w->in; k++) to[(size_t)k * PANEL] = from[k];
                continue;
            }
            const int8_t *from = matrix[p]->bytes + (size_t)r * w->in;
            int8_t *to = w->bytes + panel * w->padded * INT8_PANEL + 4 * j;
            int32_t total = 0;
            for (int k = 0; k < w->in; k++) {
                to[(size_t)(k / 4) * 4 * INT8_PANEL + k % 4] = from[k];
                total += from[k], bad |= from[k] == INT8_MIN;
            }
            w->scale[out] = matrix[p]->scale[r];
            w->offset[out] = OFFSET * total;
        }
    if (bad) free_linear(w);
    return !bad;
}

/* The outputs `rows` of a map as a map of their own; its memory is grown as needed. */
static int some_outputs(const Linear *w, const int32_t *rows, int count, Linear *some) {
    const int width = width_of(w);
    const size_t wide = (size_t)(count + width - 1) / width * width;
    const size_t unit = w->bytes ? 4 : sizeof(float), units = w->bytes ? w->padded / 4 : w->in;
    const char *from = w->bytes ? (const char *)w->bytes : (const char *)w->weight;
    char *to = calloc(wide * units, unit);
    free_linear(some);
    *some = (Linear){w->in, count, w->padded};
    if (w->bytes) some->bytes = (int8_t *)to;
    else some->weight = (float *)to;
    some->bias = calloc(wide, sizeof(float));
    some->scale = w->bytes ? calloc(wide, sizeof(float)) : NULL;
    some->offset = w->bytes ? calloc(wide, sizeof(int32_t)) : NULL;
    if (!to || !some->bias || (w->bytes && (!some->scale || !some->offset))) {
        free_linear(some);
        return 0;
    }
    for (int n = 0; n < count; n++) {
        const size_t r = rows[n], source = r / width * units * width + r % width;
        const size_t target = (size_t)n / width * units * width + n % width;
        for (size_t k = 0; k < units; k++)
            memcpy(to + (target + k * width) * unit, from + (source + k * width) * unit, unit);
        some->bias[n] = w->bias[r];
        if (w->bytes) some->scale[n] = w->scale[r], some->offset[n] = w->offset[r];
    }
    return 1;
}

typedef enum { SET, ADD } How;

static inline void put(float *y, const float *sums, int count, How how) {
    if (how == ADD) for (int j = 0; j < count; j++) y[j] += sums[j];
    else memcpy(y, sums, count * sizeof(float));
}

/* sum + x v, rounded once by processors that can. */
#if defined(__AVX512F__)
#define FUSED(sum, x, v) (Lanes)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)(v), (__m512)(sum))
#elif defined(__FMA__)
#define FUSED(sum, x, v) (Lanes)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)(v), (__m256)(sum))
#elif defined(__ARM_NEON)
#define FUSED(sum, x, v) (Lanes)vfmaq_n_f32((float32x4_t)(sum), (float32x4_t)(v), x)
#else
#define FUSED(sum, x, v) (sum) + (x) * (v)
#endif

/* n rows, side by side (in, n), with `panels` panels from p on. */
static inline __attribute__((always_inline)) void tile_fp32(
    const int n, const int panels, const Linear *w, const float *x, int p, float *sums) {
    const size_t far = (size_t)w->in * PANEL;
    const float *b = w->weight + p * far;
    Lanes sum[ROWS][4];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2 * panels; i++)
            sum[r][i] = *(const Lanes *)(w->bias + p * PANEL + i * WIDTH);
    for (int k = 0; k < w->in; k++, b += PANEL, x += n)
#pragma GCC unroll 2
        for (int q = 0; q < panels; q++) {
            const Lanes left = *(const Lanes *)(b + q * far);
            const Lanes right = *(const Lanes *)(b + q * far + WIDTH);
#pragma GCC unroll 12
            for (int r = 0; r < n; r++) {
                sum[r][2 * q] = FUSED(sum[r][2 * q], x[r], left);
                sum[r][2 * q + 1] = FUSED(sum[r][2 * q + 1], x[r], right);
            }
        }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2 * panels; i++)
            *(Lanes *)(sums + (r * panels * 2 + i) * WIDTH) = sum[r][i];
}

/* Four products in each 32-bit lane, added to it. */
#if defined(__AVX512VNNI__)
enum { BYTES = 64 };
typedef __m512i Whole;
#define ZEROS _mm512_setzero_si512()
#define LOAD(at) _mm512_loadu_si512(at)
#define STORE(at, v) _mm512_storeu_si512(at, v)
#define SPREAD(four) _mm512_set1_epi32(four)
#define MULTIPLY_ADD(sum, x, w) _mm512_dpbusd_epi32(sum, x, w)
#elif defined(__AVX2__)
enum { BYTES = 32 };
typedef __m256i Whole;
#define ZEROS _mm256_setzero_si256()
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))
#define STORE(at, v) _mm256_storeu_si256((__m256i *)(at), v)
#define SPREAD(four) _mm256_set1_epi32(four)
#if defined(__AVXVNNI__)
#define MULTIPLY_ADD(sum, x, w) _mm256_dpbusd_avx_epi32(sum, x, w)
#else
/* |x| times w with the sign of x: pairs of such products stay below 2¹⁵ */
#define MULTIPLY_ADD(sum, x, w) \
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi16(1), \
        _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x))))
#endif
#elif defined(__SSE4_1__)
enum { BYTES = 16 };
typedef __m128i Whole;
#define ZEROS _mm_setzero_si128()
#define LOAD(at) _mm_loadu_si128((const __m128i *)(at))
#define STORE(at, v) _mm_storeu_si128((__m128i *)(at), v)
#define SPREAD(four) _mm_set1_epi32(four)
#define MULTIPLY_ADD(sum, x, w) \
    _mm_add_epi32(sum, _mm_madd_epi16(_mm_set1_epi16(1), \
        _mm_maddubs_epi16(_mm_abs_epi8(x), _mm_sign_epi8(w, x))))
#elif defined(__ARM_NEON)
enum { BYTES = 16 };
typedef int32x4_t Whole;
#define ZEROS vdupq_n_s32(0)
#define LOAD(at) vreinterpretq_s32_s8(vld1q_s8((const int8_t *)(at)))
#define STORE(at, v) vst1q_s32(at, v)
#define SPREAD(four) vdupq_n_s32(four)
#if defined(__ARM_FEATURE_DOTPROD)
#define MULTIPLY_ADD(sum, x, w) \
    vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(w))
#else
static inline int32x4_t multiply_add(int32x4_t sum, int32x4_t x, int32x4_t w) {
    const int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(w);
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
#define MULTIPLY_ADD(sum, x, w) multiply_add(sum, x, w)
#endif
#elif defined(__wasm_simd128__)
enum { BYTES = 16 };
typedef v128_t Whole;
#define ZEROS wasm_i32x4_splat(0)
#define LOAD(at) wasm_v128_load(at)
#define STORE(at, v) wasm_v128_store(at, v)
#define SPREAD(four) wasm_i32x4_splat(four)
static inline v128_t multiply_add(v128_t sum, v128_t x, v128_t w) {
    const v128_t low = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(x),
                                            wasm_i16x8_extend_low_i8x16(w));
    const v128_t high = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(x),
                                             wasm_i16x8_extend_high_i8x16(w));
    return wasm_i32x4_add(sum, wasm_i32x4_add(wasm_i32x4_shuffle(low, high, 0, 2, 4, 6),
                                              wasm_i32x4_shuffle(low, high, 1, 3, 5, 7)));
}
#define MULTIPLY_ADD(sum, x, w) multiply_add(sum, x, w)
#else
enum { BYTES = 16 };
typedef struct { int32_t each[4]; } Whole;
#define ZEROS ((Whole){{0}})
static inline Whole load(const void *at) { Whole v; memcpy(&v, at, 16); return v; }
#define LOAD(at) load(at)
#define STORE(at, v) memcpy(at, &(v), 16)
#define SPREAD(four) ((Whole){{four, four, four, four}})
static inline Whole multiply_add(Whole sum, Whole x, Whole w) {
    const int8_t *a = (const int8_t *)&x, *b = (const int8_t *)&w;
    for (int i = 0; i < 16; i++) sum.each[i / 4] += a[i] * b[i];
    return sum;
}
#define MULTIPLY_ADD(sum, x, w) multiply_add(sum, x, w)
#endif
enum { VECTORS = INT8_PANEL * 4 / BYTES }; /* of a panel */

/* Whole sums of n rows, side by side by fours (in / 4, n, 4), with `panels` panels from p on; as many
 * vectors of outputs at a time as the registers hold sums of. */
static inline __attribute__((always_inline)) void tile_int8(
    const int n, const int panels, const Linear *w, const int8_t *x, int p, int32_t *whole) {
    const size_t far = (size_t)w->padded * INT8_PANEL;
    const int all = VECTORS * panels, few = n <= 2 ? 4 : 2, side = few < all ? few : all;
#pragma GCC unroll 8
    for (int first = 0; first < all; first += side) {
        const int8_t *b = w->bytes + (p + first / VECTORS) * far + first % VECTORS * BYTES, *at = x;
        Whole sum[ROWS][4];
        for (int r = 0; r < n; r++)
            for (int i = 0; i < side; i++) sum[r][i] = ZEROS;
        for (int k = 0; k < w->padded; k += 4, b += 4 * INT8_PANEL, at += 4 * n) {
            Whole v[4];
#pragma GCC unroll 4
            for (int i = 0; i < side; i++) v[i] = LOAD(b + i / VECTORS * far + i % VECTORS * BYTES);
#pragma GCC unroll 12
            for (int r = 0; r < n; r++) {
                int32_t four;
                memcpy(&four, at + 4 * r, 4);
                const Whole spread = SPREAD(four);
#pragma GCC unroll 4
                for (int i = 0; i < side; i++) sum[r][i] = MULTIPLY_ADD(sum[r][i], spread, v[i]);
            }
        }
        for (int r = 0; r < n; r++)
            for (int i = 0; i < side; i++)
                STORE(whole + (r * all + first + i) * (BYTES / 4), sum[r][i]);
    }
}

/* What whole sums of a row and `count` outputs from `out` on are worth. */
static inline void put_whole(const Linear *w, const int32_t *restrict whole, int out, int count,
                             float step, float *restrict y, How how) {
    const float *restrict scale = w->scale + out, *restrict bias = w->bias + out;
    const int32_t *restrict offset = w->offset + out;
    if (how == SET)
        for (int j = 0; j < count; j++) y[j] = (float)(whole[j] - offset[j]) * (step * scale[j]) + bias[j];
    else
        for (int j = 0; j < count; j++) y[j] += (float)(whole[j] - offset[j]) * (step * scale[j]) + bias[j];
}

/* max |x|: without their signs the bits of floats are in the order of the floats. */
static float largest(const float *x, int count) {
    int32_t most = 0;
    for (int k = 0; k < count; k++) {
        int32_t bits;
        memcpy(&bits, x + k, 4);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, 4);
    return value;
}

/* A row as round(127 x / max |x|) + OFFSET; gives s_x, NaN where a number of the row is none. */
static float quantize(const float *restrict x, int in, int padded, int8_t *restrict y) {
    const float most = largest(x, in), by = most > 1e-30f ? 127 / most : 0;
    if (!(most < INFINITY)) return memset(y, OFFSET, padded), NAN;
    for (int k = 0; k < in; k++) y[k] = (int8_t)((int32_t)rintf(x[k] * by) + OFFSET);
    for (int k = in; k < padded; k++) y[k] = (int8_t)OFFSET;
    return most / 127;
}

/* n rows side by side: floats (in, n), or bytes by fours (in / 4, n, 4) with the step of each. */
static void interleave(const Linear *w, const float *x, int n, void *to, float *step) {
    if (!w->bytes) {
        float *y = to;
        for (int r = 0; r < n; r++)
            for (int k = 0; k < w->in; k++) y[(size_t)k * n + r] = x[(size_t)r * w->in + k];
        return;
    }
    int8_t *y = to, row[n == 1 ? 1 : w->padded];
    for (int r = 0; r < n; r++, x += w->in) {
        step[r] = quantize(x, w->in, w->padded, n == 1 ? y : row);
        for (int k = 0; n > 1 && k < w->padded; k += 4)
            memcpy(y + (size_t)k * n + 4 * r, row + k, 4);
    }
}

#include "amx.h"

/* A tile of n rows is compiled for each n. */
#define CASE(n) case n: TILE(n); break;
#define CASES_TO_5 CASE(1) CASE(2) CASE(3) CASE(4) CASE(5)
#if defined(__AVX512F__)
#define CASES CASES_TO_5 CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
#define CASES CASES_TO_5
#endif

/* Floats of room that `apply` takes; of bytes the matrix unit reads up to 32 rows more. */
static size_t room_of_apply(int rows, int in) { return (size_t)(rows + 32) * (in + 8); }

/* y (N, out) set to, or increased by, W x + b for the rows of x. */
static void apply(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    if (apply_amx(w, rows, x, y, how, room)) return;
    const int width = width_of(w), count = (w->out + width - 1) / width;
    const size_t each = w->bytes ? ((size_t)w->padded + 3) / 4 : w->in; /* floats of room of a row */
    float *steps = room + rows * each;
    float sums[ROWS * 2 * (PANEL > INT8_PANEL ? PANEL : INT8_PANEL)];
    int32_t whole[ROWS * 2 * INT8_PANEL];
    const int tiles = (rows + ROWS - 1) / ROWS, high = tiles ? (rows + tiles - 1) / tiles : 1;
    for (int r = 0; r < rows; r += high) {
        const int n = rows - r < high ? rows - r : high;
        interleave(w, x + (size_t)r * w->in, n, room + r * each, steps + r);
    }
    for (int p = 0, panels; p < count; p += panels) {
        const int few = rows <= 2 && p + 2 <= count; /* two panels keep the units of a core busy */
        panels = few ? 2 : 1;
        const int left = w->out - p * width, outs = left < panels * width ? left : panels * width;
        for (int r = 0; r < rows; r += high) {
            const int n = rows - r < high ? rows - r : high;
            const void *at = room + r * each;
            if (few && w->bytes && n == 1) tile_int8(1, 2, w, at, p, whole);
            else if (few && w->bytes) tile_int8(2, 2, w, at, p, whole);
            else if (few && n == 1) tile_fp32(1, 2, w, at, p, sums);
            else if (few) tile_fp32(2, 2, w, at, p, sums);
            else if (w->bytes) {
#define TILE(n) tile_int8(n, 1, w, at, p, whole)
                switch (n) { CASES }
#undef TILE
            } else {
#define TILE(n) tile_fp32(n, 1, w, at, p, sums)
                switch (n) { CASES }
#undef TILE
            }
            for (int i = 0; i < n; i++) {
                float *to = y + (size_t)(r + i) * w->out + p * width;
                const int from = i * panels * width;
                if (w->bytes) put_whole(w, whole + from, p * width, outs, steps[r + i], to, how);
                else put(to, sums + from, outs, how);
            }
        }
    }
}
