/* A model as it is read: blocks of layers with their packed weights.
 *
 * A packed file holds tensors and a program: numbers that say, block by block, of which kind and size
 * a layer is and which tensors it has (`foveate.engine.pack` writes it, the functions `read_…` below
 * read it). A number that is out of bounds, and a tensor of another size, stop the reading. */

typedef struct { /* a tensor of a file: floats, or bytes with a scale for each row */
    int32_t int8, rows, columns, kept; /* `kept`: the model that was read refers to it */
    const void *data;
    const float *scale;
} Tensor;

typedef enum { NO_NORM, LAYER_NORM, RMS_NORM, AFFINE } NormKind; /* affine: a batch norm in use */
typedef enum { PRE, POST, PLAIN } Order;
typedef enum { SCALED, GENERAL, ADDITIVE, COSINE, LOCATION, LOCATION_CUT } ScoreKind;
typedef enum { SOFTMAX, HARDMAX, SPARSEMAX, ENTMAX15 } NormalizerKind;
typedef enum { NO_POSITION, TABLE, SINUSOIDAL, HALVES, CONCATENATED, APPENDED, ROTARY, ALIBI, T5,
               T5_CAUSAL, LATER_HALVES } PositionKind;
typedef enum { ATTENTION, SSRU, FEED_FORWARD, STATE_SPACE } BlockKind;
typedef enum { ELMAN_TANH, ELMAN_RELU, ELMAN_SIGMOID, GRU, CHO_GRU, LSTM } CellKind;
typedef enum { NO_BRIDGE, FIRST_STATES, HAND_OVER, SUMMARY } BridgeKind;
typedef enum { NEVER, BEFORE_STEP, AFTER_STEP } AttendsWhen;
typedef enum { POOL_MEAN, POOL_SUMMARY, POOL_FIRST, POOL_MAX, POOL_ATTENTION } PoolingKind;

typedef struct {
    NormKind kind;
    const float *gain, *shift;
    float eps;
} Norm;

typedef struct {
    PositionKind kind;
    int limit, features, buckets; /* positions of a table; sinusoids; classes of distances */
    int heads, turned, first;     /* of every attention; size of heads that ROTARY turns; position of
                                   * the first token */
    float base, farthest;
    const float *table;
    Linear join;
} Position;

typedef struct { /* Σ_i normalise_i(e(q, k_i)) v_i in each head */
    int over_memory, heads, key_heads, key_size, query_size, value_size;
    int query_at, key_at, value_at; /* in the outputs of `joint`, or −1: not projected */
    Linear joint, output;           /* q, k and v of self-attention; k and v of a memory */
    Linear query;                   /* of an attention over a memory */
    ScoreKind score;
    float scale, temperature;
    int limit;                      /* positions that a location score knows */
    const float *vector, *matrix, *of_query, *of_key, *bias;
    NormalizerKind normalizer;
    size_t cache;                   /* where its keys begin, the values after them */
    int number;                     /* for taps */
} Attention;

typedef struct { /* see nn/ssm.py */
    int channels, states, window, rank;
    Linear input, select, step, output;
    const float *kernel, *kernel_bias, *decay, *skip; /* decay: A < 0 */
    size_t state;
} StateSpace;

typedef struct {
    BlockKind kind;
    Order order;
    Norm norm;
    Attention attention;
    Linear inner, gate, outer; /* of a feed-forward layer; `inner` is f and W of an SSRU */
    Activation activation;
    StateSpace space, backward; /* the second reads from the end */
    size_t state;
} Block;

typedef struct { /* E[id] · scale + shift, σ(W x + b) where there is W; positions; a norm */
    Matrix table;
    float scale;
    const float *shift;
    Linear dense;
    int size, token_size;
    Position position;
    Norm norm;
} Embedding;

typedef struct {
    CellKind kind;
    int size, gates, states;
    Linear input, back, candidate; /* `candidate`: of a GRU as Cho et al. print it */
} Cell;

typedef struct {
    int layers, directions;
    Cell *cell; /* layer by layer, forwards before backwards */
} Recurrence;

typedef struct { /* a stack of blocks, or layers of cells, over embeddings */
    Embedding embedding;
    int count, size;
    Block *block;
    Norm last;
    Recurrence recurrence;
} Encoder;

