/* What a processor does quicker without a tensor library in between. Decoding: linear maps of packed
 * weights, one step of a Transformer decoder, what a search asks of its logits; one thread and nothing
 * allocated, so that several threads may each do some rows. Training: the selective scan; attention of
 * short sequences, dropout, bias, cross-entropy, gradients of weights, which OpenMP's threads share.
 *
 * Every function has a twin in PyTorch that gives the same numbers up to the order of sums. Arrays
 * are row-major; N rows are hypotheses, M sources. */

#include "linear.h"
#include "rows.h"
#include "scan.h"
#include "attend.h"
#include "dropout.h"
#include "bias.h"
#include "outer.h"

typedef struct { /* γ (x − mean x) / √(var x + ε) + β; the identity where γ is NULL */
    const float *gain, *shift;
    float eps;
} Norm;

typedef struct { /* W_q, W_k and W_v of self-attention are one map, W_f and W of an SSRU, which has
                  * no own_out */
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
    int32_t first, rows, each, length, time; /* rows from the first are done; each source has N / M */
    const int64_t *ids;        /* (N) the token that is read now */
    const float *place;        /* (D) the encoding of its place */
    const int64_t *sources;    /* (M) the row of the memory, one of B, that is each source's */
    const float *const *keys;  /* of each layer (B, S, D), NULL without a memory */
    const float *const *values;
    const uint8_t *real;       /* (B, S), NULL where all are */
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
        const size_t here = at->first + n;
        memcpy(at->blocks[time] + here * row + layer, qkv + size, 2 * size * sizeof(float));
        for (int s = 0; s <= time; s++) {
            size_t stood = s < time ? at->ancestors[here * time + s] : here;
            keys[s] = at->blocks[s] + stood * row + layer;
            values[s] = keys[s] + size;
        }
        attend(d->heads, size, qkv, time + 1, keys, values, scores, out + (size_t)n * size);
    }
}

/* c_t = f ⊙ c_{t−1} + (1 − f) ⊙ W x; max(0, c_t). */
static void recur(const Decoder *d, const Reading *at, int l, const float *both, float *out) {
    const int size = d->size, time = at->time;
    const size_t row = (size_t)d->layers * 2 * size, layer = (size_t)l * 2 * size;
    for (int n = 0; n < at->rows; n++, both += 2 * size, out += size) {
        const size_t here = at->first + n;
        float *cell = at->blocks[time] + here * row + layer;
        memset(cell, 0, size * sizeof(float));
        if (time) {
            size_t stood = at->ancestors[here * time + time - 1];
            memcpy(cell, at->blocks[time - 1] + stood * row + layer, size * sizeof(float));
        }
        for (int i = 0; i < size; i++) {
            float small = exponential(-fabsf(both[i])), f = 1 / (1 + small);
            f = both[i] < 0 ? 1 - f : f;
            cell[i] = f * cell[i] + (1 - f) * both[size + i];
            out[i] = cell[i] > 0 ? cell[i] : 0;
        }
    }
}

static void attend_memory(const Decoder *d, const Reading *at, int l, const float *queries,
                          float *scores, const float **keys, float *out) {
    const int size = d->size;
    const float **values = keys + at->length;
    int source = -1, count = 0;
    for (int n = 0; n < at->rows; n++) {
        if ((at->first + n) / at->each != source) {
            source = (at->first + n) / at->each;
            count = 0;
            for (int s = 0; s < at->length; s++) {
                size_t place = (size_t)at->sources[source] * at->length + s;
                if (at->real && !at->real[place]) continue;
                keys[count] = at->keys[l] + place * size;
                values[count++] = at->values[l] + place * size;
            }
        }
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

/* Logits (N, V) of the next token, of the rows that are done. */
void step(const Decoder *d, const Reading *at, float *room, float *logits) {
    const int rows = at->rows, size = d->size, places = places_of(at->length, at->time);
    const size_t cells = (size_t)rows * size;
    const float **keys = (const float **)room;  /* and as many values */
    float *x = room + 4 * (size_t)places, *h = x + cells, *mixed = h + cells, *wide = mixed + cells;
    float *scores = wide + rows * wide_of(d), *spare = scores + (size_t)d->heads * places;
    for (int n = 0; n < rows; n++)
        for (int i = 0; i < size; i++)
            x[(size_t)n * size + i] = d->table[at->ids[at->first + n] * size + i] * d->scale + at->place[i];
    normalise(&d->first, rows, size, x, x);
    for (int l = 0; l < d->layers; l++) {
        const Layer *layer = d->layer + l;
        const Norm *norm = layer->norm, none = {0}, *before = d->post ? &none : norm;
        normalise(before, rows, size, x, h);
        apply(&layer->own, rows, h, wide, SET, spare);
        if (layer->own_out.out) {
            attend_own(d, at, l, wide, scores, keys, mixed);
            apply(&layer->own_out, rows, mixed, x, ADD, spare);
        } else {
            recur(d, at, l, wide, mixed);
            for (size_t i = 0; i < cells; i++) x[i] += mixed[i];
        }
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
