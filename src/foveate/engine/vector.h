/* Vectors of floats, and the functions of single numbers that the layers need.
 *
 * Every sum is in one fixed order that depends on its length alone, so that a row has the same bits
 * whatever is computed beside it, and on every processor: no product is fused with a sum but in maps
 * of floats. Functions of the C library are taken in double precision and rounded: those of single
 * precision differ between libraries in their last bit. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__) || defined(__SSE4_1__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
enum { LANES = 16, GROUPS = LANES / WIDTH }; /* partial sums, as many on every processor */

typedef float Lanes __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

/* The sum of all lanes: halves are added to halves. */
static inline float sum_of(Lanes *v) {
    for (int half = GROUPS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) v[i] += v[i + half];
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)*v);
#else
    float each[WIDTH];
    memcpy(each, v, sizeof each);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) each[i] += each[i + half];
    return each[0];
#endif
}

/* Σ_i a_i b_i */
static inline float dot(const float *a, const float *b, int size) {
    Lanes sum[GROUPS] = {0};
    int i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int p = 0; p < GROUPS; p++)
            sum[p] += *(const Lanes *)(a + i + p * WIDTH) * *(const Lanes *)(b + i + p * WIDTH);
    float total = sum_of(sum);
    for (; i < size; i++) total += a[i] * b[i];
    return total;
}

/* Σ_i a_i */
static inline float sum(const float *a, int size) {
    Lanes sum[GROUPS] = {0};
    int i = 0;
    for (; i + LANES <= size; i += LANES)
        for (int p = 0; p < GROUPS; p++) sum[p] += *(const Lanes *)(a + i + p * WIDTH);
    float total = sum_of(sum);
    for (; i < size; i++) total += a[i];
    return total;
}

/* The larger numbers of both, b where one is none. */
static inline Lanes larger(Lanes a, Lanes b) {
    typedef int32_t Bits __attribute__((vector_size(WIDTH * 4)));
    const Bits first = a > b;
    return (Lanes)(((Bits)a & first) | ((Bits)b & ~first));
}

/* The largest number; −∞ of none. */
static inline float maximum(const float *x, int size) {
    Lanes most[GROUPS];
    float each[WIDTH];
    int i = 0;
    for (int p = 0; p < GROUPS; p++) most[p] = (Lanes){0} - INFINITY;
    for (; i + LANES <= size; i += LANES)
        for (int p = 0; p < GROUPS; p++) most[p] = larger(*(const Lanes *)(x + i + p * WIDTH), most[p]);
    for (int p = 1; p < GROUPS; p++) most[0] = larger(most[p], most[0]);
#if defined(__AVX512F__)
    each[0] = _mm512_reduce_max_ps((__m512)most[0]);
#else
    memcpy(each, most, sizeof each);
    for (int j = 1; j < WIDTH; j++) each[0] = each[j] > each[0] ? each[j] : each[0];
#endif
    for (; i < size; i++) each[0] = x[i] > each[0] ? x[i] : each[0];
    return each[0];
}

/* y += a x */
static inline void add_scaled(float *restrict y, const float *restrict x, float a, int size) {
    for (int i = 0; i < size; i++) y[i] += a * x[i];
}

/* exp x, relative error below 2e-7 (the polynomial of Cephes); between exp(−87) and exp(88). */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; /* its last bits are a whole number */
    const float n = shifted - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = 1.98756915e-4f;
    y = y * r + 1.39819995e-3f;
    y = y * r + 8.33345190e-3f;
    y = y * r + 4.16657960e-2f;
    y = y * r + 1.66666655e-1f;
    y = y * r + 0.5f;
    y = y * r * r + r + 1.0f;
    uint32_t bits;
    float power; /* 2ⁿ */
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, 4);
    return y * power;
}

static inline float sigmoid(float x) {
    const float small = exponential(-fabsf(x)), p = 1 / (1 + small);
    return x < 0 ? small * p : p;
}

static inline float hyperbolic_tangent(float x) {
    const float small = exponential(-2 * fabsf(x)), square = x * x;
    const float y = copysignf((1 - small) / (1 + small), x);
    return square < 1e-3f ? x * (1 - square * (1.0f / 3 - square * (2.0f / 15))) : y;
}

static inline float softplus(float x) { return x > 20 ? x : (float)log1p(exponential(x)); }

/* Φ(x) = erfc(−x / √2) / 2, absolute error below 2e-7 (Press et al., 1992, §6.2). */
static inline float normal_distribution(float x) {
    const float z = fabsf(x) * 0.70710678f, t = 1 / (1 + 0.5f * z);
    float y = 0.17087277f;
    y = y * t - 0.82215223f;
    y = y * t + 1.48851587f;
    y = y * t - 1.13520398f;
    y = y * t + 0.27886807f;
    y = y * t - 0.18628806f;
    y = y * t + 0.09678418f;
    y = y * t + 0.37409196f;
    y = y * t + 1.00002368f;
    y = y * t - 1.26551223f;
    const float tail = 0.5f * t * exponential(y - z * z);
    return x < 0 ? tail : 1 - tail;
}

typedef enum { IDENTITY, RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID } Activation;

static void activate(Activation kind, float *x, size_t size) {
    switch (kind) {
    case IDENTITY: return;
    case RELU: for (size_t i = 0; i < size; i++) x[i] = x[i] <= 0 ? 0 : x[i]; return; /* keeps NaN */
    case GELU: for (size_t i = 0; i < size; i++) x[i] *= normal_distribution(x[i]); return;
    case GELU_TANH:
        for (size_t i = 0; i < size; i++) {
            const float inner = 0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
            x[i] *= 0.5f * (1 + hyperbolic_tangent(inner));
        }
        return;
    case SILU: for (size_t i = 0; i < size; i++) x[i] *= sigmoid(x[i]); return;
    case TANH: for (size_t i = 0; i < size; i++) x[i] = hyperbolic_tangent(x[i]); return;
    case SIGMOID: for (size_t i = 0; i < size; i++) x[i] = sigmoid(x[i]); return;
    }
}

/* log Σ exp z; −∞ where all are, NaN where one is. */
static float log_sum_exp(const float *z, int size) {
    const float most = maximum(z, size);
    float total = 0, each[LANES] = {0};
    int i = 0;
    if (!(most > -INFINITY)) {
        for (; i < size; i++) total += z[i];
        return total;
    }
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; j++) each[j] += exponential(z[i + j] - most);
    for (; i < size; i++) total += exponential(z[i] - most);
    return most + (float)log(total + sum(each, LANES));
}
