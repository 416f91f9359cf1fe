/* Linear maps of packed weights in fp32 and int8. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AMX_INT8__)
#include <immintrin.h>
#endif

#ifdef __AVX512F__
enum { LANES = 16, TILE = 12 };
#else
enum { LANES = 8, TILE = 5 };
#endif
enum { PANEL = 2 * LANES, INT8_PANEL = 32 };

typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

int panel(void) { return PANEL; }
int int8_panel(void) { return INT8_PANEL; }

typedef struct { /* W x + b; W in panels of outputs, (P, in, PANEL) or int8 (P, in / 4, 32, 4) */
    int32_t in, out;
    const void *weight;
    const float *bias;     /* as long as the panels, like what follows */
    const float *scale;    /* of each output of an int8 W, NULL for fp32 */
    const int32_t *shift;  /* 128 Σ_k w_k of an int8 W: bytes are x + 128 */
} Linear;

typedef enum { SET, ADD, RELU } How;

/* max(0, x); NaN where x is. */
static inline float relu_of(float x) { return x <= 0 ? 0 : x; }

/* The sums of n rows and one panel go where they belong. */
static inline void put(float *y, const float *sums, int count, How how) {
    if (how == ADD) for (int j = 0; j < count; j++) y[j] += sums[j];
    else if (how == RELU) for (int j = 0; j < count; j++) y[j] = relu_of(sums[j]);
    else if (count == PANEL) memcpy(y, sums, PANEL * sizeof(float)); /* of a size known here */
    else memcpy(y, sums, count * sizeof(float));
}

static inline __attribute__((always_inline)) void tile_fp32(
    const int n, const Linear *w, const float *x, int p, float sums[][PANEL]) {
    const float *b = (const float *)w->weight + (size_t)p * w->in * PANEL;
    Lanes sum[TILE][2];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) sum[r][i] = *(const Lanes *)(w->bias + p * PANEL + i * LANES);
    for (int k = 0; k < w->in; k++, b += PANEL, x += n) {
        Lanes left = *(const Lanes *)b, right = *(const Lanes *)(b + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            sum[r][0] += x[r] * left;
            sum[r][1] += x[r] * right;
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) *(Lanes *)(sums[r] + i * LANES) = sum[r][i];
}

/* What the whole numbers of a row and panel p are worth. */
static inline void worth(const Linear *w, int p, const int32_t *whole, float step, float *sums) {
    const float *scale = w->scale + p * INT8_PANEL, *bias = w->bias + p * INT8_PANEL;
    const int32_t *shift = w->shift + p * INT8_PANEL;
    for (int j = 0; j < INT8_PANEL; j++)
        sums[j] = (float)(whole[j] - shift[j]) * (step * scale[j]) + bias[j];
}

/* Σ_k x_k w_k in whole numbers, then what they are worth. */
static inline __attribute__((always_inline)) void tile_int8(
    const int n, const Linear *w, const uint8_t *x, const float *step, int p,
    float sums[][INT8_PANEL]) {
    const int8_t *b = (const int8_t *)w->weight + (size_t)p * w->in * INT8_PANEL;
    int32_t whole[TILE][INT8_PANEL];
#ifdef __AVX512VNNI__
    __m512i sum[TILE][2];
    for (int r = 0; r < n; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    for (int k = 0; k < w->in; k += 4, b += 4 * INT8_PANEL, x += 4 * n) {
        __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            int32_t four;
            memcpy(&four, x + 4 * r, 4);
            __m512i v = _mm512_set1_epi32(four);
            sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], v, left);
            sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], v, right);
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) _mm512_storeu_si512(whole[r] + 16 * i, sum[r][i]);
#else
    memset(whole, 0, sizeof whole);
    for (int k = 0; k < w->in; k += 4, b += 4 * INT8_PANEL, x += 4 * n)
        for (int r = 0; r < n; r++)
            for (int j = 0; j < INT8_PANEL; j++)
                for (int i = 0; i < 4; i++)
                    whole[r][j] += x[4 * r + i] * b[4 * j + i];
