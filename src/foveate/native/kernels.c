/* Decoding on a processor without a tensor library in between: linear maps of packed weights in
 * fp32 and int8, one step of a Transformer decoder, log Σ exp and the highest of each row.
 *
 * One thread; nothing is allocated. Every function has a twin in PyTorch that gives the same
 * numbers up to the order of sums. Arrays are row-major; N rows are hypotheses, M sources. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
enum { LANES = 16, TILE = 12 };
#else
enum { LANES = 8, TILE = 5 };
#endif
enum { PANEL = 2 * LANES, INT8_PANEL = 32, BLOCK = 64 };

typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

int panel(void) { return PANEL; }
int int8_panel(void) { return INT8_PANEL; }

/* -------------------------------------------------------------------------- linear maps */

typedef struct { /* W x + b; W in panels of outputs, (P, in, PANEL) or int8 (P, in / 4, 32, 4) */
    int32_t in, out;
    const void *weight;
    const float *bias;     /* as long as the panels, like what follows */
    const float *scale;    /* of each output of an int8 W, NULL for fp32 */
    const int32_t *shift;  /* 128 Σ_k w_k of an int8 W: bytes are x + 128 */
} Linear;

typedef enum { SET, ADD, RELU } How;

/* The sums of n rows and one panel go where they belong. */
static inline void put(float *y, const float *sums, int count, How how) {
    if (how == ADD) for (int j = 0; j < count; j++) y[j] += sums[j];
    else if (how == RELU) for (int j = 0; j < count; j++) y[j] = sums[j] > 0 ? sums[j] : 0;
    else memcpy(y, sums, count * sizeof(float));
}

static inline __attribute__((always_inline)) void tile_fp32(
    const int n, const Linear *w, const float *x, int p, float sums[][PANEL]) {
    const float *b = (const float *)w->weight + (size_t)p * w->in * PANEL;
    Lanes sum[TILE][2];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) sum[r][i] = *(const Lanes *)(w->bias + p * PANEL + i * LANES);
    for (int k = 0; k < w->in; k++, b += PANEL, x += n) {
        Lanes left = *(const Lanes *)b, right = *(const Lanes *)(b + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            sum[r][0] += x[r] * left;
            sum[r][1] += x[r] * right;
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) *(Lanes *)(sums[r] + i * LANES) = sum[r][i];
}

/* Σ_k x_k w_k in whole numbers, then what they are worth. */
static inline __attribute__((always_inline)) void tile_int8(
    const int n, const Linear *w, const uint8_t *x, const float *step, int p,
    float sums[][INT8_PANEL]) {
    const int8_t *b = (const int8_t *)w->weight + (size_t)p * w->in * INT8_PANEL;
    const float *scale = w->scale + p * INT8_PANEL, *bias = w->bias + p * INT8_PANEL;
    const int32_t *shift = w->shift + p * INT8_PANEL;
    int32_t whole[TILE][INT8_PANEL];
#ifdef __AVX512VNNI__
    __m512i sum[TILE][2];
    for (int r = 0; r < n; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    for (int k = 0; k < w->in; k += 4, b += 4 * INT8_PANEL, x += 4 * n) {
        __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            int32_t four;
            memcpy(&four, x + 4 * r, 4);
            __m512i v = _mm512_set1_epi32(four);
            sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], v, left);
            sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], v, right);
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++) _mm512_storeu_si512(whole[r] + 16 * i, sum[r][i]);
#else
    memset(whole, 0, sizeof whole);
    for (int k = 0; k < w->in; k += 4, b += 4 * INT8_PANEL, x += 4 * n)
        for (int r = 0; r < n; r++)
            for (int j = 0; j < INT8_PANEL; j++)
                for (int i = 0; i < 4; i++)
                    whole[r][j] += x[4 * r + i] * b[4 * j + i];
#endif
    for (int r = 0; r < n; r++)
        for (int j = 0; j < INT8_PANEL; j++)
            sums[r][j] = (float)(whole[r][j] - shift[j]) * (step[r] * scale[j]) + bias[j];
}

