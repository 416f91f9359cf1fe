/* Whole sequences through a model: sources through the encoder, tokens through the decoder. */

enum { WHOLE = 0, STATES = 8, LONGEST = 3 }; /* states of UTF-8; tokens that finish a character */

struct Source { /* a source that is being decoded, and what its hypotheses have read */
    const Model *model;
    int32_t number, length, width; /* positions of the memory; hypotheses at most */
    float *memory, *values;        /* keys and values for the decoder (S, floats); the encoder's output */
    float *final, *context;        /* last states of a recurrent encoder; the vector of a bridge */
    int32_t read, capacity;        /* tokens that each hypothesis has read; room for so many */
    float *cache;                  /* (T, width, floats of a position) */
    int32_t *ancestor, *tokens;    /* (T, width): where a hypothesis stood; what it has written */
    float *state, *spare;          /* (width, floats of a hypothesis) */
    /* what a search knows of it */
    int32_t live, written, limit, end, given, *prefix, prompted, *prompt;
    int32_t *place;                /* (3, width) room for rows */
    float *total;                  /* (width) log p */
    float *best;                   /* (width) the highest scores of its outputs */
    uint8_t *utf8, *done;          /* (width) states of characters; outputs that have ended */
    uint16_t finished[LONGEST + 1], stuck[LONGEST + 1]; /* bits by state, for so many more tokens */
    int32_t allowed, *vocabulary;  /* the ids that may be written, in their order; 0: all */
    int32_t nevers, *never;        /* of these the places that are never written */
    Linear some;                   /* the output map onto these */
    int32_t *forbids;              /* pairs of a hypothesis and a place that may not follow */
    size_t forbidden, forbid_room; /* numbers in it */
    int32_t named, spelt, *terms;  /* terms that its outputs hold; numbers that spell them */
    int32_t *forced;               /* (width) ids written of a term that is to be completed; room */
    int32_t outputs, *found;       /* outputs, each: tokens, ended, log p, score, ids … */
    size_t filled, room;
    Source *next;
};

static float *cache_of(const Source *s, int hypothesis, int at) {
    return s->cache + ((size_t)at * s->width + hypothesis) * s->model->decoder.cache;
}
static int ancestor_of(const Source *s, int hypothesis, int at) {
    return at >= s->read ? hypothesis : s->ancestor[(size_t)at * s->width + hypothesis];
}
static const float *memory_of(const Source *s, int at) {
    return s->memory + at * s->model->decoder.memory;
}
static int length_of(const Source *s) { return s->length; }
static float *state_of(const Source *s, int hypothesis) {
    return s->state + hypothesis * s->model->decoder.state;
}

/* ------------------------------------------------------------------------------ room for layers */

static void widen(size_t *most, size_t size) { *most = size > *most ? size : *most; }

static void widen_for(size_t *most, const Attention *a) {
    widen(most, a->joint.out), widen(most, a->query.out), widen(most, a->output.out);
    widen(most, a->output.in), widen(most, (size_t)a->heads * a->value_size);
    widen(most, cached_floats(a)), widen(most, a->joint.in);
}

static void widen_for_stack(size_t *most, const Encoder *e) {
    const Position *p = &e->embedding.position;
    widen(most, e->size), widen(most, e->embedding.size + p->features);
    for (int i = 0; i < e->count; i++) {
        const Block *b = e->block + i;
        widen_for(most, &b->attention);
        widen(most, b->inner.out), widen(most, b->outer.in);
        const StateSpace *both[] = {&b->space, &b->backward};
        for (int j = 0; j < 2; j++)
            widen(most, 2 * both[j]->channels), widen(most, both[j]->select.out),
                widen(most, both[j]->rank);
    }
    for (int i = 0; i < e->recurrence.layers * e->recurrence.directions; i++)
        widen(most, e->recurrence.cell[i].input.out), widen(most, e->recurrence.cell[i].input.in);
}