typedef struct {
    Encoder stack; /* what a decoder has in common with an encoder */
    AttendsWhen attends;
    Attention attention;
    Linear feed, readout;
    BridgeKind bridge;
    Linear *map; /* of each first state; one of all of them for FIRST_STATES and SUMMARY */
    Linear summary;
    int maps, context_size, output_size;
    size_t cache, state; /* floats of a position, and of a hypothesis */
    size_t memory;       /* floats of a position of the source */
} Decoder;

typedef struct {
    int has_encoder, has_decoder, vocabulary, labels, attentions;
    int positions[2]; /* that an encoder and a decoder may read at most */
    Encoder encoder;
    Decoder decoder;
    Linear output;
    PoolingKind pooling;
    Attention pooling_attention;
    const float *pooling_query;
} Model;

/* ---------------------------------------------------------------------------------- the program */

typedef struct {
    const double *at, *end;
    Tensor *tensor;
    int tensors, attentions;
    int packs; /* what is read now is copied into a map */
    int bad; /* something was out of bounds, or there was no memory */
} Reader;

enum { MOST = 1 << 24 };

static int read_int(Reader *r, int least, int most) {
    const double value = r->at < r->end ? *r->at++ : least - 1.0;
    if (!(value >= least && value <= most) || value != (int)value) return r->bad = 1, least;
    return (int)value;
}

static float read_float(Reader *r) {
    const double value = r->at < r->end ? *r->at++ : NAN;
    if (!(fabs(value) < 3e38)) return r->bad = 1, 0;
    return (float)value;
}

static const Tensor *read_tensor(Reader *r) {
    const int index = read_int(r, -1, r->tensors - 1);
    if (index >= 0 && !r->packs) r->tensor[index].kept = 1;
    return index < 0 ? NULL : r->tensor + index;
}

/* A tensor of as many floats, or NULL for −1. */
static const float *read_floats(Reader *r, int64_t size) {
    const Tensor *t = read_tensor(r);
    if (t && (t->int8 || (int64_t)t->rows * t->columns != size)) return r->bad = 1, NULL;
    return t ? t->data : NULL;
}

static Matrix read_matrix(Reader *r, int rows, int columns) {
    const Tensor *t = read_tensor(r);
    if (!t || t->rows != rows || t->columns != columns) return r->bad = 1, (Matrix){0};
    if (t->int8 && columns > MOST_BYTES) return r->bad = 1, (Matrix){0};
    Matrix m = {rows, columns};
    if (t->int8) m.bytes = t->data, m.scale = t->scale;
    else m.floats = t->data;
    return m;
}

enum { PARTS = 3 };

/* A map of several matrices (rows, columns), each followed by its bias. */
static Linear read_linear(Reader *r, int parts, const int *rows, int columns) {
    Matrix matrix[PARTS];
    const Matrix *at[PARTS];
    const float *bias[PARTS];
    Linear w = {0};
    r->packs = 1;
    for (int p = 0; p < parts; p++) {
        matrix[p] = read_matrix(r, rows[p], columns), at[p] = matrix + p;
        bias[p] = read_floats(r, rows[p]);
        if (!r->bad && !matrix[p].bytes != !matrix[0].bytes) r->bad = 1;
    }
    r->packs = 0;
    if (!r->bad && parts && !pack_linear(&w, parts, at, bias)) r->bad = 1;
    return w;
}

static Linear read_map(Reader *r, int rows, int columns) {
    return read_linear(r, 1, &rows, columns);
}

static Norm read_norm(Reader *r, int size) {
    Norm norm = {read_int(r, NO_NORM, AFFINE)};
    if (norm.kind == NO_NORM) return norm;
    norm.gain = read_floats(r, size), norm.shift = read_floats(r, size), norm.eps = read_float(r);
    if (!norm.gain || (norm.kind != RMS_NORM && !norm.shift)) r->bad = 1;
    return norm;
}