/* A tile of n rows is compiled for each n. */
#define EACH(n, call) case n: call(n); break;
#define UP_TO_5(call) EACH(1, call) EACH(2, call) EACH(3, call) EACH(4, call) EACH(5, call)
#ifdef __AVX512F__
#define UP_TO_TILE(call) UP_TO_5(call) EACH(6, call) EACH(7, call) EACH(8, call) EACH(9, call) \
    EACH(10, call) EACH(11, call) EACH(12, call)
#else
#define UP_TO_TILE UP_TO_5
#endif

/* n rows of fp32 side by side, (in, n). */
static void beside(const float *x, int n, int in, float *y) {
    for (int r = 0; r < n; r++)
        for (int k = 0; k < in; k++) y[(size_t)k * n + r] = x[(size_t)r * in + k];
}

/* n rows as bytes round(127 x / max |x|) + 128, side by side by fours, (in / 4, n, 4), and what
 * one step of each row's bytes is worth. */
static void to_bytes(const float *x, int n, int in, uint8_t *y, float *step) {
    for (int r = 0; r < n; r++, x += in) {
        float most = 0;
        for (int k = 0; k < in; k++) most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        float by = most > 0 ? 127 / most : 0;
        step[r] = most / 127;
        for (int k = 0; k < in; k += 4) {
            uint8_t four[4];
            for (int i = 0; i < 4; i++) four[i] = (uint8_t)((int32_t)rintf(x[k + i] * by) + 128);
            memcpy(y + (size_t)k * n + 4 * r, four, 4);
        }
    }
}

/* y (N, out) set to, or increased by, W x + b; `room` is for N · in floats and N more. */
static void apply(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    float sums[TILE * (PANEL > INT8_PANEL ? PANEL : INT8_PANEL)];
    const int width = w->scale ? INT8_PANEL : PANEL, panels = (w->out + width - 1) / width;
    float *steps = room + (size_t)rows * w->in;
    for (int r = 0; r < rows; r += TILE) {
        int n = rows - r < TILE ? rows - r : TILE;
        const float *from = x + (size_t)r * w->in;
        float *to = room + (size_t)r * w->in;
        if (w->scale) to_bytes(from, n, w->in, (uint8_t *)to, steps + r);
        else beside(from, n, w->in, to);
    }
    for (int p = 0; p < panels; p++) {
        int count = w->out - p * width < width ? w->out - p * width : width;
        for (int r = 0; r < rows; r += TILE) {
            int n = rows - r < TILE ? rows - r : TILE;
            const float *at = room + (size_t)r * w->in;
            if (w->scale) {
#define CALL(n) tile_int8(n, w, (const uint8_t *)at, steps + r, p, (float (*)[INT8_PANEL])sums)
                switch (n) { UP_TO_TILE(CALL) }
#undef CALL
            } else {
#define CALL(n) tile_fp32(n, w, at, p, (float (*)[PANEL])sums)
                switch (n) { UP_TO_TILE(CALL) }
#undef CALL
            }
            for (int i = 0; i < n; i++)
                put(y + (size_t)(r + i) * w->out + p * width, sums + i * width, count, how);
        }
    }
}

void linear(const Linear *w, int rows, const float *x, float *y, float *room) {
    apply(w, rows, x, y, SET, room);
}

/* -------------------------------------------------------------------------- rows of scores */

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
    for (int j = 0; j < LANES; j++) most = each[j] > most ? each[j] : most;
    return most;
}

/* log Σ exp z of each row; −∞ where all are. */
void log_sum_exp(const float *z, int64_t rows, int64_t size, float *out) {
    for (int64_t row = 0; row < rows; row++, z += size) {
        float most = maximum(z, size), sum = 0;
        if (most > -INFINITY)
            for (int64_t i = 0; i < size; i++) sum += exponential(z[i] - most);
        out[row] = most > -INFINITY ? most + logf(sum) : most;
    }
}

/* Put v among the k highest, best first; of equals the first stays before. */
static inline int insert(float v, int64_t at, float *value, int64_t *index, int count, int k) {
    if (count == k && !(v > value[k - 1])) return count;
    int i = count < k ? count++ : k - 1;
    for (; i > 0 && v > value[i - 1]; i--) {
        value[i] = value[i - 1];
        index[i] = index[i - 1];
    }
    value[i] = v;
    index[i] = at;
    return count;
}

