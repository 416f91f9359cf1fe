/* y = γ x r with r = 1 / √(mean x² + ε), of rows of floats (Zhang & Sennrich, 2019), in one pass. */

enum { NORMED = 256 }; /* rows of a thread at a time, whose gradients of γ are one sum */

static void rms_norm_rows(int64_t rows, int64_t size, const float *restrict x,
                          const float *restrict gain, float eps, float *restrict y,
                          float *restrict r) {
    for (int64_t n = 0; n < rows; n++, x += size, y += size) {
        float sum = 0;
        for (int64_t i = 0; i < size; i++) sum += x[i] * x[i];
        r[n] = 1 / sqrtf(sum / size + eps);
        for (int64_t i = 0; i < size; i++) y[i] = gain[i] * x[i] * r[n];
    }
}

void rms_norm(int64_t rows, int64_t size, const float *x, const float *gain, float eps, float *y,
              float *r, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < rows; n += NORMED)
        rms_norm_rows(rows - n < NORMED ? rows - n : NORMED, size, x + n * size, gain, eps,
                      y + n * size, r + n);
}

/* dx = r (γ dy − x r² mean(γ dy x)); the gradient of γ, Σ dy x r, is that of each group of rows. */
static void rms_norm_back(int64_t rows, int64_t size, const float *restrict x,
                          const float *restrict gain, const float *restrict r,
                          const float *restrict dy, float *restrict dx, float *restrict dgain) {
    for (int64_t n = 0; n < rows; n++, x += size, dy += size, dx += size) {
        float sum = 0;
        for (int64_t i = 0; i < size; i++) sum += gain[i] * dy[i] * x[i];
        const float shared = r[n] * r[n] * sum / size;
        for (int64_t i = 0; i < size; i++) {
            dx[i] = r[n] * (gain[i] * dy[i] - x[i] * shared);
            dgain[i] += dy[i] * x[i] * r[n];
        }
    }
}

void rms_norm_backward(int64_t rows, int64_t size, const float *x, const float *gain,
                       const float *r, const float *dy, float *dx, float *dgain, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < rows; n += NORMED)
        rms_norm_back(rows - n < NORMED ? rows - n : NORMED, size, x + n * size, gain, r + n,
                      dy + n * size, dx + n * size, dgain + n / NORMED * size);
}