/* The most floats of a row that any layer reads or writes. */
static size_t widest(const Model *m) {
    size_t most = 1;
    if (m->has_encoder) widen_for_stack(&most, &m->encoder);
    widen_for(&most, &m->pooling_attention);
    if (!m->has_decoder) return most;
    widen_for_stack(&most, &m->decoder.stack), widen_for(&most, &m->decoder.attention);
    widen(&most, m->decoder.readout.in), widen(&most, m->decoder.feed.in);
    for (int i = 0; i < m->decoder.maps; i++) widen(&most, m->decoder.map[i].out);
    return most;
}

static size_t most_heads(const Model *m, size_t *limit) {
    size_t heads = 1, floats = 1;
    *limit = 1;
    const Encoder *stack[] = {&m->encoder, &m->decoder.stack};
    const Attention *other[] = {&m->decoder.attention, &m->pooling_attention};
    for (int i = 0; i < 2; i++)
        for (int j = -1; j < stack[i]->count; j++) {
            const Attention *a = j < 0 ? other[i] : &stack[i]->block[j].attention;
            widen(&heads, a->heads), widen(limit, a->limit);
            widen(&floats, a->query_size + a->key_size);
        }
    return heads > floats ? heads : floats;
}

static void free_work(Work *w) {
    float **each[] = {&w->x, &w->h, &w->wide, &w->mixed, &w->gate, &w->context, &w->token, &w->state,
                      &w->cached, &w->room, &w->logits, &w->scores, &w->ranked, &w->query};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) free(*each[i]), *each[i] = NULL;
    free(w->keys), w->keys = NULL, w->rows = w->places = 0;
}

/* Memory for so many rows that attend to so many positions; false where there is none. */
static int reserve(Work *w, const Model *m, size_t rows, size_t places) {
    if (rows <= w->rows && places <= w->places) return 1;
    rows = rows > w->rows ? rows : w->rows, places = places > w->places ? 2 * places : w->places;
    free_work(w);
    size_t limit, cells = rows * widest(m), heads = most_heads(m, &limit), state = 1;
    const size_t across = places > limit ? places : limit;
    for (int i = 0; i < m->encoder.count; i++) {
        widen(&state, state_floats(&m->encoder.block[i].space));
        widen(&state, state_floats(&m->encoder.block[i].backward));
    }
    const size_t query = 8 * (heads + widest(m));
    float **each[] = {&w->x, &w->h, &w->wide, &w->mixed, &w->gate, &w->context, &w->token, &w->cached};
    int made = 1;
    for (int i = 0; i < 8; i++) made &= (*each[i] = malloc((cells + 64) * sizeof(float))) != NULL;
    made &= (w->state = malloc(state * sizeof(float))) != NULL;
    made &= (w->room = malloc(room_of_apply(rows, widest(m)) * sizeof(float))) != NULL;
    made &= (w->scores = malloc(heads * across * sizeof(float))) != NULL;
    made &= (w->ranked = malloc(across * sizeof(float))) != NULL;
    made &= (w->query = malloc(query * sizeof(float))) != NULL;
    made &= (w->keys = malloc(across * sizeof(float *))) != NULL;
    if (m->has_decoder)
        made &= (w->logits = malloc(rows * m->vocabulary * sizeof(float))) != NULL;
    if (!made) return free_work(w), 0;
    w->rows = rows, w->places = places;
    return 1;
}

/* --------------------------------------------------------------------------------- the encoder */

/* Layers of cells over the rows of sources, read forwards and backwards, into x; the last states of
 * every layer into each source's `final`: (layers, states, directions, size). False without memory. */
