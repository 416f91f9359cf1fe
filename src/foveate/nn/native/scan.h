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
    int32_t threads;
} Scan;

enum { GROUP = 8 }; /* sequences whose gradients of weights are one sum */

typedef uint32_t Bits __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

/* 2ˣ for x ≤ 0, relative error below 2e-7. */
static inline Lanes powers(Lanes x) {
#ifdef __AVX512F__
    const __m512 n = _mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT);
    const Lanes r = x - (Lanes)n;
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

static inline Lanes choose(Bits yes, Lanes a, Lanes b) {
    return (Lanes)((yes & (Bits)a) | (~yes & (Bits)b));
}

/* 1 / x for x from 1 to 3. */
static inline Lanes inverse(Lanes x) {
#ifdef __AVX512F__ /* Newton's step after a table: a third of the time of a division */
    const Lanes y = (Lanes)_mm512_rcp14_ps((__m512)x);
    return y * (2 - x * y);
#else
    return 1 / x;
#endif
}

/* exp(−|x|), and σ(x). */
static inline Lanes fading(Lanes x, Lanes *sigmoid) {
    const Lanes e = powers((Lanes)((Bits)x | 0x80000000u) * 1.44269504f), one = e - e + 1;
    *sigmoid = choose((Bits)(x < 0), e, one) * inverse(1 + e);
    return e;
}

/* max(0, x) + log(1 + e) with e = exp(−|x|), by log(1 + e) = 2 atanh s; and its slope σ(x). */
static inline Lanes softplus(Lanes x, Lanes *slope) {
    const Lanes e = fading(x, slope), s = e * inverse(2 + e), q = s * s;
    Lanes y = 0.0769230769f * q + 0.0909090909f;
    y = y * q + 0.111111111f;
    y = y * q + 0.142857143f;
    y = y * q + 0.2f;
    y = y * q + 0.333333333f;
    return choose((Bits)(x < 0), (Lanes){0}, x) + 2 * (s + s * q * y);
}

/* `count` neighbours of an array of floats or bf16, 0 in the other lanes; and back, to the nearest, of
 * two the even one. */
static inline Lanes lanes_of(const void *from, int half, int64_t at, int count) {
    if (count == LANES && half) {
        const Halves x = *(const Halves *)((const uint16_t *)from + at);
        return (Lanes)(__builtin_convertvector(x, Bits) << 16);
    }
    if (count == LANES) return *(const Lanes *)((const float *)from + at);
    float x[LANES] = {0};
    take(from, half, at, count, x);
    return *(const Lanes *)x;
}

static inline void put_lanes(Lanes x, int count, void *to, int half, int64_t at) {
    if (count == LANES && half) {
        const Bits bits = (Bits)x, none = (Bits)(x != x);
        const Bits near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        *(Halves *)((uint16_t *)to + at) = __builtin_convertvector(near | (none & 0x7fc0), Halves);
    } else if (count == LANES) *(Lanes *)((float *)to + at) = x;
    else give((const float *)&x, count, to, half, at);
}

static inline int lanes_from(int64_t e, int64_t channels) {
    return channels - e < LANES ? (int)(channels - e) : LANES;
}

