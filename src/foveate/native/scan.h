/* The selective scan (Gu & Dao, 2023) of B sequences of T steps, E channels of N numbers each,
 *
 *     Δ_t = k_t softplus(δ_t + b),    h_t = exp(Δ_t a) h_{t−1} + Δ_t u_t B_t,
 *     y_t = (C_t · h_t + D u_t) SiLU(z_t),
 *
 * k_t being 0 where a step is padding, and else 1. A channel is in each lane, so that no sum crosses
 * the lanes before the last and the states do not leave the nearest caches; in the backward pass they
 * are computed again.
 * δ, u, z and y are (B, T, E), B and C (B, T, N), all fp32 or all bf16; a is (E, N), b and D (E),
 * h (B, E, N), in fp32. */

typedef struct {
    int64_t batch, steps, channels, size;
    const void *step, *u, *into, *out, *gate;
    const float *start;      /* h_0, or NULL: 0 */
    const uint8_t *keys;     /* k, or NULL: 1 */
    const float *a, *bias, *skip;
    int32_t half, backwards; /* bf16; from the last step to the first */
} Scan;

/* exp(0.693… x) = 2ˣ for x ≤ 0, relative error below 2e-7. */
static inline Lanes powers(Lanes x) {
#ifdef __AVX512F__
    const __m512 t = (__m512)x, n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT);
    const Lanes r = (Lanes)(t - n);
    Lanes y = 1.32647272e-3f * r + 9.67151281e-3f;
    y = y * r + 5.55073374e-2f;
    y = y * r + 2.40222421e-1f;
    y = y * r + 6.93146978e-1f;
    y = y * r + 1.0f;
    return (Lanes)_mm512_scalef_ps((__m512)y, n);
#else
    for (int j = 0; j < LANES; j++) x[j] = exponential(x[j] * 0.693147181f);
    return x;
#endif
}

/* softplus x = max(0, x) + log(1 + e), and its slope σ(x); e = exp(−|x|), log(1 + e) = 2 atanh s. */
static inline float softplus(float x, float *slope) {
    const float e = exponential(x < 0 ? x : -x), s = e / (2 + e), q = s * s;
    float y = 0.0769230769f;
    y = y * q + 0.0909090909f;
    y = y * q + 0.111111111f;
    y = y * q + 0.142857143f;
    y = y * q + 0.2f;
    y = y * q + 0.333333333f;
    *slope = (x < 0 ? e : 1) / (1 + e);
    return (x < 0 ? 0 : x) + 2 * (s + s * q * y);
}