static void read_position(Reader *r, Position *p, int size, int heads) {
    p->kind = read_int(r, NO_POSITION, LATER_HALVES), p->heads = heads;
    const int later = p->kind == LATER_HALVES, waves = later || p->kind == SINUSOIDAL || p->kind == HALVES;
    if (waves || p->kind == ROTARY || p->kind == CONCATENATED || p->kind == APPENDED)
        p->base = read_float(r);
    if (later) p->kind = HALVES, p->first = read_int(r, 0, MOST);
    p->features = waves ? size : 0;
    if (p->kind == CONCATENATED || p->kind == APPENDED) p->features = read_int(r, 1, MOST);
    if (p->kind == CONCATENATED) p->join = read_map(r, size, size + p->features);
    if (p->kind == APPENDED && p->features >= size) r->bad = 1;
    if (p->kind == TABLE) {
        p->limit = read_int(r, 1, MOST);
        p->table = read_floats(r, (int64_t)p->limit * size);
    }
    if (p->kind == ALIBI) p->table = read_floats(r, heads);
    if (p->kind == T5 || p->kind == T5_CAUSAL) {
        p->buckets = read_int(r, 4, MOST), p->farthest = read_float(r);
        if (!(p->farthest > p->buckets / (p->kind == T5 ? 4 : 2))) r->bad = 1;
        p->table = read_floats(r, (int64_t)p->buckets * heads);
    }
    if ((p->kind == TABLE || p->kind >= ALIBI) && !p->table) r->bad = 1;
}

static void read_embedding(Reader *r, Embedding *e, int *vocabulary) {
    *vocabulary = read_int(r, 1, MOST);
    e->size = read_int(r, 1, MOST), e->token_size = read_int(r, 1, e->size);
    e->table = read_matrix(r, *vocabulary, e->token_size);
    e->scale = read_float(r);
    e->shift = read_floats(r, e->token_size);
    if (read_int(r, 0, 1)) e->dense = read_map(r, e->token_size, e->token_size);
    const int heads = read_int(r, 1, MOST);
    read_position(r, &e->position, e->size, heads);
    const int token = e->position.kind == APPENDED ? e->size - e->position.features : e->size;
    if (e->token_size != token) r->bad = 1;
    e->norm = read_norm(r, e->size);
}

static void read_attention(Reader *r, Attention *a, int size, int memory, int output) {
    a->over_memory = memory > 0;
    const int from = memory ? memory : size;
    a->number = r->attentions++;
    a->heads = read_int(r, 1, 4096), a->key_heads = read_int(r, 1, a->heads);
    a->query_size = read_int(r, 1, MOST / a->heads), a->key_size = read_int(r, 0, MOST / a->heads);
    a->value_size = read_int(r, 1, MOST / a->heads);
    if (a->heads % a->key_heads) r->bad = 1;
    const int queries = a->heads * a->query_size, keys = a->key_heads * a->key_size;
    const int values = a->key_heads * a->value_size;
    int rows[PARTS], parts = 0, at = 0, out;
    a->query_at = a->key_at = a->value_at = -1;
    const int query = read_int(r, 0, 1), key = read_int(r, 0, 1), value = read_int(r, 0, 1);
    out = read_int(r, 0, 1);
    if (query && !memory) rows[parts++] = queries, a->query_at = at, at += queries;
    if (key) rows[parts++] = keys, a->key_at = at, at += keys;
    if (value) rows[parts++] = values, a->value_at = at, at += values;
    if (query && memory) a->query = read_map(r, queries, size);
    else if (!query && queries != size) r->bad = 1;
    if ((!key && a->key_size && keys != from) || (!value && values != from)) r->bad = 1;
    a->joint = read_linear(r, parts, rows, from);
    const int mixed = a->heads * a->value_size;
    if (out) a->output = read_map(r, output, mixed);
    else if (mixed != output) r->bad = 1;
    a->score = read_int(r, SCALED, LOCATION_CUT);
    a->scale = read_float(r);
    const int64_t heads = a->heads, q = a->query_size, k = a->key_size;
    if (a->score == GENERAL) a->matrix = read_floats(r, heads * q * k);
    if (a->score == ADDITIVE) {
        a->vector = read_floats(r, heads * q);
        a->of_query = read_floats(r, heads * q * q), a->of_key = read_floats(r, heads * q * k);
        if (!a->of_query != !a->of_key || (a->of_key && a->key_heads != a->heads)) r->bad = 1;
    }
    if (a->score >= LOCATION) {
        a->limit = read_int(r, 1, MOST);
        a->matrix = read_floats(r, heads * a->limit * q), a->bias = read_floats(r, heads * a->limit);
    }
    if ((a->score == GENERAL || a->score >= LOCATION) && !a->matrix) r->bad = 1;
    if (a->score == ADDITIVE && !a->vector) r->bad = 1;
    const int same = a->score == SCALED || a->score == COSINE || (a->score == ADDITIVE && !a->of_key);
    if (same && q != k) r->bad = 1;
    a->normalizer = read_int(r, SOFTMAX, ENTMAX15), a->temperature = read_float(r);
    if (!(a->temperature > 0)) r->bad = 1;
    if (a->score == LOCATION_CUT) a->normalizer = SOFTMAX, a->temperature = 1; /* its own softmax */
}

