/* The layers: norms, positions, attention, feed-forward layers, SSRU, state spaces. Each computes
 * rows: the positions of some sources (encoder), or the next tokens of some hypotheses (decoder). */

typedef struct Source Source; /* search.h */

typedef struct { /* a position of a source, or a hypothesis that reads the token at a position */
    Source *source;
    int32_t hypothesis; /* −1 in an encoder */
    int32_t at;
    int32_t first;      /* in an encoder: the row of the first position of the source */
} Row;

typedef enum { QUERY, ROTATED_QUERY, KEY, ROTATED_KEY, VALUE, SCORE, BIAS, WEIGHTS, CONTEXT, OUTPUT,
               STAGES } Stage;

typedef struct { /* where the numbers of one stage of one attention go, one row after another */
    int32_t attention, stage;
    float *to;
    int64_t size, used; /* room for so many; so many there were */
} Tap;

typedef struct { /* memory of one search: what layers write, and tables of positions */
    float *x, *h, *wide, *mixed, *gate, *context, *token, *state, *cached, *room, *logits;
    float *scores, *ranked, *query;
    const float **keys;
    size_t rows, places;     /* for which there is memory */
    float *angles[2];        /* cos and sin of encoder and decoder, (T, K / 2) each */
    float *waves[2];         /* sinusoids (T, features) */
    int angled[2], waved[2]; /* T of both */
    Tap *tap;
    int taps;
} Work;

static void take(Work *w, const Attention *a, Stage stage, const float *x, int64_t count) {
    for (int i = 0; i < w->taps; i++) {
        Tap *t = w->tap + i;
        if (t->attention != a->number || t->stage != (int)stage) continue;
        if (count <= t->size - t->used) memcpy(t->to + t->used, x, count * sizeof(float));
        t->used += count;
    }
}

static void normalize(const Norm *norm, int rows, int size, const float *x, float *y) {
    for (int r = 0; r < rows; r++, x += size, y += size) {
        if (norm->kind == NO_NORM) {
            memmove(y, x, size * sizeof(float));
            continue;
        }
        const float mean = norm->kind == LAYER_NORM ? sum(x, size) / size : 0;
        float by = 1;
        if (norm->kind != AFFINE) {
            Lanes spread[GROUPS] = {0};
            float rest = 0;
            int i = 0;
            for (; i + LANES <= size; i += LANES)
                for (int p = 0; p < GROUPS; p++) {
                    const Lanes from = *(const Lanes *)(x + i + p * WIDTH) - mean;
                    spread[p] += from * from;
                }
            for (; i < size; i++) rest += (x[i] - mean) * (x[i] - mean);
            by = 1 / sqrtf((sum_of(spread) + rest) / size + norm->eps);
        }
        if (norm->shift)
            for (int i = 0; i < size; i++) y[i] = (x[i] - mean) * by * norm->gain[i] + norm->shift[i];
        else for (int i = 0; i < size; i++) y[i] = (x[i] - mean) * by * norm->gain[i];
    }
}

/* ---------------------------------------------------------------------------------- positions */

/* Tables with as many positions of the embeddings' sinusoids and of the angles that turn heads. */
static int make_tables(Work *w, int side, const Position *p, int count) {
    if (p->turned && count > w->angled[side]) {
        const int half = p->turned / 2, size = count * 2;
        float *table = realloc(w->angles[side], ((size_t)size * 2 * half + 1) * sizeof(float));
        if (!table) return 0;
        for (int t = 0; t < size; t++)
            for (int i = 0; i < half; i++) {
                const float power = (float)exp(-(float)log(p->base) * ((float)(2 * i) / p->turned));
                table[(size_t)t * 2 * half + i] = (float)cos(t * power);
                table[(size_t)t * 2 * half + half + i] = (float)sin(t * power);
            }
        w->angles[side] = table, w->angled[side] = size;
    }
    if (p->features && count > w->waved[side]) {
        const int size = count * 2, half = (p->features + 1) / 2;
        float *table = realloc(w->waves[side], (size_t)size * p->features * sizeof(float));
        if (!table) return 0;
        for (int t = 0; t < size; t++)
            for (int i = 0; i < half; i++) {
                const float power = (float)exp(-(float)log(p->base) * ((float)(2 * i) / (2 * half)));
                float *row = table + (size_t)t * p->features;
                const int even = p->kind == HALVES ? i : 2 * i;
                const int odd = p->kind == HALVES ? half + i : 2 * i + 1;
                if (even < p->features) row[even] = (float)sin((t + p->first) * power);
                if (odd < p->features) row[odd] = (float)cos((t + p->first) * power);
            }
        w->waves[side] = table, w->waved[side] = size;
    }
    return 1;
}