#endif
    for (int r = 0; r < n; r++) worth(w, p, whole[r], step[r], sums[r]);
}

/* A tile of n rows is compiled for each n. */
#define EACH(n, call) case n: call(n); break;
#define UP_TO_5(call) EACH(1, call) EACH(2, call) EACH(3, call) EACH(4, call) EACH(5, call)
#ifdef __AVX512F__
#define UP_TO_TILE(call) UP_TO_5(call) EACH(6, call) EACH(7, call) EACH(8, call) EACH(9, call) \
    EACH(10, call) EACH(11, call) EACH(12, call)
#else
#define UP_TO_TILE UP_TO_5
#endif

/* n rows of fp32 side by side, (in, n). */
static void beside(const float *x, int n, int in, float *y) {
    for (int r = 0; r < n; r++)
        for (int k = 0; k < in; k++) y[(size_t)k * n + r] = x[(size_t)r * in + k];
}

/* max |x|. Without their signs floats are in the order of their bits, as numbers that processors
 * compare many at a time. */
static float largest(const float *x, int count) {
    int32_t most = 0;
    for (int k = 0; k < count; k++) {
        int32_t bits;
        memcpy(&bits, x + k, 4);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float found;
    memcpy(&found, &most, 4);
    return found;
}

/* A row as bytes round(127 x / max |x|) + 128; what one step of them is worth. */
static float bytes_of(const float *restrict x, int in, uint8_t *restrict y) {
    float most = largest(x, in), by = most > 0 ? 127 / most : 0;
    for (int k = 0; k < in; k++) y[k] = (uint8_t)((int32_t)rintf(x[k] * by) + 128);
    return most / 127;
}

/* n rows of bytes side by side by fours, (in / 4, n, 4). */
static void to_bytes(const float *x, int n, int in, uint8_t *y, float *step) {
    for (int r = 0; r < n; r++, x += in) {
        uint8_t row[in];
        step[r] = bytes_of(x, in, n == 1 ? y : row);
        for (int k = 0; n > 1 && k < in; k += 4) memcpy(y + (size_t)k * n + 4 * r, row + k, 4);
    }
}

#include "tiles.h"

/* y (N, out) set to, or increased by, W x + b; `room` is for N · in floats and N more. */
static void apply(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    if (apply_tiles(w, rows, x, y, how, room)) return;
    float sums[TILE * (PANEL > INT8_PANEL ? PANEL : INT8_PANEL)];
    const int width = w->scale ? INT8_PANEL : PANEL, panels = (w->out + width - 1) / width;
    float *steps = room + (size_t)rows * w->in;
    for (int r = 0; r < rows; r += TILE) {
        int n = rows - r < TILE ? rows - r : TILE;
        const float *from = x + (size_t)r * w->in;
        float *to = room + (size_t)r * w->in;
        if (w->scale) to_bytes(from, n, w->in, (uint8_t *)to, steps + r);
        else beside(from, n, w->in, to);
    }
    for (int p = 0; p < panels; p++) {
        int count = w->out - p * width < width ? w->out - p * width : width;
        for (int r = 0; r < rows; r += TILE) {
            int n = rows - r < TILE ? rows - r : TILE;
            const float *at = room + (size_t)r * w->in;
            if (w->scale) {
#define CALL(n) tile_int8(n, w, (const uint8_t *)at, steps + r, p, (float (*)[INT8_PANEL])sums)
                switch (n) { UP_TO_TILE(CALL) }
#undef CALL
            } else {
#define CALL(n) tile_fp32(n, w, at, p, (float (*)[PANEL])sums)
                switch (n) { UP_TO_TILE(CALL) }
#undef CALL
            }
            for (int i = 0; i < n; i++)
                put(y + (size_t)(r + i) * w->out + p * width, sums + i * width, count, how);
        }
    }
}

void linear(const Linear *w, int rows, const float *x, float *y, float *room) {
    apply(w, rows, x, y, SET, room);
}