/* Whether positions of a stack are made for the heads of an attention over itself. */
static int suits(Position *p, const Attention *a) {
    if (p->kind >= ALIBI) return p->heads == a->heads;
    if (p->kind != ROTARY) return 1;
    if (!p->turned) p->turned = a->query_size;
    return p->turned == a->query_size && (!a->key_size || p->turned == a->key_size);
}

/* Floats of a cached position of an attention: its keys, or what the score made of them, and values. */
static int key_floats(const Attention *a) {
    return a->of_key ? a->heads * a->query_size : a->key_heads * a->key_size;
}

static int cached_floats(const Attention *a) {
    return key_floats(a) + a->key_heads * a->value_size;
}

static void read_state_space(Reader *r, StateSpace *s, int size) {
    s->channels = read_int(r, 1, MOST), s->states = read_int(r, 1, 1024);
    s->window = read_int(r, 1, 1024), s->rank = read_int(r, 1, MOST);
    const int64_t e = s->channels;
    s->input = read_map(r, 2 * s->channels, size);
    s->kernel = read_floats(r, s->window * e), s->kernel_bias = read_floats(r, e);
    s->select = read_map(r, s->rank + 2 * s->states, s->channels);
    s->step = read_map(r, s->channels, s->rank);
    s->decay = read_floats(r, e * s->states), s->skip = read_floats(r, e);
    s->output = read_map(r, size, s->channels);
    if (!s->kernel || !s->kernel_bias || !s->decay || !s->skip) r->bad = 1;
}

/* Floats that a state space remembers: a window of inputs, and h. */
static size_t state_floats(const StateSpace *s) {
    return (size_t)s->channels * (s->window - 1 + s->states);
}

static void read_block(Reader *r, Block *b, Position *p, int size, int memory, int decodes) {
    b->kind = read_int(r, ATTENTION, STATE_SPACE);
    b->order = read_int(r, PRE, PLAIN);
    b->norm = read_norm(r, size);
    if (b->kind == ATTENTION) {
        const int over_memory = read_int(r, 0, 1);
        if (over_memory && !memory) r->bad = 1;
        read_attention(r, &b->attention, size, over_memory ? memory : 0, size);
        if (!over_memory && !suits(p, &b->attention)) r->bad = 1;
    } else if (b->kind == SSRU) {
        const int both[] = {size, size};
        if (!decodes) r->bad = 1;
        b->inner = read_linear(r, 2, both, size);
    } else if (b->kind == FEED_FORWARD) {
        b->activation = read_int(r, IDENTITY, SIGMOID);
        const int wide = read_int(r, 1, MOST);
        b->inner = read_map(r, wide, size);
        if (read_int(r, 0, 1)) b->gate = read_map(r, wide, size);
        b->outer = read_map(r, size, wide);
    } else {
        read_state_space(r, &b->space, size);
        if (read_int(r, 0, !decodes)) read_state_space(r, &b->backward, size);
    }
}

static void *make(Reader *r, size_t count, size_t size) {
    void *made = calloc(count ? count : 1, size);
    if (!made) r->bad = 1;
    return made;
}

static void read_cell(Reader *r, Cell *c, int input) {
    c->kind = read_int(r, ELMAN_TANH, LSTM);
    c->size = read_int(r, 1, MOST / 4);
    c->gates = c->kind == LSTM ? 4 : c->kind >= GRU ? 3 : 1;
    c->states = c->kind == LSTM ? 2 : 1;
    c->input = read_map(r, c->gates * c->size, input);
    c->back = read_map(r, (c->kind == CHO_GRU ? 2 : c->gates) * c->size, c->size);
    if (c->kind == CHO_GRU) c->candidate = read_map(r, c->size, c->size);
}

/* Layers of cells over vectors of `input`; gives the size of what the last one puts out. */
static int read_recurrence(Reader *r, Recurrence *n, int input) {
    n->layers = read_int(r, 0, 1024), n->directions = read_int(r, 1, 2);
    n->cell = make(r, n->layers * n->directions, sizeof(Cell));
    for (int i = 0; !r->bad && i < n->layers * n->directions; i++) {
        read_cell(r, n->cell + i, input);
        if (n->cell[i].size != n->cell[0].size || n->cell[i].kind != n->cell[0].kind) r->bad = 1;
        if ((i + 1) % n->directions == 0) input = n->directions * n->cell[0].size;
    }
    return input;
}