/* E[id] · scale with its position, of each row, into x. */
static void embed(const Embedding *e, int side, int rows, const int32_t *ids, const Row *row,
                  float *x, Work *w) {
    const Position *p = &e->position;
    const int size = e->size, own = e->token_size;
    const int beside = p->kind == CONCATENATED;
    float *token = beside || e->dense.out ? w->token : x;
    const int far = beside || e->dense.out ? own : size;
    for (int n = 0; n < rows; n++) {
        float *to = token + (size_t)n * far;
        const size_t at = (size_t)ids[n] * own;
        if (e->table.bytes) {
            const float by = e->table.scale[ids[n]] * e->scale;
            for (int i = 0; i < own; i++) to[i] = e->table.bytes[at + i] * by;
        } else for (int i = 0; i < own; i++) to[i] = e->table.floats[at + i] * e->scale;
        if (e->shift) for (int i = 0; i < own; i++) to[i] += e->shift[i];
    }
    if (e->dense.out) {
        float *to = beside ? w->wide : x;
        apply(&e->dense, rows, token, to, SET, w->room);
        activate(SIGMOID, to, (size_t)rows * own);
        token = to;
        if (!beside && own != size) /* appended: rows move apart, the last one first */
            for (int n = rows - 1; n >= 0; n--)
                memmove(x + (size_t)n * size, x + (size_t)n * own, own * sizeof(float));
    }
    if (beside) {
        const int both = own + p->features;
        float *pair = w->gate;
        for (int n = 0; n < rows; n++) {
            memcpy(pair + (size_t)n * both, token + (size_t)n * own, own * sizeof(float));
            memcpy(pair + (size_t)n * both + own, w->waves[side] + (size_t)row[n].at * p->features,
                   p->features * sizeof(float));
        }
        apply(&p->join, rows, pair, x, SET, w->room);
    }
    for (int n = 0; n < rows; n++) {
        float *to = x + (size_t)n * size;
        const float *wave = p->features ? w->waves[side] + (size_t)row[n].at * p->features : NULL;
        if (p->kind == TABLE) add_scaled(to, p->table + (size_t)row[n].at * size, 1, size);
        else if (p->kind == SINUSOIDAL || p->kind == HALVES) add_scaled(to, wave, 1, size);
        else if (p->kind == APPENDED) memcpy(to + own, wave, p->features * sizeof(float));
    }
    normalize(&e->norm, rows, size, x, x);
}

/* Turn each head's pairs (x_i, x_{i + K/2}) by the angles of a position. */
static void rotate(float *x, int heads, int size, const float *angles) {
    const int half = size / 2;
    for (int h = 0; h < heads; h++, x += size)
        for (int i = 0; i < half; i++) {
            const float a = x[i], b = x[half + i], cos = angles[i], sin = angles[half + i];
            x[i] = a * cos - b * sin;
            x[half + i] = b * cos + a * sin;
        }
}

/* What positions add to the score of a key in a head. */
static float position_bias(const Position *p, int h, int heads, int query_at, int key_at) {
    const int distance = abs(query_at - key_at);
    if (p->kind == ALIBI) return -p->table[h] * distance;
    const int each = p->kind == T5 ? p->buckets / 2 : p->buckets, exact = each / 2;
    const int back = p->kind == T5_CAUSAL && key_at > query_at ? 0 : distance;
    int bucket = back;
    if (back >= exact) {
        const float growth = (float)log((float)back / exact) / (float)log(p->farthest / exact);
        const int shared = growth < 1 ? exact + (int)(growth * (each - exact)) : each;
        bucket = shared < each - 1 ? shared : each - 1;
    }
    if (p->kind == T5 && key_at > query_at) bucket += each;
    return p->table[bucket * heads + h];
}

