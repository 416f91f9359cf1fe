/* The selective scan (Gu & Dao, 2023) of B sequences of T steps, E channels of N numbers each,
 *
 *     h_t = exp(Δ_t a) h_{t−1} + Δ_t u_t B_t,    y_t = C_t · h_t + D u_t,
 *
 * a channel in each lane, so that no sum crosses the lanes before the last and the states do not
 * leave the nearest caches; in the backward pass they are computed again.
 * Δ and u are (B, T, E), a (E, N), B and C (B, T, N), D (E), h (B, E, N). */

typedef struct {
    int64_t batch, steps, channels, size;
    const float *delta, *u, *a, *into, *out, *skip, *start;
} Scan;

/* The numbers of `count` channels, `far` from one to the next; 0 in the other lanes. */
static inline Lanes gather(const float *from, int64_t far, int count) {
    Lanes x = {0};
    if (far == 1 && count == LANES) return *(const Lanes *)from;
    for (int j = 0; j < count; j++) x[j] = from[j * far];
    return x;
}

static inline void scatter(Lanes x, int64_t far, int count, float *to) {
    if (far == 1 && count == LANES) *(Lanes *)to = x;
    else for (int j = 0; j < count; j++) to[j * far] = x[j];
}

static inline Lanes exponentials(Lanes x) {
    float each[LANES];
    memcpy(each, &x, sizeof each);
    for (int j = 0; j < LANES; j++) each[j] = exponential(each[j]);
    memcpy(&x, each, sizeof each);
    return x;
}

/* The channels from e on of sequence b, and where their numbers are. */
typedef struct {
    int count;
    Lanes skip, *delta, *u, *a, *states; /* (T), (T), (N), (T + 1, N) */
    const float *into, *out;
} Span;

/* The span from e on, in room for (T + 2) N + 2 T lanes. */
static Span span_of(const Scan *s, int64_t b, int64_t e, Lanes *room) {
    const int64_t n = s->size, steps = s->steps, far = s->channels, first = b * steps;
    Span p = {.count = far - e < LANES ? (int)(far - e) : LANES};
    p.states = room, p.a = p.states + (steps + 1) * n, p.delta = p.a + n, p.u = p.delta + steps;
    p.into = s->into + first * n, p.out = s->out + first * n;
    p.skip = gather(s->skip + e, 1, p.count);
    for (int64_t t = 0; t < steps; t++) {
        p.delta[t] = gather(s->delta + (first + t) * far + e, 1, p.count);
        p.u[t] = gather(s->u + (first + t) * far + e, 1, p.count);
    }
    for (int64_t i = 0; i < n; i++) {
        p.a[i] = gather(s->a + e * n + i, n, p.count);
        p.states[i] = gather(s->start + (b * far + e) * n + i, n, p.count);
    }
    return p;
}

/* y (B, T, E) and the last h (B, E, N); `room` holds ((T + 2) N + 2 T) lanes. */
void scan(const Scan *s, float *y, float *last, Lanes *room) {
    const int64_t n = s->size, steps = s->steps, far = s->channels;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t e = 0; e < far; e += LANES) {
            const Span p = span_of(s, b, e, room);
            Lanes *restrict h = p.states;
            for (int64_t t = 0; t < steps; t++) {
                const Lanes delta = p.delta[t], changed = delta * p.u[t];
                const float *restrict into = p.into + t * n, *restrict out = p.out + t * n;
                Lanes sum = p.skip * p.u[t];
                for (int64_t i = 0; i < n; i++) {
                    h[i] = exponentials(delta * p.a[i]) * h[i] + changed * into[i];
                    sum += h[i] * out[i];
                }
                scatter(sum, 1, p.count, y + (b * steps + t) * far + e);
            }
            for (int64_t i = 0; i < n; i++)
                scatter(h[i], n, p.count, last + (b * far + e) * n + i);
        }
}

/* All h of a span, and exp(Δ a) (T, N). */
static void scan_again(const Scan *s, const Span *p, Lanes *restrict decays) {
    const int64_t n = s->size;
    for (int64_t t = 0; t < s->steps; t++) {
        const Lanes delta = p->delta[t], changed = delta * p->u[t];
        Lanes *restrict h = p->states + t * n;
        for (int64_t i = 0; i < n; i++) {
            decays[t * n + i] = exponentials(delta * p->a[i]);
            h[n + i] = decays[t * n + i] * h[i] + changed * p->into[t * n + i];
        }
    }
}

/* The gradients of what `scan` was given, from those of y and of the last h, which becomes that of
 * the first. Those of a and D are one for each sequence, (B, E, N) and (B, E).
 * `room` holds (4 T N + 4 N + 2 T) lanes. */
void scan_backward(const Scan *s, const float *dy, float *dlast, float *ddelta, float *du,
                   float *da, float *dinto, float *dout, float *dskip, Lanes *room) {
    const int64_t n = s->size, steps = s->steps, far = s->channels;
    Lanes *restrict decays = room + (steps + 2) * n + 2 * steps, *restrict dh = decays + steps * n;
    Lanes *restrict of_a = dh + n, *restrict of_into = of_a + n, *restrict of_out = of_into + steps * n;
    for (int64_t b = 0; b < s->batch; b++) {
        memset(of_into, 0, 2 * steps * n * sizeof(Lanes));
        for (int64_t e = 0; e < far; e += LANES) {
            const Span p = span_of(s, b, e, room);
            const int64_t own = (b * far + e) * n;
            Lanes of_skip = {0};
            scan_again(s, &p, decays);
            for (int64_t i = 0; i < n; i++) {
                dh[i] = gather(dlast + own + i, n, p.count);
                of_a[i] = (Lanes){0};
            }
            for (int64_t t = steps - 1; t >= 0; t--) {
                const int64_t here = (b * steps + t) * far + e;
                const Lanes g = gather(dy + here, 1, p.count), delta = p.delta[t], u = p.u[t];
                const Lanes changed = delta * u, *restrict h = p.states + t * n;
                Lanes by_decay = {0}, by_input = {0};
                for (int64_t i = 0, k = t * n; i < n; i++, k++) {
                    const Lanes back = dh[i] + g * p.out[k], to = back * decays[k], slope = to * h[i];
                    of_out[k] += g * h[n + i];
                    of_into[k] += back * changed;
                    of_a[i] += slope * delta;
                    by_decay += slope * p.a[i];
                    by_input += back * p.into[k];
                    dh[i] = to;
                }
                scatter(by_decay + by_input * u, 1, p.count, ddelta + here);
                scatter(by_input * delta + g * p.skip, 1, p.count, du + here);
                of_skip += g * u;
            }
            for (int64_t i = 0; i < n; i++) {
                scatter(of_a[i], n, p.count, da + own + i);
                scatter(dh[i], n, p.count, dlast + own + i);
            }
            scatter(of_skip, 1, p.count, dskip + b * far + e);
        }
        for (int64_t i = 0; i < steps * n; i++) {
            float into = 0, out = 0;
            for (int j = 0; j < LANES; j++) into += of_into[i][j], out += of_out[i][j];
            dinto[b * steps * n + i] = into;
            dout[b * steps * n + i] = out;
        }
    }
}