static int run_recurrence(const Recurrence *n, int sources, Source *const *source, int rows,
                          const int *first, float **x, Work *w) {
    const int size = n->cell[0].size, states = n->cell[0].states, out = n->directions * size;
    float *next = malloc((size_t)rows * (out + 1) * sizeof(float));
    float *h = malloc((size_t)sources * size * 2 * sizeof(float)), *c = h + (size_t)sources * size;
    float *projected = malloc((size_t)rows * n->cell[0].gates * size * sizeof(float));
    float *input = malloc((size_t)rows * n->cell[0].gates * size * sizeof(float));
    int longest = 0, *active = malloc(sources * sizeof(int)), made = next && h && projected && input;
    made = made && active;
    for (int m = 0; m < sources; m++)
        longest = source[m]->length > longest ? source[m]->length : longest;
    for (int l = 0; made && l < n->layers; l++) {
        for (int d = 0; d < n->directions; d++) {
            const Cell *cell = n->cell + l * n->directions + d;
            const int wide = cell->gates * size;
            apply(&cell->input, rows, *x, input, SET, w->room);
            memset(h, 0, (size_t)sources * size * 2 * sizeof(float));
            for (int t = 0; t < longest; t++) {
                int count = 0;
                for (int m = 0; m < sources; m++) {
                    if (source[m]->length <= t) continue;
                    const int at = first[m] + (d ? source[m]->length - 1 - t : t);
                    memcpy(projected + (size_t)count * wide, input + (size_t)at * wide,
                           wide * sizeof(float));
                    if (count != m) { /* states of sources that go on stand side by side */
                        memcpy(h + (size_t)count * size, h + (size_t)m * size, size * sizeof(float));
                        memcpy(c + (size_t)count * size, c + (size_t)m * size, size * sizeof(float));
                    }
                    active[count++] = m;
                }
                step_cell(cell, count, projected, h, c, w);
                for (int i = count - 1; i >= 0; i--) {
                    const int m = active[i], last = t == source[m]->length - 1;
                    const int at = first[m] + (d ? source[m]->length - 1 - t : t);
                    memcpy(next + (size_t)at * out + d * size, h + (size_t)i * size,
                           size * sizeof(float));
                    if (i != m) {
                        memcpy(h + (size_t)m * size, h + (size_t)i * size, size * sizeof(float));
                        memcpy(c + (size_t)m * size, c + (size_t)i * size, size * sizeof(float));
                    }
                    for (int s = 0; last && s < states; s++)
                        memcpy(source[m]->final + ((size_t)(l * states + s) * n->directions + d) * size,
                               (s ? c : h) + (size_t)m * size, size * sizeof(float));
                }
            }
        }
        memcpy(*x, next, (size_t)rows * out * sizeof(float));
    }
    free(next), free(h), free(projected), free(input), free(active);
    return made;
}

/* Read sources: fills `values`, `final` and `memory` of each. False without memory. */
static int encode(const Model *m, int sources, Source *const *source, const int32_t *const *ids,
                  Work *w) {
    const Encoder *e = &m->encoder;
    int rows = 0, longest = 0;
    for (int i = 0; i < sources; i++) {
        rows += source[i]->length;
        longest = source[i]->length > longest ? source[i]->length : longest;
    }
    Row *row = malloc(rows * sizeof(Row));
    int32_t *all = malloc(rows * sizeof(int32_t));
    int *first = malloc(sources * sizeof(int));
    int made = row && all && first && reserve(w, m, rows, longest);
    made = made && make_tables(w, 0, &e->embedding.position, longest);
    for (int i = 0, n = 0; made && i < sources; i++) {
        first[i] = n;
        for (int t = 0; t < source[i]->length; t++, n++) {
            row[n] = (Row){source[i], -1, t, first[i]};
            all[n] = ids[i][t];
        }
    }
    if (made) {
        embed(&e->embedding, 0, rows, all, row, w->x, w);
        for (int i = 0; i < e->count; i++)
            run_block(e->block + i, &e->embedding.position, 0, rows, row, e->embedding.size, w->x, w);
        normalize(&e->last, rows, e->embedding.size, w->x, w->x);
        if (e->recurrence.layers)
            made = run_recurrence(&e->recurrence, sources, source, rows, first, &w->x, w);
    }
    for (int i = 0; made && i < sources; i++)
        memcpy(source[i]->values, w->x + (size_t)first[i] * e->size,
               (size_t)source[i]->length * e->size * sizeof(float));
    free(row), free(all), free(first);
    return made;
}