/* The k highest of each row: looked for in the k blocks of the highest maxima alone. */
void highest(const float *z, int64_t rows, int64_t size, int k, float *value, int64_t *index,
             float *maxima) {
    int64_t blocks = (size + BLOCK - 1) / BLOCK;
    for (int64_t row = 0; row < rows; row++, z += size, value += k, index += k) {
        int count = 0;
        for (int64_t b = 0; b < blocks; b++) {
            int64_t left = size - b * BLOCK;
            maxima[b] = maximum(z + b * BLOCK, left < BLOCK ? left : BLOCK);
            count = insert(maxima[b], b, value, index, count, k);
        }
        float least = count < k ? -INFINITY : value[k - 1];
        count = 0;
        for (int64_t b = 0; b < blocks; b++)
            if (maxima[b] >= least)
                for (int64_t i = b * BLOCK; i < size && i < (b + 1) * BLOCK; i++)
                    count = insert(z[i], i, value, index, count, k);
    }
}

/* -------------------------------------------------------------------------- a decoder's step */

typedef struct { /* γ (x − mean x) / √(var x + ε) + β; the identity where γ is NULL */
    const float *gain, *shift;
    float eps;
} Norm;

typedef struct { /* W_q, W_k and W_v of self-attention are one map */
    Linear own, own_out, query, cross_out, inner, outer;
    Norm norm[3];
} Layer;

typedef struct {
    int32_t layers, size, heads, ffn, post;  /* post: norms after the residual sums */
    float scale;                             /* of the embeddings */
    const float *table;                      /* (V, D) */
    const Layer *layer;
    Norm first, last;
    Linear output;
} Decoder;

typedef struct { /* what N hypotheses of M sources have read; t tokens each */
    int32_t rows, sources, length, time;
    const int64_t *ids;        /* (N) the token that is read now */
    const float *place;        /* (D) the encoding of its place */
    const float *const *keys;  /* of each layer (M, S, D), NULL without a memory */
    const float *const *values;
    const uint8_t *real;       /* (M, S), NULL where all are */
    float *const *blocks;      /* of each of t + 1 steps (rows then, L, 2, D): keys and values */
    const int64_t *ancestors;  /* (N, t) the row in which a hypothesis stood at each step */
} Reading;

static void normalise(const Norm *norm, int rows, int size, const float *x, float *y) {
    for (int r = 0; r < rows; r++, x += size, y += size) {
        if (!norm->gain) {
            memmove(y, x, size * sizeof(float));
            continue;
        }
        float mean = 0, spread = 0;
        for (int i = 0; i < size; i++) mean += x[i];
        mean /= size;
        for (int i = 0; i < size; i++) spread += (x[i] - mean) * (x[i] - mean);
        float by = 1 / sqrtf(spread / size + norm->eps);
        for (int i = 0; i < size; i++) y[i] = (x[i] - mean) * by * norm->gain[i] + norm->shift[i];
    }
}

/* Σ_s softmax_s(qᵀ k_s / √K) v_s in each head; zeros where there are no keys. */
static void attend(int heads, int size, const float *query, int count, const float *const *keys,
                   const float *const *values, float *scores, float *out) {
    const int k = size / heads;
    const float scale = 1 / sqrtf(k);
    for (int s = 0; s < count; s++)
        for (int h = 0; h < heads; h++) {
            const float *a = query + h * k, *b = keys[s] + h * k;
            float sum = 0;
            for (int i = 0; i < k; i++) sum += a[i] * b[i];
            scores[h * count + s] = sum * scale;
        }
    for (int h = 0; h < heads; h++) {
        float *row = scores + h * count, most = maximum(row, count), sum = 0;
        for (int s = 0; s < count; s++) sum += row[s] = exponential(row[s] - most);
        for (int s = 0; s < count; s++) row[s] /= sum;
    }
    memset(out, 0, size * sizeof(float));
    for (int s = 0; s < count; s++)
        for (int h = 0; h < heads; h++) {
            const float p = scores[h * count + s], *v = values[s] + h * k;
            for (int i = 0; i < k; i++) out[h * k + i] += p * v[i];
        }
}