/* ---------------------------------------------------------------------------------- attention */

/* Turn scores into weights; see nn/scores.py. `ranked` is room for as many. */
static void to_weights(const Attention *a, float *e, int count, float *ranked) {
    const float most = maximum(e, count);
    if (a->normalizer == SOFTMAX) {
        const float by = 1 / a->temperature;
        for (int s = 0; s < count; s++) e[s] = exponential((e[s] - most) * by);
        const float total = sum(e, count);
        for (int s = 0; s < count; s++) e[s] /= total;
        return;
    }
    if (a->normalizer == HARDMAX) {
        int found = 0;
        for (int s = 0; s < count; s++) {
            const int here = !found && e[s] == most;
            e[s] = here, found |= here;
        }
        return;
    }
    const int half = a->normalizer == ENTMAX15;
    for (int s = 0; s < count; s++) {
        const float below = e[s] - most;
        e[s] = (below < -4 ? -4 : below) / (half ? 2 : 1);
        int i = s; /* from high to low */
        for (; i > 0 && ranked[i - 1] < e[s]; i--) ranked[i] = ranked[i - 1];
        ranked[i] = e[s];
    }
    float total = 0, squares = 0, threshold = 0;
    for (int s = 0; s < count; s++) {
        total += ranked[s], squares += ranked[s] * ranked[s];
        const int rank = s + 1;
        const float mean = total / rank, spread = squares - rank * mean * mean;
        const float inner = (1 - spread) / rank;
        const float here = half ? mean - sqrtf(inner > 0 ? inner : 0) : (total - 1) / rank;
        if (half ? here <= ranked[s] : 1 + rank * ranked[s] > total) threshold = here;
    }
    for (int s = 0; s < count; s++) {
        const float above = e[s] > threshold ? e[s] - threshold : 0;
        e[s] = half ? above * above : above;
    }
}

/* The scores of one query (of one head) with all keys of its head. */
static void scores_of(const Attention *a, int h, const float *query, int count,
                      const float *const *keys, float *e, float *room) {
    const int size = a->query_size, k = a->of_key ? size : a->key_size;
    const int from = (a->of_key ? h : h / (a->heads / a->key_heads)) * k;
    if (a->score >= LOCATION) {
        const float *matrix = a->matrix + (size_t)h * a->limit * size;
        const int all = a->score == LOCATION_CUT ? a->limit : count;
        for (int s = 0; s < all; s++) {
            e[s] = s < a->limit ? dot(query, matrix + (size_t)s * size, size) : 0;
            if (a->bias && s < a->limit) e[s] += a->bias[(size_t)h * a->limit + s];
        }
        return;
    }
    const float *q = query;
    if (a->score == GENERAL) {
        memset(room, 0, k * sizeof(float));
        for (int i = 0; i < size; i++)
            add_scaled(room, a->matrix + ((size_t)h * size + i) * k, query[i], k);
        q = room;
    } else if (a->score == COSINE) {
        const float length = sqrtf(dot(query, query, size)), by = 1 / (length > 1e-12f ? length : 1e-12f);
        for (int i = 0; i < size; i++) room[i] = query[i] * by;
        q = room;
    } else if (a->of_query) {
        for (int i = 0; i < size; i++)
            room[i] = dot(query, a->of_query + ((size_t)h * size + i) * size, size);
        q = room;
    }
    float *sums = room + (size > k ? size : k);
    for (int s = 0; s < count; s++) {
        const float *key = keys[s] + from;
        if (a->score == ADDITIVE) {
            for (int i = 0; i < size; i++) sums[i] = hyperbolic_tangent(q[i] + key[i]);
            e[s] = dot(a->vector + (size_t)h * size, sums, size);
        } else if (a->score == COSINE) {
            const float length = sqrtf(dot(key, key, k)), by = 1 / (length > 1e-12f ? length : 1e-12f);
            for (int i = 0; i < k; i++) sums[i] = key[i] * by;
            e[s] = dot(q, sums, k) * a->scale;
        } else e[s] = dot(q, key, k) * a->scale;
    }
}