/* Keys and values of the memory for every attention of the decoder that reads it. */
static int cache_memory(const Model *m, Source *s, Work *w) {
    const Decoder *d = &m->decoder;
    for (int i = d->attends ? -1 : 0; i < d->stack.count; i++) {
        const Attention *a = i < 0 ? &d->attention : &d->stack.block[i].attention;
        if (i >= 0 && (d->stack.block[i].kind != ATTENTION || !a->over_memory)) continue;
        if (a->joint.out) apply(&a->joint, s->length, s->values, w->wide, SET, w->room);
        for (int t = 0; t < s->length; t++)
            cache_position(a, w->wide + (size_t)t * a->joint.out, s->values + (size_t)t * m->encoder.size,
                           NULL, s->memory + t * d->memory + a->cache, w);
    }
    return 1;
}

/* The whole source as one vector: the last state of a recurrent encoder unless `mean`, else the mean. */
static void summarize(const Model *m, const Source *s, int mean, float *summary) {
    const Recurrence *n = &m->encoder.recurrence;
    const int size = m->encoder.size;
    if (n->layers && !mean) { /* h of the last layer, both directions */
        const size_t states = n->cell[0].states;
        memcpy(summary, s->final + (n->layers - 1) * states * size, size * sizeof(float));
        return;
    }
    memset(summary, 0, size * sizeof(float));
    for (int t = 0; t < s->length; t++) add_scaled(summary, s->values + (size_t)t * size, 1, size);
    for (int i = 0; i < size; i++) summary[i] /= s->length;
}

/* The first states of all layers of a recurrent decoder. */
static void start_states(const Model *m, Source *s, Work *w) {
    const Decoder *d = &m->decoder;
    if (d->state) memset(s->state, 0, d->state * sizeof(float));
    if (!d->bridge) return;
    const Recurrence *n = &d->stack.recurrence;
    const int size = n->cell[0].size, states = n->layers * n->cell[0].states;
    if (d->bridge == HAND_OVER) {
        for (int i = 0; i < states; i++) {
            const float *from = s->final + (size_t)i * m->encoder.size;
            if (d->map[i].out) apply(d->map + i, 1, from, s->state + (size_t)i * size, SET, w->room);
            else memcpy(s->state + (size_t)i * size, from, size * sizeof(float));
        }
        return;
    }
    float *summary = w->mixed;
    summarize(m, s, 0, summary);
    if (d->bridge == SUMMARY) {
        apply(&d->summary, 1, summary, s->context, SET, w->room);
        activate(TANH, s->context, size);
        summary = s->context;
    }
    apply(d->map, 1, summary, s->state, SET, w->room);
    activate(TANH, s->state, (size_t)states * size);
}

/* --------------------------------------------------------------------------------- the decoder */