static void read_stack(Reader *r, Encoder *e, int *vocabulary, int memory, int context, int decodes) {
    read_embedding(r, &e->embedding, vocabulary);
    e->size = e->embedding.size;
    e->count = read_int(r, 0, 4096);
    e->block = make(r, e->count, sizeof(Block));
    for (int i = 0; !r->bad && i < e->count; i++)
        read_block(r, e->block + i, &e->embedding.position, e->size, memory, decodes);
    e->last = read_norm(r, e->size);
    e->size = read_recurrence(r, &e->recurrence, e->size + context);
}

/* Where the caches and states of all blocks lie in those of a position and of a hypothesis. */
static void place(Decoder *d) {
    for (int i = 0; i < d->stack.count; i++) {
        Block *b = d->stack.block + i;
        if (b->kind == ATTENTION) {
            size_t *total = b->attention.over_memory ? &d->memory : &d->cache;
            b->attention.cache = *total, *total += cached_floats(&b->attention);
        } else if (b->kind == SSRU) b->state = d->state, d->state += d->stack.size;
        else if (b->kind == STATE_SPACE) {
            b->space.state = d->state, d->state += state_floats(&b->space);
        }
    }
    const Recurrence *n = &d->stack.recurrence;
    for (int i = 0; i < n->layers; i++) d->state += (size_t)n->cell[i].size * n->cell[i].states;
    if (d->attends == AFTER_STEP) d->state += d->output_size;
    if (d->attends) d->attention.cache = d->memory, d->memory += cached_floats(&d->attention);
}

static void read_decoder(Reader *r, Decoder *d, const Encoder *encoder, int *vocabulary) {
    const int memory = encoder->size; /* 0 without */
    d->bridge = read_int(r, NO_BRIDGE, memory ? SUMMARY : NO_BRIDGE);
    d->context_size = d->bridge == SUMMARY ? read_int(r, 1, MOST) : 0;
    read_stack(r, &d->stack, vocabulary, memory, d->context_size, 1);
    const Recurrence *n = &d->stack.recurrence;
    d->output_size = d->stack.size;
    if (r->bad || !n->layers) {
        if (d->bridge) r->bad = 1;
        return place(d);
    }
    if (d->stack.count || n->directions != 1) r->bad = 1;
    const int size = n->cell[0].size, states = n->layers * n->cell[0].states;
    if ((int64_t)states * size > MOST) r->bad = 1;
    const int token = d->stack.embedding.size + d->context_size;
    d->attends = read_int(r, NEVER, memory ? AFTER_STEP : NEVER);
    int context = 0;
    const int mixed = read_int(r, 0, 1);
    if (mixed) d->output_size = d->stack.embedding.size;
    if (d->attends) {
        context = read_int(r, 1, MOST);
        read_attention(r, &d->attention, size, memory, context);
        const int fed = d->attends == BEFORE_STEP ? context : d->output_size;
        d->feed = read_map(r, n->cell[0].gates * size, fed);
    }
    if (mixed) d->readout = read_map(r, d->output_size, size + context + token);
    else if (d->attends) r->bad = 1;
    if (d->bridge == SUMMARY) {
        if (d->context_size != size) r->bad = 1;
        d->summary = read_map(r, size, memory);
    }
    const Recurrence *from = &encoder->recurrence;
    if (d->bridge == HAND_OVER && (!from->layers || from->layers * from->cell[0].states != states))
        r->bad = 1;
    d->maps = d->bridge == HAND_OVER ? states : d->bridge ? 1 : 0;
    d->map = make(r, d->maps, sizeof(Linear));
    for (int i = 0; !r->bad && i < d->maps; i++) {
        if (d->bridge == FIRST_STATES) d->map[i] = read_map(r, states * size, memory);
        else if (d->bridge == SUMMARY) d->map[i] = read_map(r, states * size, size);
        else if (read_int(r, 0, 1)) d->map[i] = read_map(r, size, memory);
        else if (memory != size) r->bad = 1;
    }
    place(d);
}

