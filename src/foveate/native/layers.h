/* Layers of a Transformer: what an encoder and a decoder have in common. */

typedef struct { /* γ (x − mean x) / √(var x + ε) + β; the identity where γ is NULL */
    const float *gain, *shift;
    float eps;
} Norm;

typedef struct { /* W_q, W_k and W_v of self-attention are one map, W_f and W of an SSRU, which has
                  * no own_out; who looks at no memory has no query */
    Linear own, own_out, query, cross_out, inner, outer;
    Norm norm[3];
} Layer;

typedef struct { /* layers, one on another, and the norm that closes them */
    int32_t layers, size, heads, ffn, post;  /* post: norms after the residual sums */
    const Layer *layer;
    Norm last;
} Stack;

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

/* What a sub-layer reads: the normed x (pre), or x. */
static const float *enter(const Stack *s, const Norm *norm, int rows, const float *x, float *h) {
    if (s->post) return x;
    normalise(norm, rows, s->size, x, h);
    return h;
}

static void leave(const Stack *s, const Norm *norm, int rows, float *x) {
    if (s->post) normalise(norm, rows, s->size, x, x);
}

/* Floats of the widest hidden vector. */
static int64_t wide_of(const Stack *s) { return s->ffn > 3 * s->size ? s->ffn : 3 * s->size; }

typedef struct { /* where the layers write what they make of some rows, and of some keys each */
    const float **keys;              /* and as many values */
    float *x, *h, *mixed, *wide;     /* of each row */
    float *scores, *spare;           /* of each head and key; what maps need */
} Room;

/* How many floats that takes. */
static int64_t room_of(const Stack *s, int64_t rows, int64_t keys) {
    return rows * (3 * s->size + 2 * wide_of(s) + 1) + keys * (s->heads + 4);
}

static Room room_at(const Stack *s, int64_t rows, int64_t keys, float *at) {
    const int64_t cells = rows * s->size;
    Room room = {.keys = (const float **)at, .x = at + 4 * keys}; /* a pointer is two floats */
    room.h = room.x + cells;
    room.mixed = room.h + cells;
    room.wide = room.mixed + cells;
    room.scores = room.wide + rows * wide_of(s);
    room.spare = room.scores + s->heads * keys;
    return room;
}

/* x + W₂ max(0, W₁ x + b₁) + b₂ */
static void feed(const Stack *s, const Layer *layer, const Norm *norm, int rows, float *x,
                 const Room *at) {
    apply(&layer->inner, rows, enter(s, norm, rows, x, at->h), at->wide, RELU, at->spare);
    apply(&layer->outer, rows, at->wide, x, ADD, at->spare);
    leave(s, norm, rows, x);
}
