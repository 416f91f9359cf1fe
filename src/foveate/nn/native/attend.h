/* Attention of short sequences with its gradients, a head of a text at a time in the nearest cache,
 *
 *     P = softmax(c Q Kᵀ + M),    Y = P V,
 *     dV = Pᵀ dY,    dS = P ⊙ (dP − rows(dP ⊙ P)),    dP = dY Vᵀ,    dQ = c dS K,    dK = c dSᵀ Q.
 *
 * Numbers come as fp32 or bf16 and are fp32 here; P is kept. Rows of scratch arrays are filled up
 * with zeros to whole vectors, and their number to whole tiles. */

enum { DEEP = 4 }; /* rows of a tile */

typedef struct { /* numbers of one kind from one place on: text b, head h, row t */
    void *at;
    int64_t text, head, row;
} Heads;

typedef struct { /* B texts, H heads, T queries and S keys of K numbers each, values of V */
    int64_t batch, heads, queries, keys, size, values;
    float scale;
    int32_t half, threads;
    Heads q, k, v, y, weights;     /* (B, H, T or S, K, V or S) */
    Heads mask;                    /* M (T, S) of each text, its place NULL where all is seen */
    Heads dy, dq, dk, dv;          /* for the gradients */
} Attend;

static inline int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

/* c (n, m) = a (n, depth) b (depth, m); a's rows are `down` apart and its columns `across`. */
static inline __attribute__((always_inline)) void small_tile(
    const int wide, int64_t depth, const float *a, int64_t down, int64_t across, const float *b,
    int64_t ldb, float *c, int64_t ldc) {
    Lanes sum[DEEP][2] = {0};
    for (int64_t k = 0; k < depth; k++, a += across, b += ldb) {
        Lanes left = *(const Lanes *)b, right = left;
        if (wide == 2) right = *(const Lanes *)(b + LANES);
#pragma GCC unroll 4
        for (int r = 0; r < DEEP; r++) {
            sum[r][0] += a[r * down] * left;
            if (wide == 2) sum[r][1] += a[r * down] * right;
        }
    }
    for (int r = 0; r < DEEP; r++)
        for (int i = 0; i < wide; i++) *(Lanes *)(c + r * ldc + i * LANES) = sum[r][i];
}

static void small_product(int64_t n, int64_t m, int64_t depth, const float *a, int64_t down,
                          int64_t across, const float *b, int64_t ldb, float *c, int64_t ldc) {
    for (int64_t r = 0; r < n; r += DEEP) {
        int64_t j = 0;
        for (; j + LANES < m; j += 2 * LANES)
            small_tile(2, depth, a + r * down, down, across, b + j, ldb, c + r * ldc + j, ldc);
        if (j < m) small_tile(1, depth, a + r * down, down, across, b + j, ldb, c + r * ldc + j, ldc);
    }
}

/* One head of one text, (rows, size), as floats of rows `ld` long. */
static void fetch(const Heads *from, int half, int64_t b, int64_t h, int64_t rows, int64_t size,
                  float *to, int64_t ld) {
    for (int64_t t = 0; t < rows; t++, to += ld) {
        int64_t at = b * from->text + h * from->head + t * from->row;
        take(from->at, half, at, size, to);
    }
}

static void store(const Heads *to, int half, int64_t b, int64_t h, int64_t rows, int64_t size,
                  const float *from, int64_t ld) {
    for (int64_t t = 0; t < rows; t++, from += ld) {
        int64_t at = b * to->text + h * to->head + t * to->row;
        give(from, size, to->at, half, at);
    }
}

static void turn(const float *from, int64_t rows, int64_t size, int64_t ld, float *to, int64_t far) {
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < size; i++) to[i * far + t] = from[t * ld + i];
}

/* softmax(c z + M) of n rows. */
static void soften(float *z, int64_t rows, int64_t keys, int64_t ld, float scale,
                   const Heads *hidden, int64_t b) {
    const float *mask = hidden->at;
    if (mask) mask += b * hidden->text;
    for (int64_t t = 0; t < rows; t++, z += ld, mask += mask ? hidden->row : 0) {
        for (int64_t s = 0; s < keys; s++) z[s] = z[s] * scale + (mask ? mask[s] : 0);
        float most = maximum(z, keys), sum = 0;
        for (int64_t s = 0; s < keys; s++) sum += z[s] = exponential(z[s] - most);
        for (int64_t s = 0; s < keys; s++) z[s] = mask && mask[s] < -1e30f ? 0 : z[s] / sum;
    }
}

/* Y and P, or where dY is there the gradients. */
void attend_heads(const Attend *a) {
    const int64_t T = a->queries, S = a->keys, K = a->size, V = a->values;
    const int64_t t4 = whole(T, DEEP), s4 = whole(S, DEEP), sw = whole(S, LANES);
    const int64_t kw = whole(K, LANES), vw = whole(V, LANES);
    const int64_t each[] = {t4 * kw, s4 * kw, s4 * vw, t4 * vw, (kw > vw ? kw : vw) * sw, t4 * sw,
                            t4 * sw, (t4 > s4 ? t4 : s4) * (kw > vw ? kw : vw)};
    int64_t room = 0;
    for (int i = 0; i < 8; i++) room += each[i];
#pragma omp parallel num_threads(a->threads)
    {
        float *q = calloc(room, sizeof(float)), *k = q + each[0], *v = k + each[1], *y = v + each[2];
        float *turned = y + each[3], *p = turned + each[4], *ds = p + each[5], *out = ds + each[6];
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->batch * a->heads; i++) {
            const int64_t b = i / a->heads, h = i % a->heads;
            fetch(&a->q, a->half, b, h, T, K, q, kw);
            fetch(&a->k, a->half, b, h, S, K, k, kw);
            fetch(&a->v, a->half, b, h, S, V, v, vw);
            if (!a->dy.at) {
                turn(k, S, K, kw, turned, sw);
                small_product(t4, sw, K, q, kw, 1, turned, sw, p, sw);
                soften(p, T, S, sw, a->scale, &a->mask, b);
                store(&a->weights, a->half, b, h, T, S, p, sw);
                small_product(t4, vw, S, p, sw, 1, v, vw, y, vw);
                store(&a->y, a->half, b, h, T, V, y, vw);
                continue;
            }
            fetch(&a->weights, a->half, b, h, T, S, p, sw);
            fetch(&a->dy, a->half, b, h, T, V, y, vw);
            small_product(s4, vw, T, p, 1, sw, y, vw, out, vw);
            store(&a->dv, a->half, b, h, S, V, out, vw);
            turn(v, S, V, vw, turned, sw);
            small_product(t4, sw, V, y, vw, 1, turned, sw, ds, sw);
            for (int64_t t = 0; t < T; t++) {
                float *d = ds + t * sw, *w = p + t * sw, sum = 0;
                for (int64_t s = 0; s < S; s++) sum += d[s] * w[s];
                for (int64_t s = 0; s < S; s++) d[s] = a->scale * w[s] * (d[s] - sum);
            }
            small_product(t4, kw, S, ds, sw, 1, k, kw, out, kw);
            store(&a->dq, a->half, b, h, T, K, out, kw);
            small_product(s4, kw, T, ds, 1, sw, q, kw, out, kw);
            store(&a->dk, a->half, b, h, S, K, out, kw);
        }
        free(q);
    }
}
