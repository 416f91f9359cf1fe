/* y + b, or max(0, y + b), of rows in bf16, in their place. */

void add_bias(int64_t rows, int64_t size, uint16_t *y, const float *bias, int relu, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < size; at += SPAN) {
            const int64_t count = size - at < SPAN ? size - at : SPAN;
            uint16_t *some = y + row * size + at;
            float sum[SPAN];
            widen(some, count, sum);
            for (int64_t i = 0; i < count; i++) sum[i] += bias[at + i];
            for (int64_t i = 0; relu && i < count; i++) sum[i] = relu_of(sum[i]);
            narrow(sum, count, some);
        }
}
