/* Rows of scores: the cross-entropy with its gradient. */

#include <stdlib.h>
#include "half.h"

/* exp x for x ≤ 0, relative error below 2e-7 (Cephes); 1e-38 below −87. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693147181f;
    float y = 1.98756915e-4f;
    y = y * r + 1.39819995e-3f;
    y = y * r + 8.33345190e-3f;
    y = y * r + 4.16657960e-2f;
    y = y * r + 1.66666655e-1f;
    y = y * r + 0.5f;
    y = y * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;  /* of 2ⁿ */
    float power;
    memcpy(&power, &bits, 4);
    return y * power;
}

static inline float maximum(const float *z, int64_t size) {
    float most = -INFINITY, each[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) each[j] = most;
    for (; i + LANES <= size; i += LANES)
        for (int j = 0; j < LANES; j++) each[j] = z[i + j] > each[j] ? z[i + j] : each[j];
    for (; i < size; i++) most = z[i] > most ? z[i] : most;
#ifdef __AVX512F__ /* halves with halves, for one after the other would take as long as 64 numbers */
    const float of_each = _mm512_reduce_max_ps(_mm512_loadu_ps(each));
    return of_each > most ? of_each : most;
#endif
    for (int j = 0; j < LANES; j++) most = each[j] > most ? each[j] : most;
    return most;
}

/* log Σ exp z − (1 − α) z_y − α mean z, and −log p_y; z becomes p − (1 − α) onehot_y − α/V. */
static void cross_entropy_of(float *z, int64_t size, int64_t target, float smoothing, float *loss,
                             float *nll) {
    float most = maximum(z, size), picked = z[target], mass = 0, mean = 0;
    for (int64_t i = 0; i < size; i++) {
        float odds = exponential(z[i] - most);
        mean += z[i] - most;
        mass += odds;
        z[i] = odds;
    }
    mean = most + mean / size;
    float log_z = most + logf(mass), by = 1 / mass, each = smoothing / size;
    for (int64_t i = 0; i < size; i++) z[i] = z[i] * by - each;
    z[target] -= 1 - smoothing;
    *loss = (1 - smoothing) * (log_z - picked) + smoothing * (log_z - mean);
    *nll = log_z - picked;
}

/* The same for each row, of floats or of bf16. */
void cross_entropy(void *z, int half, int64_t rows, int64_t size, const int64_t *target,
                   float smoothing, float *loss, float *nll, int threads) {
#pragma omp parallel num_threads(threads)
    {
        float *row = half ? malloc(size * sizeof(float)) : NULL;
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            uint16_t *from = (uint16_t *)z + r * size;
            if (half) widen(from, size, row);
            cross_entropy_of(half ? row : (float *)z + r * size, size, target[r], smoothing,
                             loss + r, nll + r);
            if (half) narrow(row, size, from);
        }
        free(row);
    }
}