static inline float sigmoid(float x) {
    const float e = exponential(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

static inline Lanes sigmoids(Lanes x) {
    float each[LANES];
    memcpy(each, &x, sizeof each);
    for (int j = 0; j < LANES; j++) each[j] = sigmoid(each[j]);
    memcpy(&x, each, sizeof each);
    return x;
}

/* k softplus(x), and its slope. */
static inline Lanes softpluses(Lanes x, float key, Lanes *slope) {
    float each[LANES], slopes[LANES];
    memcpy(each, &x, sizeof each);
    for (int j = 0; j < LANES; j++) each[j] = softplus(each[j], slopes + j);
    memcpy(&x, each, sizeof each);
    memcpy(slope, slopes, sizeof each);
    *slope *= key;
    return x * key;
}

/* `count` neighbours of an array of floats or bf16, 0 in the other lanes; and back. */
static inline Lanes lanes_of(const void *from, int half, int64_t at, int count) {
    float x[LANES] = {0};
    if (count == LANES) take(from, half, at, LANES, x);
    else take(from, half, at, count, x);
    return *(const Lanes *)x;
}

static inline void put_lanes(Lanes x, int count, void *to, int half, int64_t at) {
    float each[LANES];
    memcpy(each, &x, sizeof each);
    if (count == LANES) give(each, LANES, to, half, at);
    else give(each, count, to, half, at);
}

static inline int lanes_from(int64_t e, int64_t channels) {
    return channels - e < LANES ? (int)(channels - e) : LANES;
}

/* Of channel e: numbers (E, N) of which each lane has a channel, (N) lanes; and back. */
static void turn_in(const float *from, int64_t size, int count, float factor, Lanes *to) {
    for (int64_t i = 0; i < size; i++) {
        to[i] = (Lanes){0};
        for (int j = 0; j < count; j++) to[i][j] = from[j * size + i] * factor;
    }
}

static void turn_out(const Lanes *from, int64_t size, int count, float *to) {
    for (int64_t i = 0; i < size; i++)
        for (int j = 0; j < count; j++) to[j * size + i] = from[i][j];
}

/* The place of the t-th step that is scanned of sequence b. */
static inline int64_t place(const Scan *s, int64_t b, int64_t t) {
    return b * s->steps + (s->backwards ? s->steps - 1 - t : t);
}

/* B or C of sequence b, in the order of the scan, as floats. */
static void rows_of(const Scan *s, const void *from, int64_t b, float *to) {
    for (int64_t t = 0; t < s->steps; t++, to += s->size)
        take(from, s->half, place(s, b, t) * s->size, s->size, to);
}

/* Room for lanes, a log₂ e of all channels first, each N lanes. */
static Lanes *room_for(const Scan *s, int64_t lanes) {
    const int64_t n = s->size, spans = (s->channels + LANES - 1) / LANES;
    Lanes *room = aligned_alloc(64, ((spans * n + lanes) * sizeof(Lanes) + 63) / 64 * 64);
    for (int64_t e = 0; e < s->channels; e += LANES)
        turn_in(s->a + e * n, n, lanes_from(e, s->channels), 1.44269504f, room + e / LANES * n);
    return room;
}

/* y, and where it is wanted the last h. */
void scan(const Scan *s, void *y, float *last) {
    const int64_t n = s->size, steps = s->steps, far = s->channels, rows = steps * n / LANES + 1;
    Lanes *const all = room_for(s, n + 2 * rows), *restrict h = all + (far + LANES - 1) / LANES * n;
    float *const into = (float *)(h + n), *const out = (float *)(h + n + rows);
    for (int64_t b = 0; b < s->batch; b++) {
        rows_of(s, s->into, b, into);
        rows_of(s, s->out, b, out);
        for (int64_t e = 0; e < far; e += LANES) {
            const int count = lanes_from(e, far);
            const Lanes *restrict a = all + e / LANES * n, skip = lanes_of(s->skip, 0, e, count);
            const Lanes bias = lanes_of(s->bias, 0, e, count);
            if (s->start) turn_in(s->start + (b * far + e) * n, n, count, 1, h);
            else memset(h, 0, n * sizeof *h);
            for (int64_t t = 0; t < steps; t++) {
                const int64_t at = place(s, b, t) * far + e;
                const float key = s->keys ? s->keys[place(s, b, t)] : 1;
                const Lanes u = lanes_of(s->u, s->half, at, count);
                const Lanes z = lanes_of(s->gate, s->half, at, count);
                Lanes sum = skip * u, slope;
                const Lanes delta = softpluses(lanes_of(s->step, s->half, at, count) + bias, key, &slope);
                const Lanes changed = delta * u;
                for (int64_t i = 0; i < n; i++) {
                    h[i] = powers(delta * a[i]) * h[i] + changed * into[t * n + i];
                    sum += h[i] * out[t * n + i];
                }
                put_lanes(sum * z * sigmoids(z), count, y, s->half, at);
            }
            if (last) turn_out(h, n, count, last + (b * far + e) * n);
        }
    }
    free(all);
}

typedef struct { /* the steps of some channels of a sequence, and the gradients that its channels share */
    Lanes *delta, *slope, *u, *read; /* Δ, dΔ/dδ, u and what the gate lets out, (T) */
    Lanes *states, *decays;          /* h from h_0 on (T + 1, N), exp(Δ a) (T, N) */
    Lanes *dh, *of_into, *of_out;    /* (N), (T, N), (T, N) */
    float *into, *out;               /* B and C (T, N) */
} Steps;

/* All that the backward pass needs of the forward pass. */
static void scan_again(const Scan *s, const Steps *p, int64_t b, int64_t e, const Lanes *restrict a) {
    const int64_t n = s->size, far = s->channels;
    const int count = lanes_from(e, far);
    const Lanes skip = lanes_of(s->skip, 0, e, count), bias = lanes_of(s->bias, 0, e, count);
    if (s->start) turn_in(s->start + (b * far + e) * n, n, count, 1, p->states);
    else memset(p->states, 0, n * sizeof(Lanes));
    for (int64_t t = 0; t < s->steps; t++) {
        const int64_t at = place(s, b, t) * far + e;
        const float key = s->keys ? s->keys[place(s, b, t)] : 1;
        const Lanes u = p->u[t] = lanes_of(s->u, s->half, at, count);
        const Lanes x = lanes_of(s->step, s->half, at, count) + bias;
        const Lanes delta = p->delta[t] = softpluses(x, key, p->slope + t), changed = delta * u;
        Lanes *restrict h = p->states + t * n, *restrict decays = p->decays + t * n, sum = skip * u;
        for (int64_t i = 0; i < n; i++) {
            decays[i] = powers(delta * a[i]);
            h[n + i] = decays[i] * h[i] + changed * p->into[t * n + i];
            sum += h[n + i] * p->out[t * n + i];
        }
        p->read[t] = sum;
    }
}

typedef struct { /* gradients of what is named alike; those of a, b and D are of all sequences */
    const void *y;
    const float *last;
    void *step, *u, *into, *out, *gate;
    float *start, *a, *bias, *skip;
} ScanGradients;

/* The gradients of some channels of one sequence; those of a, b and D are added. */
static void scan_back(const Scan *s, const Steps *p, int64_t b, int64_t e, const ScanGradients *to,
                      const Lanes *restrict a, Lanes *restrict of_a) {
    const int64_t n = s->size, far = s->channels;
    const int count = lanes_from(e, far);
    const Lanes skip = lanes_of(s->skip, 0, e, count);
    Lanes of_skip = lanes_of(to->skip, 0, e, count), of_bias = lanes_of(to->bias, 0, e, count);
    Lanes *restrict dh = p->dh, *restrict of_into = p->of_into, *restrict of_out = p->of_out;
    if (to->last) turn_in(to->last + (b * far + e) * n, n, count, 1, dh);
    else memset(dh, 0, n * sizeof *dh);
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        const int64_t at = place(s, b, t) * far + e;
        const Lanes dy = lanes_of(to->y, s->half, at, count), u = p->u[t], delta = p->delta[t];
        const Lanes z = lanes_of(s->gate, s->half, at, count), open = sigmoids(z);
        const Lanes g = dy * z * open, changed = delta * u, *restrict h = p->states + t * n;
        const Lanes *restrict decays = p->decays + t * n;
        const float *restrict into = p->into + t * n, *restrict out = p->out + t * n;
        Lanes by_decay = {0}, by_input = {0};
        for (int64_t i = 0, k = t * n; i < n; i++, k++) {
            const Lanes back = dh[i] + g * out[i], before = back * decays[i], change = before * h[i];
            of_out[k] += g * h[n + i];
            of_into[k] += back * changed;
            of_a[i] += change * delta;
            by_decay += change * a[i];
            by_input += back * into[i];
            dh[i] = before;
        }
        const Lanes of_step = (by_decay * 0.693147181f + by_input * u) * p->slope[t];
        put_lanes(of_step, count, to->step, s->half, at);
        put_lanes(by_input * delta + g * skip, count, to->u, s->half, at);
        put_lanes(dy * p->read[t] * open * (1 + z * (1 - open)), count, to->gate, s->half, at);
        of_skip += g * u;
        of_bias += of_step;
    }
    put_lanes(of_skip, count, to->skip, 0, e);
    put_lanes(of_bias, count, to->bias, 0, e);
    if (to->start) turn_out(dh, n, count, to->start + (b * far + e) * n);
}

/* Sums over the lanes, as gradients of B or C of sequence b. */
static void give_rows(const Scan *s, const Lanes *from, int64_t b, float *sums, void *to) {
    for (int64_t t = 0; t < s->steps; t++, from += s->size) {
        for (int64_t i = 0; i < s->size; i++) {
            sums[i] = 0;
            for (int j = 0; j < LANES; j++) sums[i] += from[i][j];
        }
        give(sums, s->size, to, s->half, place(s, b, t) * s->size);
    }
}

void scan_backward(const Scan *s, const ScanGradients *to) {
    const int64_t n = s->size, steps = s->steps, far = s->channels, rows = steps * n / LANES + 1;
    const int64_t each = (far + LANES - 1) / LANES * n;
    Lanes *const all = room_for(s, each + 4 * steps + (4 * steps + 2) * n + 2 * rows);
    Lanes *const of_a = memset(all + each, 0, each * sizeof(Lanes)), *const slope = of_a + each + steps;
    Steps p = {.delta = of_a + each, .slope = slope, .u = slope + steps, .read = slope + 2 * steps};
    p.states = slope + 3 * steps, p.decays = p.states + (steps + 1) * n;
    p.dh = p.decays + steps * n, p.of_into = p.dh + n, p.of_out = p.of_into + steps * n;
    p.into = (float *)(p.of_out + steps * n), p.out = (float *)(p.of_out + steps * n + rows);
    for (int64_t b = 0; b < s->batch; b++) {
        rows_of(s, s->into, b, p.into);
        rows_of(s, s->out, b, p.out);
        memset(p.of_into, 0, 2 * steps * n * sizeof(Lanes));
        for (int64_t e = 0; e < far; e += LANES) {
            const Lanes *a = all + e / LANES * n;
            scan_again(s, &p, b, e, a);
            scan_back(s, &p, b, e, to, a, of_a + e / LANES * n);
        }
        give_rows(s, p.of_into, b, p.into, to->into);
        give_rows(s, p.of_out, b, p.out, to->out);
    }
    for (int64_t e = 0; e < far; e += LANES)
        turn_out(of_a + e / LANES * n, n, lanes_from(e, far), to->a + e * n);
    free(all);
}
