/* One step of a Transformer decoder. */

typedef struct {
    Stack stack;
    float scale;         /* of the embeddings */
    const float *table;  /* (V, D) */
    Norm first;
    Linear output;
} Decoder;

typedef struct { /* what N hypotheses of M sources have read; t tokens each */
    int32_t first, rows, each, longest, time; /* rows from the first are done; a source has `each` */
    const int64_t *ids;       /* (N) the token that is read now */
    const float *places;      /* (T, D) the encodings of places */
    const int64_t *sources;   /* (M) which of the sources in the memory */
    const int64_t *begun;     /* (M) the step at which a source's hypotheses began */
    const int64_t *starts;    /* where each of these begins in the memory, and the last one ends */
    const float *memory;      /* of each of their places (L, 2, D): keys and values */
    float *const *blocks;     /* of each of t + 1 steps (rows then, L, 2, D): keys and values */
    int32_t known;            /* steps after which the rows were reordered */
    const int64_t *ancestors; /* (N, known) the row in which a hypothesis stood at each of these */
} Reading;

/* The row in which a hypothesis stood at a step. */
static size_t stood(const Reading *at, size_t here, int step) {
    return step < at->known ? (size_t)at->ancestors[here * at->known + step] : here;
}

/* The step at which a hypothesis began. */
static int begun(const Reading *at, size_t here) { return (int)at->begun[here / at->each]; }

static void attend_own(const Stack *s, const Reading *at, int l, const float *qkv, float *scores,
                       const float **keys, float *out) {
    const int size = s->size, time = at->time;
    const size_t row = (size_t)s->layers * 2 * size, layer = (size_t)l * 2 * size;
    const float **values = keys + time + 1;
    for (int n = 0; n < at->rows; n++, qkv += 3 * size, out += size) {
        const size_t here = at->first + n;
        memcpy(at->blocks[time] + here * row + layer, qkv + size, 2 * size * sizeof(float));
        const int since = begun(at, here);
        for (int t = since; t <= time; t++) {
            keys[t] = at->blocks[t] + stood(at, here, t) * row + layer;
            values[t] = keys[t] + size;
        }
        attend(s->heads, size, qkv, time + 1 - since, keys + since, values + since, scores, out);
    }
}

/* c_t = f ⊙ c_{t−1} + (1 − f) ⊙ W x; max(0, c_t). */
static void recur(const Stack *s, const Reading *at, int l, const float *both, float *out) {
    const int size = s->size, time = at->time;
    const size_t row = (size_t)s->layers * 2 * size, layer = (size_t)l * 2 * size;
    for (int n = 0; n < at->rows; n++, both += 2 * size, out += size) {
        const size_t here = at->first + n;
        float *cell = at->blocks[time] + here * row + layer;
        memset(cell, 0, size * sizeof(float));
        if (time > begun(at, here)) {
            const float *before = at->blocks[time - 1] + stood(at, here, time - 1) * row + layer;
            memcpy(cell, before, size * sizeof(float));
        }
        for (int i = 0; i < size; i++) {
            float small = exponential(-fabsf(both[i])), f = 1 / (1 + small);
            f = both[i] < 0 ? 1 - f : f;
            cell[i] = f * cell[i] + (1 - f) * both[size + i];
            out[i] = relu_of(cell[i]);
        }
    }
}

static void attend_memory(const Stack *s, const Reading *at, int l, const float *queries,
                          float *scores, const float **keys, float *out) {
    const int size = s->size;
    const size_t row = (size_t)s->layers * 2 * size, layer = (size_t)l * 2 * size;
    const float **values = keys + at->longest;
    int source = -1, count = 0;
    for (int n = 0; n < at->rows; n++, queries += size, out += size) {
        if ((at->first + n) / at->each != source) {
            source = (at->first + n) / at->each;
            const int64_t *span = at->starts + at->sources[source];
            for (count = 0; span[0] + count < span[1]; count++) {
                keys[count] = at->memory + (span[0] + count) * row + layer;
                values[count] = keys[count] + size;
            }
        }
        attend(s->heads, size, queries, count, keys, values, scores, out);
    }
}

static int places_of(int longest, int time) { return longest > time + 1 ? longest : time + 1; }

/* How many floats of room a step needs. */
int64_t room(const Decoder *d, int rows, int longest, int time) {
    return room_of(&d->stack, rows, places_of(longest, time));
}

/* Logits (N, V) of the next token, of the rows that are done. */
void step(const Decoder *d, const Reading *at, float *room, float *logits) {
    const Stack *s = &d->stack;
    const int rows = at->rows, size = s->size;
    const Room in = room_at(s, rows, places_of(at->longest, at->time), room);
    float *x = in.x;
    for (int n = 0; n < rows; n++) {
        const float *from = d->table + at->ids[at->first + n] * size;
        const float *place = at->places + (size_t)(at->time - begun(at, at->first + n)) * size;
        for (int i = 0; i < size; i++) x[(size_t)n * size + i] = from[i] * d->scale + place[i];
    }
    normalise(&d->first, rows, size, x, x);
    for (int l = 0; l < s->layers; l++) {
        const Layer *layer = s->layer + l;
        const Norm *norm = layer->norm;
        apply(&layer->own, rows, enter(s, norm, rows, x, in.h), in.wide, SET, in.spare);
        if (layer->own_out.out) {
            attend_own(s, at, l, in.wide, in.scores, in.keys, in.mixed);
            apply(&layer->own_out, rows, in.mixed, x, ADD, in.spare);
        } else {
            recur(s, at, l, in.wide, in.mixed);
            for (size_t i = 0; i < (size_t)rows * size; i++) x[i] += in.mixed[i];
        }
        leave(s, norm++, rows, x);
        if (layer->query.out) {
            apply(&layer->query, rows, enter(s, norm, rows, x, in.h), in.wide, SET, in.spare);
            attend_memory(s, at, l, in.wide, in.scores, in.keys, in.mixed);
            apply(&layer->cross_out, rows, in.mixed, x, ADD, in.spare);
            leave(s, norm++, rows, x);
        }
        feed(s, layer, norm, rows, x, &in);
    }
    normalise(&s->last, rows, size, x, in.h);
    apply(&d->output, rows, in.h, logits, SET, in.spare);
}