/* One step of a recurrent decoder: see models/recurrent.py. What each row puts out into x. */
static void step_recurrent(const Model *m, int rows, const Row *row, float *x, Work *w) {
    const Decoder *d = &m->decoder;
    const Recurrence *n = &d->stack.recurrence;
    const int size = n->cell[0].size, states = n->cell[0].states, layers = n->layers;
    const int embedded = d->stack.embedding.size, token = embedded + d->context_size;
    const int context = d->attends ? d->attention.heads * d->attention.value_size : 0;
    const int out = d->attends && d->attention.output.out ? d->attention.output.out : context;
    float *words = w->token, *h = w->h, *c = w->cached, *projected = w->wide, *seen = w->context;
    for (int r = 0; r < rows; r++) {
        memcpy(words + (size_t)r * token, x + (size_t)r * embedded, embedded * sizeof(float));
        if (d->context_size)
            memcpy(words + (size_t)r * token + embedded, row[r].source->context,
                   d->context_size * sizeof(float));
    }
    for (int r = 0; d->attends && r < rows; r++) { /* s_{t−1} of the last layer, or o_{t−1} */
        const float *own = state_of(row[r].source, row[r].hypothesis);
        const float *top = own + (size_t)(layers - 1) * states * size;
        const float *fed = own + (size_t)layers * states * size;
        if (d->attends == BEFORE_STEP) memcpy(h + (size_t)r * size, top, size * sizeof(float));
        else memcpy(seen + (size_t)r * d->output_size, fed, d->output_size * sizeof(float));
    }
    if (d->attends == BEFORE_STEP) {
        memory_attention(&d->attention, rows, row, size, h, w->mixed, w);
        put_output(&d->attention, rows, out, w->mixed, seen, SET, w);
    }
    apply(&n->cell[0].input, rows, words, projected, SET, w->room);
    if (d->attends) apply(&d->feed, rows, seen, projected, ADD, w->room);
    for (int l = 0; l < layers; l++) {
        const size_t from = (size_t)l * states * size;
        if (l) apply(&n->cell[l].input, rows, x, projected, SET, w->room);
        for (int r = 0; r < rows; r++) {
            const float *own = state_of(row[r].source, row[r].hypothesis) + from;
            memcpy(h + (size_t)r * size, own, size * sizeof(float));
            if (states > 1) memcpy(c + (size_t)r * size, own + size, size * sizeof(float));
        }
        step_cell(n->cell + l, rows, projected, h, c, w);
        for (int r = 0; r < rows; r++) {
            float *own = state_of(row[r].source, row[r].hypothesis) + from;
            memcpy(own, h + (size_t)r * size, size * sizeof(float));
            if (states > 1) memcpy(own + size, c + (size_t)r * size, size * sizeof(float));
        }
        memcpy(x, h, (size_t)rows * size * sizeof(float));
    }
    if (!d->readout.out) return;
    if (d->attends == AFTER_STEP) {
        memory_attention(&d->attention, rows, row, size, h, w->mixed, w);
        put_output(&d->attention, rows, out, w->mixed, seen, SET, w);
    }
    const int all = size + out + token;
    float *joined = w->gate;
    for (int r = 0; r < rows; r++) {
        float *to = joined + (size_t)r * all;
        memcpy(to, h + (size_t)r * size, size * sizeof(float));
        if (out) memcpy(to + size, seen + (size_t)r * out, out * sizeof(float));
        memcpy(to + size + out, words + (size_t)r * token, token * sizeof(float));
    }
    apply(&d->readout, rows, joined, x, SET, w->room);
    activate(TANH, x, (size_t)rows * d->output_size);
    for (int r = 0; d->attends == AFTER_STEP && r < rows; r++)
        memcpy(state_of(row[r].source, row[r].hypothesis) + (size_t)layers * states * size,
               x + (size_t)r * d->output_size, d->output_size * sizeof(float));
}

/* Read one token in each row; the vectors that predict the next ones into w->x (N, output size).
 * Rows of one hypothesis stand in the order of their positions. */
static void read_tokens(const Model *m, int rows, const Row *row, const int32_t *ids, Work *w) {
    const Decoder *d = &m->decoder;
    const Encoder *e = &d->stack;
    embed(&e->embedding, 1, rows, ids, row, w->x, w);
    for (int i = 0; i < e->count; i++)
        run_block(e->block + i, &e->embedding.position, 1, rows, row, e->embedding.size, w->x, w);
    normalize(&e->last, rows, e->embedding.size, w->x, w->x);
    if (e->recurrence.layers) step_recurrent(m, rows, row, w->x, w);
}
