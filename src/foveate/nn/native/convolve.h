/* A causal convolution of each channel for itself, of sequences of T steps,
 *
 *     s_t = b + Σ_i w_i k x_{t−W+1+i},    u_t = SiLU(s_t),
 *
 * x being 0 before the first step and k 0 at padding. x and u are (B, T, E), fp32 or bf16, w is
 * (W, E), b (E). A channel is in each lane; s is computed again for the gradients. */

typedef struct {
    int64_t batch, steps, channels, window;
    const void *x;
    const uint8_t *keys; /* k, or NULL: 1 */
    const float *kernel, *bias;
    int32_t half, backwards; /* bf16; from the last step to the first */
    int32_t threads;
} Convolution;

static inline int64_t step_of(const Convolution *c, int64_t b, int64_t t) {
    return b * c->steps + (c->backwards ? c->steps - 1 - t : t);
}

/* x of some channels of sequence b, W − 1 zeros first. */
static void seen(const Convolution *c, int64_t b, int64_t e, int count, Lanes *x) {
    memset(x, 0, (c->window - 1) * sizeof *x);
    for (int64_t t = 0; t < c->steps; t++) {
        const int64_t row = step_of(c, b, t);
        const float key = c->keys ? c->keys[row] : 1;
        x[c->window - 1 + t] = key * lanes_of(c->x, c->half, row * c->channels + e, count);
    }
}

void convolve(const Convolution *c, void *u) {
    const int64_t window = c->window, far = c->channels;
#pragma omp parallel num_threads(c->threads)
    {
        Lanes *const w = aligned_alloc(64, (2 * window + c->steps) * 64), *const x = w + window;
#pragma omp for schedule(static)
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t e = 0; e < far; e += LANES) {
                const int count = lanes_from(e, far);
                const Lanes bias = lanes_of(c->bias, 0, e, count);
                for (int64_t i = 0; i < window; i++) w[i] = lanes_of(c->kernel, 0, i * far + e, count);
                ask_ahead(c->x, c->half, ((b + 1) * far + e) * c->steps, count * c->steps);
                ask_ahead(u, c->half, ((b + 1) * far + e) * c->steps, count * c->steps);
                seen(c, b, e, count, x);
                for (int64_t t = 0; t < c->steps; t++) {
                    Lanes s = bias, open;
                    for (int64_t i = 0; i < window; i++) s += w[i] * x[t + i];
                    fading(s, &open);
                    put_lanes(s * open, count, u, c->half, step_of(c, b, t) * far + e);
                }
            }
        free(w);
    }
}

/* dx, and the gradients of w and b of each group of sequences. */
void convolve_backward(const Convolution *c, const void *du, void *dx, float *dkernel, float *dbias) {
    const int64_t window = c->window, steps = c->steps, far = c->channels;
#pragma omp parallel num_threads(c->threads)
    {
        Lanes *const w = aligned_alloc(64, (4 * window + 2 * steps) * 64), *const dw = w + window;
        Lanes *const x = dw + window, *const ds = x + window + steps;
        memset(ds + steps, 0, window * sizeof *ds); /* after the last step */
#pragma omp for schedule(static)
        for (int64_t group = 0; group < (c->batch + GROUP - 1) / GROUP; group++)
            for (int64_t b = group * GROUP; b < (group + 1) * GROUP && b < c->batch; b++)
                for (int64_t e = 0; e < far; e += LANES) {
                    const int64_t own = group * window * far + e;
                    const int count = lanes_from(e, far);
                    const Lanes bias = lanes_of(c->bias, 0, e, count);
                    Lanes of_bias = lanes_of(dbias, 0, group * far + e, count);
                    const void *arrays[] = {c->x, du, dx};
                    for (int i = 0; i < 3; i++)
                        ask_ahead(arrays[i], c->half, ((b + 1) * far + e) * steps, count * steps);
                    for (int64_t i = 0; i < window; i++) {
                        w[i] = lanes_of(c->kernel, 0, i * far + e, count);
                        dw[i] = lanes_of(dkernel, 0, i * far + own, count);
                    }
                    seen(c, b, e, count, x);
                    for (int64_t t = steps - 1; t >= 0; t--) {
                        const int64_t row = step_of(c, b, t), at = row * far + e;
                        Lanes s = bias, of_x = {0}, open;
                        for (int64_t i = 0; i < window; i++) s += w[i] * x[t + i];
                        fading(s, &open);
                        ds[t] = lanes_of(du, c->half, at, count) * open * (1 + s * (1 - open));
                        of_bias += ds[t];
                        for (int64_t i = 0; i < window; i++) {
                            dw[i] += ds[t] * x[t + i];
                            of_x += w[i] * ds[t + window - 1 - i];
                        }
                        put_lanes(of_x * (c->keys ? c->keys[row] : 1.0f), count, dx, c->half, at);
                    }
                    for (int64_t i = 0; i < window; i++)
                        put_lanes(dw[i], count, dkernel, 0, i * far + own);
                    put_lanes(of_bias, count, dbias, 0, group * far + e);
                }
        free(w);
    }
}
