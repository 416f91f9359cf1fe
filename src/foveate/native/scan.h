/* The selective scan (Gu & Dao, 2023) of B sequences of T steps, E channels of N numbers each,
 *
 *     h_t = exp(Δ_t a) h_{t−1} + Δ_t u_t B_t,    y_t = C_t · h_t,
 *
 * a channel at a time, so that its states never leave the nearest cache; in the backward pass they
 * are computed again. Δ and u are (B, T, E), a (E, N), B and C (B, T, N), h (B, E, N). */

typedef struct {
    int64_t batch, steps, channels, size;
    const float *delta, *u, *a, *into, *out, *start;
} Scan;

/* One channel: Δ, u at their first step, `far` numbers from step to step. Into `states` (T + 1, N)
 * all h from the one before the first step; into `decays` (T, N), where it is not NULL, exp(Δ a). */
static void scan_channel(const Scan *s, const float *delta, const float *u, const float *a,
                         const float *into, float *states, float *decays) {
    const int64_t n = s->size, far = s->channels;
    for (int64_t t = 0; t < s->steps; t++, states += n, into += n) {
        const float d = delta[t * far], x = d * u[t * far];
        for (int64_t i = 0; i < n; i++) {
            float decay = exponential(d * a[i]);
            states[n + i] = decay * states[i] + x * into[i];
            if (decays) decays[t * n + i] = decay;
        }
    }
}

/* y (B, T, E) and the last h (B, E, N); `room` holds (T + 1) N numbers. */
void scan(const Scan *s, float *y, float *last, float *room) {
    const int64_t n = s->size, far = s->channels, bytes = n * sizeof(float);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t e = 0; e < far; e++) {
            const int64_t at = b * s->steps * far + e, state = (b * far + e) * n;
            const float *out = s->out + b * s->steps * n;
            memcpy(room, s->start + state, bytes);
            scan_channel(s, s->delta + at, s->u + at, s->a + e * n, s->into + b * s->steps * n,
                         room, NULL);
            for (int64_t t = 0; t < s->steps; t++, out += n) {
                float sum = 0;
                for (int64_t i = 0; i < n; i++) sum += room[(t + 1) * n + i] * out[i];
                y[at + t * far] = sum;
            }
            memcpy(last + state, room + s->steps * n, bytes);
        }
}

/* The gradients of what `scan` was given, from those of y and of the last h, which becomes that of
 * the first. That of a, one for each sequence (B, E, N),
 * and those of B and C are added to. `room` holds (2 T + 1) N numbers. */
void scan_backward(const Scan *s, const float *dy, float *dlast, float *ddelta, float *du,
                   float *da, float *dinto, float *dout, float *room) {
    const int64_t n = s->size, far = s->channels;
    float *states = room, *decays = room + (s->steps + 1) * n;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t e = 0; e < far; e++) {
            const int64_t at = b * s->steps * far + e, first = b * s->steps * n;
            float *dh = dlast + (b * far + e) * n, *da_e = da + (b * far + e) * n;
            const float *a = s->a + e * n;
            memcpy(states, s->start + (b * far + e) * n, n * sizeof(float));
            scan_channel(s, s->delta + at, s->u + at, a, s->into + first, states, decays);
            for (int64_t t = s->steps - 1; t >= 0; t--) {
                const int64_t here = at + t * far, row = first + t * n;
                const float d = s->delta[here], x = s->u[here], g = dy[here];
                const float *h = states + t * n, *decay = decays + t * n;
                const float *into = s->into + row, *out = s->out + row;
                float by_decay = 0, by_input = 0;
                for (int64_t i = 0; i < n; i++) {
                    float back = dh[i] + g * out[i], slope = back * decay[i] * h[i];
                    dout[row + i] += g * h[n + i];
                    dinto[row + i] += back * d * x;
                    da_e[i] += slope * d;
                    by_decay += slope * a[i];
                    by_input += back * into[i];
                    dh[i] = back * decay[i];
                }
                ddelta[here] = by_decay + by_input * x;
                du[here] = by_input * d;
            }
        }
}