/* Σ_s weight_s v_s of all heads for one query; `keys` point to what is cached of each position. */
static void attend(const Attention *a, const Position *p, const float *query, int query_at, int count,
                   const float *const *keys, float *out, Work *w) {
    const int values = key_floats(a), size = a->value_size, heads = a->heads;
    const int far = a->score == LOCATION_CUT && a->limit > count ? a->limit : count;
    for (int h = 0; h < heads; h++)
        scores_of(a, h, query + h * a->query_size, count, keys, w->scores + (size_t)h * far, w->query);
    if (w->taps) for (int h = 0; h < heads; h++) take(w, a, SCORE, w->scores + (size_t)h * far, count);
    for (int h = 0; h < heads; h++) {
        float *e = w->scores + (size_t)h * far;
        if (p && p->kind >= ALIBI)
            for (int s = 0; s < count; s++) {
                const float bias = position_bias(p, h, heads, query_at, s);
                if (w->taps) take(w, a, BIAS, &bias, 1);
                e[s] += bias;
            }
        to_weights(a, e, a->score == LOCATION_CUT ? a->limit : count, w->ranked);
        for (int s = a->limit; a->score == LOCATION_CUT && s < count; s++) e[s] = 0;
        if (w->taps) take(w, a, WEIGHTS, e, count);
    }
    memset(out, 0, (size_t)heads * size * sizeof(float));
    for (int s = 0; s < count; s++)
        for (int h = 0; h < heads; h++)
            add_scaled(out + h * size, keys[s] + values + h / (heads / a->key_heads) * size,
                       w->scores[(size_t)h * far + s], size);
    if (w->taps) take(w, a, CONTEXT, out, (int64_t)heads * size);
}

/* Keys and values of one position into its cache: from the outputs of `joint`, or x itself. */
static void cache_position(const Attention *a, const float *joint, const float *x,
                           const float *angles, float *cache, Work *w) {
    const int keys = a->key_heads * a->key_size, values = a->key_heads * a->value_size;
    const float *key = a->key_at < 0 ? x : joint + a->key_at;
    const float *value = a->value_at < 0 ? x : joint + a->value_at;
    if (w->taps) take(w, a, VALUE, value, values), take(w, a, KEY, key, keys);
    memcpy(cache + key_floats(a), value, values * sizeof(float));
    float *own = a->of_key ? w->query : cache;
    memcpy(own, key, keys * sizeof(float));
    if (angles) rotate(own, a->key_heads, a->key_size, angles);
    if (angles && w->taps) take(w, a, ROTATED_KEY, own, keys);
    for (int h = 0; a->of_key && h < a->heads; h++)
        for (int i = 0; i < a->query_size; i++) {
            const int r = h * a->query_size + i;
            cache[r] = dot(own + h * a->key_size, a->of_key + (size_t)r * a->key_size, a->key_size);
        }
}

/* What each query gathers goes through the output map into x, added to it or in its place. */
static void put_output(const Attention *a, int rows, int size, const float *mixed, float *x, How how,
                       Work *w) {
    if (w->taps) {
        float *y = w->wide;
        if (a->output.out) apply(&a->output, rows, mixed, y, SET, w->room);
        take(w, a, OUTPUT, a->output.out ? y : mixed, (int64_t)rows * size);
    }
    if (a->output.out) apply(&a->output, rows, mixed, x, how, w->room);
    else for (size_t i = 0; i < (size_t)rows * size; i++) x[i] = how == ADD ? x[i] + mixed[i] : mixed[i];
}