static void attend_own(const Decoder *d, const Reading *at, int l, const float *qkv, float *scores,
                       const float **keys, float *out) {
    const int size = d->size, time = at->time;
    const size_t row = (size_t)d->layers * 2 * size, layer = (size_t)l * 2 * size;
    const float **values = keys + time + 1;
    for (int n = 0; n < at->rows; n++, qkv += 3 * size) {
        float *own = at->blocks[time] + n * row + layer;
        memcpy(own, qkv + size, 2 * size * sizeof(float));
        for (int s = 0; s <= time; s++) {
            int64_t stood = s < time ? at->ancestors[(size_t)n * time + s] : n;
            keys[s] = at->blocks[s] + stood * row + layer;
            values[s] = keys[s] + size;
        }
        attend(d->heads, size, qkv, time + 1, keys, values, scores, out + (size_t)n * size);
    }
}

static void attend_memory(const Decoder *d, const Reading *at, int l, const float *queries,
                          float *scores, const float **keys, float *out) {
    const int size = d->size, each = at->rows / at->sources;
    const float **values = keys + at->length;
    for (int m = 0; m < at->sources; m++) {
        int count = 0;
        for (int s = 0; s < at->length; s++) {
            size_t place = (size_t)m * at->length + s;
            if (at->real && !at->real[place]) continue;
            keys[count] = at->keys[l] + place * size;
            values[count++] = at->values[l] + place * size;
        }
        for (int n = m * each; n < (m + 1) * each; n++)
            attend(d->heads, size, queries + (size_t)n * size, count, keys, values, scores,
                   out + (size_t)n * size);
    }
}

static int64_t wide_of(const Decoder *d) { return d->ffn > 3 * d->size ? d->ffn : 3 * d->size; }

static int places_of(int length, int time) { return length > time + 1 ? length : time + 1; }

/* How many floats of room a step needs. */
int64_t room(const Decoder *d, int rows, int length, int time) {
    int64_t each = 3 * d->size + 2 * wide_of(d) + 1;
    return rows * each + (int64_t)places_of(length, time) * (d->heads + 4);
}

/* Logits (N, V) of the next token. */
void step(const Decoder *d, const Reading *at, float *room, float *logits) {
    const int rows = at->rows, size = d->size, places = places_of(at->length, at->time);
    const size_t cells = (size_t)rows * size;
    const float **keys = (const float **)room;  /* and as many values */
    float *x = room + 4 * (size_t)places, *h = x + cells, *mixed = h + cells, *wide = mixed + cells;
    float *scores = wide + rows * wide_of(d), *spare = scores + (size_t)d->heads * places;
    for (int n = 0; n < rows; n++)
        for (int i = 0; i < size; i++)
            x[(size_t)n * size + i] = d->table[at->ids[n] * size + i] * d->scale + at->place[i];
    normalise(&d->first, rows, size, x, x);
    for (int l = 0; l < d->layers; l++) {
        const Layer *layer = d->layer + l;
        const Norm *norm = layer->norm, none = {0}, *before = d->post ? &none : norm;
        normalise(before, rows, size, x, h);
        apply(&layer->own, rows, h, wide, SET, spare);
        attend_own(d, at, l, wide, scores, keys, mixed);
        apply(&layer->own_out, rows, mixed, x, ADD, spare);
        if (d->post) normalise(norm, rows, size, x, x);
        norm++, before += !d->post;
        if (at->keys) {
            normalise(before, rows, size, x, h);
            apply(&layer->query, rows, h, wide, SET, spare);
            attend_memory(d, at, l, wide, scores, keys, mixed);
            apply(&layer->cross_out, rows, mixed, x, ADD, spare);
            if (d->post) normalise(norm, rows, size, x, x);
            norm++, before += !d->post;
        }
        normalise(before, rows, size, x, h);
        apply(&layer->inner, rows, h, wide, RELU, spare);
        apply(&layer->outer, rows, wide, x, ADD, spare);
        if (d->post) normalise(norm, rows, size, x, x);
    }
    normalise(&d->last, rows, size, x, h);
    apply(&d->output, rows, h, logits, SET, spare);
}