/* Ask for what `count` channels need of the next sequence, T numbers each, of an array (B, T, E). */
static inline void ask_ahead(const void *from, int half, int64_t at, int64_t count) {
    const char *first = (const char *)from + at * (half ? 2 : 4);
    for (int64_t i = 0; i < count * (half ? 2 : 4); i += 64) __builtin_prefetch(first + i, 0, 2);
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

typedef struct { /* the steps of some channels of a sequence, in the order of the scan */
    Lanes *delta, *slope, *u, *y, *gate; /* Δ, dΔ/dδ, u, C · h + D u and its gradient, (T) */
    Lanes *states, *decays;              /* h from h_0 on (T + 1, N), exp(Δ a) (T, N) */
    Lanes *dh, *of_into, *of_out;        /* gradients of h (N), and of B and C in each lane (T, N) */
    float *into, *out;                   /* B and C (T, N) */
} Steps;

/* Room for a log₂ e and its gradient, (E, N), and for the steps. */
static Lanes *room_for(const Scan *s, Steps *p) {
    const int64_t n = s->size, steps = s->steps, all = (s->channels + LANES - 1) / LANES * n;
    Lanes *room = aligned_alloc(64, ((2 * all + (6 * steps + 2) * n + 5 * steps) * sizeof *room + 63) / 64 * 64);
    for (int64_t e = 0; e < s->channels; e += LANES)
        turn_in(s->a + e * n, n, lanes_from(e, s->channels), 1.44269504f, room + e / LANES * n);
    p->states = (Lanes *)memset(room + all, 0, all * sizeof *room) + all;
    p->decays = p->states + (steps + 1) * n;
    p->of_into = p->decays + steps * n, p->of_out = p->of_into + steps * n;
    p->dh = p->of_out + steps * n, p->delta = p->dh + n, p->slope = p->delta + steps;
    p->u = p->slope + steps, p->y = p->u + steps, p->gate = p->y + steps;
    p->into = (float *)(p->gate + steps), p->out = p->into + steps * n;
    return room;
}

/* Δ, u, h and C · h + D u of some channels; all h and exp(Δ a) where the backward pass needs them. */
static inline __attribute__((always_inline)) void scan_steps(
    const Scan *s, const Steps *p, int64_t b, int64_t e, const Lanes *restrict a, const int keep) {
    const int64_t n = s->size, far = s->channels;
    const int count = lanes_from(e, far);
    const Lanes skip = lanes_of(s->skip, 0, e, count), bias = lanes_of(s->bias, 0, e, count);
    for (int64_t t = 0; t < s->steps; t++) {
        const int64_t row = place(s, b, t), at = row * far + e;
        const float key = s->keys ? s->keys[row] : 1;
        Lanes slope;
        p->delta[t] = key * softplus(lanes_of(s->step, s->half, at, count) + bias, &slope);
        if (keep) p->slope[t] = key * slope;
        p->u[t] = lanes_of(s->u, s->half, at, count);
    }
    if (s->start) turn_in(s->start + (b * far + e) * n, n, count, 1, p->states);
    else memset(p->states, 0, n * sizeof(Lanes));
    for (int64_t t = 0; t < s->steps; t++) {
        const Lanes delta = p->delta[t], changed = delta * p->u[t];
        const Lanes *h = p->states + (keep ? t * n : 0);
        Lanes *restrict next = p->states + (keep ? (t + 1) * n : 0), *restrict decays = p->decays + t * n;
        const float *restrict into = p->into + t * n, *restrict out = p->out + t * n;
        Lanes sum = skip * p->u[t];
        for (int64_t i = 0; i < n; i++) {
            const Lanes decay = powers(delta * a[i]);
            if (keep) decays[i] = decay;
            next[i] = decay * h[i] + changed * into[i];
            sum += next[i] * out[i];
        }
        p->y[t] = sum;
    }
}

/* y, and where it is wanted the last h. */
void scan(const Scan *s, void *y, float *last) {
    const int64_t n = s->size, far = s->channels;
#pragma omp parallel num_threads(s->threads)
    {
        Steps p;
        Lanes *const a = room_for(s, &p);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < s->batch; b++) {
            rows_of(s, s->into, b, p.into);
            rows_of(s, s->out, b, p.out);
            for (int64_t e = 0; e < far; e += LANES) {
                const int count = lanes_from(e, far);
                const void *arrays[] = {s->step, s->u, s->gate, y};
                for (int i = 0; i < 4; i++)
                    ask_ahead(arrays[i], s->half, ((b + 1) * far + e) * s->steps, count * s->steps);
                scan_steps(s, &p, b, e, a + e / LANES * n, 0);
                for (int64_t t = 0; t < s->steps; t++) {
                    const int64_t at = place(s, b, t) * far + e;
                    Lanes z = lanes_of(s->gate, s->half, at, count), open;
                    fading(z, &open);
                    put_lanes(p.y[t] * z * open, count, y, s->half, at);
                }
                if (last) turn_out(p.states, n, count, last + (b * far + e) * n);
            }
        }
        free(a);
    }
}