static float *cache_of(const Source *s, int hypothesis, int at);        /* search.h */
static int ancestor_of(const Source *s, int hypothesis, int at);
static const float *memory_of(const Source *s, int at);
static int length_of(const Source *s);
static float *state_of(const Source *s, int hypothesis);

static void self_attention(const Attention *a, const Position *p, int side, int rows, const Row *row,
                           int size, const float *h, float *x, How how, Work *w) {
    const int queries = a->heads * a->query_size, mixed = a->heads * a->value_size;
    const int far = cached_floats(a), half = a->query_size / 2 * 2;
    if (a->joint.out) apply(&a->joint, rows, h, w->wide, SET, w->room);
    for (int n = 0; n < rows; n++) {
        const float *joint = w->wide + (size_t)n * a->joint.out;
        const float *angles = p->kind == ROTARY ? w->angles[side] + (size_t)row[n].at * half : NULL;
        float *cache = row[n].hypothesis < 0 ? w->cached + (size_t)n * far
                       : cache_of(row[n].source, row[n].hypothesis, row[n].at) + a->cache;
        cache_position(a, joint, h + (size_t)n * size, angles, cache, w);
    }
    for (int n = 0; n < rows; n++) {
        float *query = w->query + 4 * (size_t)(a->query_size + a->key_size);
        const float *from = a->query_at < 0 ? h + (size_t)n * size
                            : w->wide + (size_t)n * a->joint.out + a->query_at;
        memcpy(query, from, queries * sizeof(float));
        if (w->taps) take(w, a, QUERY, query, queries);
        if (p->kind == ROTARY) {
            rotate(query, a->heads, a->query_size, w->angles[side] + (size_t)row[n].at * half);
            if (w->taps) take(w, a, ROTATED_QUERY, query, queries);
        }
        const Source *s = row[n].source;
        const int encoder = row[n].hypothesis < 0, count = encoder ? length_of(s) : row[n].at + 1;
        for (int t = 0; t < count; t++)
            w->keys[t] = encoder ? w->cached + (size_t)(row[n].first + t) * far
                         : cache_of(s, ancestor_of(s, row[n].hypothesis, t), t) + a->cache;
        attend(a, p, query, row[n].at, count, w->keys, w->mixed + (size_t)n * mixed, w);
    }
    put_output(a, rows, size, w->mixed, x, how, w);
}

/* Attention over the memory of each row's source, which is cached in it. */
static void memory_attention(const Attention *a, int rows, const Row *row, int size, const float *h,
                             float *mixed, Work *w) {
    const int queries = a->heads * a->query_size;
    const float *query = h;
    if (a->query.out) {
        apply(&a->query, rows, h, w->wide, SET, w->room);
        query = w->wide;
    }
    const Source *last = NULL;
    for (int n = 0; n < rows; n++, query += queries, mixed += a->heads * a->value_size) {
        if (w->taps) take(w, a, QUERY, query, queries);
        const int count = length_of(row[n].source);
        for (int s = 0; row[n].source != last && s < count; s++)
            w->keys[s] = memory_of(row[n].source, s) + a->cache;
        last = row[n].source;
        attend(a, NULL, query, 0, count, w->keys, mixed, w);
    }
    (void)size;
}

/* ------------------------------------------------------------------------- other kinds of blocks */

/* f = σ(W_f x + b), c = f ⊙ c + (1 − f) ⊙ W x; max(0, c) (Kim et al., 2019). */
static void ssru(const Block *b, int rows, const Row *row, int size, const float *h, float *mixed,
                 Work *w) {
    apply(&b->inner, rows, h, w->wide, SET, w->room);
    for (int n = 0; n < rows; n++, mixed += size) {
        const float *both = w->wide + (size_t)n * 2 * size;
        float *cell = state_of(row[n].source, row[n].hypothesis) + b->state;
        for (int i = 0; i < size; i++) {
            const float f = sigmoid(both[i]);
            cell[i] = f * cell[i] + (1 - f) * both[size + i];
            mixed[i] = cell[i] <= 0 ? 0 : cell[i];
        }
    }
}