static void free_attention(Attention *a) {
    free_linear(&a->joint), free_linear(&a->query), free_linear(&a->output);
}

static void free_space(StateSpace *s) {
    free_linear(&s->input), free_linear(&s->select), free_linear(&s->step), free_linear(&s->output);
}

static void free_stack(Encoder *e) {
    free_linear(&e->embedding.dense), free_linear(&e->embedding.position.join);
    for (int i = 0; e->block && i < e->count; i++) {
        Block *b = e->block + i;
        free_attention(&b->attention), free_space(&b->space), free_space(&b->backward);
        free_linear(&b->inner), free_linear(&b->gate), free_linear(&b->outer);
    }
    free(e->block);
    const Recurrence *n = &e->recurrence;
    for (int i = 0; n->cell && i < n->layers * n->directions; i++)
        free_linear(&n->cell[i].input), free_linear(&n->cell[i].back),
            free_linear(&n->cell[i].candidate);
    free(n->cell);
}

void free_model(Model *m) {
    if (!m) return;
    free_stack(&m->encoder), free_stack(&m->decoder.stack);
    Decoder *d = &m->decoder;
    free_attention(&d->attention), free_attention(&m->pooling_attention);
    free_linear(&d->feed), free_linear(&d->readout), free_linear(&d->summary);
    for (int i = 0; d->map && i < d->maps; i++) free_linear(d->map + i);
    free(d->map), free_linear(&m->output), free(m);
}

static void bound(int *most, int limit) { *most = limit < *most ? limit : *most; }

/* How many positions tables and scores by location have room for. */
static void bound_positions(Model *m) {
    const Encoder *stack[] = {&m->encoder, &m->decoder.stack};
    const Attention *other[] = {&m->pooling_attention, &m->decoder.attention};
    for (int side = 0; side < 2; side++) {
        const Position *p = &stack[side]->embedding.position;
        m->positions[side] = p->kind == TABLE ? p->limit : MOST;
    }
    for (int side = 0; side < 2; side++)
        for (int i = -1; i < stack[side]->count; i++) {
            const Attention *a = i < 0 ? other[side] : &stack[side]->block[i].attention;
            if (a->score == LOCATION) bound(&m->positions[a->over_memory ? 0 : side], a->limit);
        }
}

/* The model of a program over tensors, which stay where they are; NULL where it is none. */
/* `kept` is set of the tensors that must live as long as the model. */
Model *read_model(const double *program, int length, Tensor *tensors, int count) {
    Reader r = {program, program + length, tensors, count};
    for (int i = 0; i < count; i++) {
        const Tensor *t = tensors + i;
        if (t->rows < 1 || t->columns < 1 || !t->data || (t->int8 && !t->scale)) return NULL;
    }
    Model *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    int memory = 0, source = 0;
    m->has_encoder = read_int(&r, 0, 1), m->has_decoder = read_int(&r, 0, 1);
    if (m->has_encoder) {
        read_stack(&r, &m->encoder, &source, 0, 0, 0);
        memory = m->encoder.size;
    }
    int size = memory;
    if (m->has_decoder && !r.bad) {
        read_decoder(&r, &m->decoder, &m->encoder, &m->vocabulary);
        size = m->decoder.output_size;
        m->output = read_map(&r, m->vocabulary, size);
    } else if (!r.bad) {
        m->pooling = read_int(&r, POOL_MEAN, POOL_ATTENTION);
        if (m->pooling == POOL_ATTENTION) {
            m->pooling_query = read_floats(&r, memory);
            read_attention(&r, &m->pooling_attention, memory, memory, memory);
            if (!m->pooling_query) r.bad = 1;
        }
        m->labels = read_int(&r, 1, MOST);
        m->output = read_map(&r, m->labels, size);
    }
    if (r.bad || r.at != r.end || !(m->has_encoder || m->has_decoder)) return free_model(m), NULL;
    m->attentions = r.attentions;
    bound_positions(m);
    return m;
}

/* The sizes that other parts of a file must agree with: tokens of the source and of the output (0 where
 * there is no such side), labels, attentions, and the positions that an encoder and a decoder know. */
void model_sizes(const Model *m, int32_t *to) {
    const int source = m->has_encoder ? m->encoder.embedding.table.rows : 0;
    const int32_t sizes[] = {source, m->vocabulary, m->labels, m->attentions, m->positions[0], m->positions[1]};
    memcpy(to, sizes, sizeof sizes);
}