typedef struct { /* gradients of what is named alike; those of a, b and D of each group of sequences */
    const void *y;
    const float *last;
    void *step, *u, *into, *out, *gate;
    float *start, *a, *bias, *skip;
} ScanGradients;

/* The gradient of C · h + D u of some channels of a sequence; that of z is given. */
static void scan_gates(const Scan *s, const Steps *p, int64_t b, int64_t e, const ScanGradients *to) {
    const int count = lanes_from(e, s->channels);
    for (int64_t t = 0; t < s->steps; t++) {
        const int64_t at = place(s, b, t) * s->channels + e;
        const Lanes dy = lanes_of(to->y, s->half, at, count), z = lanes_of(s->gate, s->half, at, count);
        Lanes open;
        fading(z, &open);
        p->gate[t] = dy * z * open;
        put_lanes(dy * p->y[t] * open * (1 + z * (1 - open)), count, to->gate, s->half, at);
    }
}

/* The gradients of some channels of a sequence; those of a, b and D are added. */
static void scan_back(const Scan *s, const Steps *p, int64_t b, int64_t e, const ScanGradients *to,
                      const Lanes *restrict a, Lanes *restrict of_a) {
    const int64_t n = s->size, far = s->channels, at_group = b / GROUP * far + e;
    const int count = lanes_from(e, far);
    const Lanes skip = lanes_of(s->skip, 0, e, count);
    Lanes of_skip = lanes_of(to->skip, 0, at_group, count);
    Lanes of_bias = lanes_of(to->bias, 0, at_group, count);
    Lanes *restrict dh = p->dh, *restrict of_into = p->of_into, *restrict of_out = p->of_out;
    if (to->last) turn_in(to->last + (b * far + e) * n, n, count, 1, dh);
    else memset(dh, 0, n * sizeof *dh);
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        const int64_t at = place(s, b, t) * far + e;
        const Lanes g = p->gate[t], u = p->u[t], delta = p->delta[t], changed = delta * u;
        const Lanes *restrict h = p->states + t * n, *restrict decays = p->decays + t * n;
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
        of_skip += g * u;
        of_bias += of_step;
    }
    put_lanes(of_skip, count, to->skip, 0, at_group);
    put_lanes(of_bias, count, to->bias, 0, at_group);
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
    const int64_t n = s->size, far = s->channels, size = (far + LANES - 1) / LANES * n;
#pragma omp parallel num_threads(s->threads)
    {
        Steps p;
        Lanes *const all = room_for(s, &p), *const of_all = all + size;
#pragma omp for schedule(static)
        for (int64_t first = 0; first < s->batch; first += GROUP) {
            memset(of_all, 0, size * sizeof *of_all);
            for (int64_t b = first; b < first + GROUP && b < s->batch; b++) {
                rows_of(s, s->into, b, p.into);
                rows_of(s, s->out, b, p.out);
                memset(p.of_into, 0, 2 * s->steps * n * sizeof(Lanes));
                for (int64_t e = 0; e < far; e += LANES) {
                    const Lanes *a = all + e / LANES * n;
                    const void *arrays[] = {s->step, s->u, s->gate, to->y, to->step, to->u, to->gate};
                    for (int i = 0; i < 7; i++)
                        ask_ahead(arrays[i], s->half, ((b + 1) * far + e) * s->steps, LANES * s->steps);
                    scan_steps(s, &p, b, e, a, 1);
                    scan_gates(s, &p, b, e, to);
                    scan_back(s, &p, b, e, to, a, of_all + e / LANES * n);
                }
                give_rows(s, p.of_into, b, p.into, to->into);
                give_rows(s, p.of_out, b, p.out, to->out);
            }
            float *of_a = to->a + first / GROUP * far * n;
            for (int64_t e = 0; e < far; e += LANES)
                turn_out(of_all + e / LANES * n, n, lanes_from(e, far), of_a + e * n);
        }
        free(all);
    }
}