/* Gu & Dao (2023), figure 3; see nn/ssm.py. Rows of a source stand in the order of their positions;
 * `back` reads them from the last one. What it puts out is added to x. */
static void state_space(const StateSpace *s, int back, int rows, const Row *row, const float *h,
                        float *x, How how, Work *w) {
    const int e = s->channels, n = s->states, select = s->rank + 2 * n;
    const size_t window = (size_t)(s->window - 1) * e;
    float *both = w->wide, *u = w->mixed, *selected = w->gate;
    float *delta = w->context, *own = w->state;
    apply(&s->input, rows, h, both, SET, w->room);
    for (int r = 0; r < rows; r++) { /* the convolution: the last inputs of each sequence */
        const int at = back ? rows - 1 - r : r;
        const int encoder = row[at].hypothesis < 0;
        float *past = encoder ? own : state_of(row[at].source, row[at].hypothesis) + s->state;
        const int begins = back ? row[at].at == length_of(row[at].source) - 1 : row[at].at == 0;
        if (encoder && begins) memset(past, 0, window * sizeof(float));
        const float *inner = both + (size_t)at * 2 * e;
        float *to = u + (size_t)at * e;
        for (int i = 0; i < e; i++) to[i] = s->kernel_bias[i];
        for (int k = 0; k < s->window - 1; k++)
            for (int i = 0; i < e; i++) to[i] += s->kernel[k * e + i] * past[k * e + i];
        for (int i = 0; i < e; i++) to[i] += s->kernel[window + i] * inner[i];
        if (window) {
            memmove(past, past + e, (window - e) * sizeof(float));
            memcpy(past + window - e, inner, e * sizeof(float));
        }
    }
    activate(SILU, u, (size_t)rows * e);
    apply(&s->select, rows, u, selected, SET, w->room);
    for (int r = 0; r < rows; r++)
        memcpy(w->token + (size_t)r * s->rank, selected + (size_t)r * select, s->rank * sizeof(float));
    apply(&s->step, rows, w->token, delta, SET, w->room);
    for (int r = 0; r < rows; r++) {
        const int at = back ? rows - 1 - r : r;
        const int encoder = row[at].hypothesis < 0;
        float *state = (encoder ? own : state_of(row[at].source, row[at].hypothesis) + s->state) + window;
        const int begins = back ? row[at].at == length_of(row[at].source) - 1 : row[at].at == 0;
        if (encoder && begins) memset(state, 0, (size_t)e * n * sizeof(float));
        const float *into = selected + (size_t)at * select + s->rank, *out = into + n;
        const float *gate = both + (size_t)at * 2 * e + e;
        float *y = u + (size_t)at * e;
        for (int i = 0; i < e; i++) {
            const float d = softplus(delta[(size_t)at * e + i]), change = d * y[i];
            float *c = state + (size_t)i * n, total = 0;
            for (int j = 0; j < n; j++) {
                c[j] = exponential(d * s->decay[i * n + j]) * c[j] + change * into[j];
                total += c[j] * out[j];
            }
            y[i] = (total + s->skip[i] * y[i]) * gate[i] * sigmoid(gate[i]);
        }
    }
    apply(&s->output, rows, u, x, how, w->room);
}

/* W₂ f(W₁ x + b₁) + b₂, with a gate W₂ (f(W₁ x + b₁) ⊙ (V x + c)) + b₂. */
static void feed_forward(const Block *b, int rows, const float *h, float *x, How how, Work *w) {
    const size_t cells = (size_t)rows * b->inner.out;
    apply(&b->inner, rows, h, w->wide, SET, w->room);
    activate(b->activation, w->wide, cells);
    if (b->gate.out) {
        apply(&b->gate, rows, h, w->gate, SET, w->room);
        for (size_t i = 0; i < cells; i++) w->wide[i] *= w->gate[i];
    }
    apply(&b->outer, rows, w->wide, x, how, w->room);
}

/* A residual block: "pre" x + f(norm(x)), "post" norm(x + f(x)), "plain" norm(f(x)). */
static void run_block(const Block *b, const Position *p, int side, int rows, const Row *row, int size,
                      float *x, Work *w) {
    const float *h = x;
    const How how = b->order == PLAIN ? SET : ADD;
    if (b->order == PRE) {
        normalize(&b->norm, rows, size, x, w->h);
        h = w->h;
    } else if (b->kind == STATE_SPACE) {
        memcpy(w->h, x, (size_t)rows * size * sizeof(float));
        h = w->h;
    }
    switch (b->kind) {
    case ATTENTION:
        if (b->attention.over_memory) {
            memory_attention(&b->attention, rows, row, size, h, w->mixed, w);
            put_output(&b->attention, rows, size, w->mixed, x, how, w);
        } else self_attention(&b->attention, p, side, rows, row, size, h, x, how, w);
        break;
    case SSRU:
        ssru(b, rows, row, size, h, w->mixed, w);
        for (size_t i = 0; i < (size_t)rows * size; i++)
            x[i] = how == ADD ? x[i] + w->mixed[i] : w->mixed[i];
        break;
    case FEED_FORWARD: feed_forward(b, rows, h, x, how, w); break;
    case STATE_SPACE:
        state_space(&b->space, 0, rows, row, h, x, how, w);
        if (b->backward.channels) state_space(&b->backward, 1, rows, row, h, x, ADD, w);
        break;
    }
    if (b->order != PRE) normalize(&b->norm, rows, size, x, x);
}

/* ------------------------------------------------------------------------------------ recurrence */

/* One step of some rows: `projected` is W x + b, h and c (an LSTM's, after all h) change. */
static void step_cell(const Cell *cell, int rows, float *projected, float *h, float *c, Work *w) {
    const int size = cell->size, wide = cell->gates * size;
    float *back = w->gate;
    apply(&cell->back, rows, h, back, SET, w->room);
    for (int n = 0; n < rows; n++) {
        float *p = projected + (size_t)n * wide, *u = back + (size_t)n * cell->back.out;
        float *state = h + (size_t)n * size;
        if (cell->kind <= ELMAN_SIGMOID) {
            for (int i = 0; i < size; i++) state[i] = p[i] + u[i];
            activate(cell->kind == ELMAN_TANH ? TANH : cell->kind == ELMAN_RELU ? RELU : SIGMOID,
                     state, size);
        } else if (cell->kind == GRU) {
            for (int i = 0; i < size; i++) {
                const float reset = sigmoid(p[i] + u[i]), z = sigmoid(p[size + i] + u[size + i]);
                const float new = hyperbolic_tangent(p[2 * size + i] + reset * u[2 * size + i]);
                state[i] = new + z * (state[i] - new);
            }
        } else if (cell->kind == CHO_GRU) {
            for (int i = 0; i < size; i++) {
                p[size + i] = sigmoid(p[size + i] + u[size + i]);
                w->mixed[(size_t)n * size + i] = sigmoid(p[i] + u[i]) * state[i];
            }
        } else {
            float *own = c + (size_t)n * size;
            for (int i = 0; i < size; i++) {
                const float in = sigmoid(p[i] + u[i]), forget = sigmoid(p[size + i] + u[size + i]);
                const float new = hyperbolic_tangent(p[2 * size + i] + u[2 * size + i]);
                const float out = sigmoid(p[3 * size + i] + u[3 * size + i]);
                own[i] = forget * own[i] + in * new;
                state[i] = out * hyperbolic_tangent(own[i]);
            }
        }
    }
    if (cell->kind != CHO_GRU) return;
    apply(&cell->candidate, rows, w->mixed, back, SET, w->room);
    for (int n = 0; n < rows; n++)
        for (int i = 0; i < size; i++) {
            const float *p = projected + (size_t)n * wide;
            const float new = hyperbolic_tangent(p[2 * size + i] + back[(size_t)n * size + i]);
            float *state = h + (size_t)n * size + i;
            *state = new + p[size + i] * (*state - new);
        }
}
