/* Programs of the engine, changed at random: each is refused, or read and searched with.
 *
 *     fuzz_engine PROGRAMS FIRST SECONDS
 *
 * `fuzz.py` compiles it with sanitizers, which end it with a report; the number of the input, on which
 * alone the input depends, is printed then. At the end it prints how many inputs were tried and read. */

#include "engine.c"
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SLOW = 20, CHANGED = 256 }; /* seconds of 256 inputs; numbers that may be added to a program */

typedef struct {
    int32_t length, tensors, spans;
    double *number;
    Tensor *tensor;
    int32_t *span; /* parts of the model: kind, where it begins and ends among the numbers */
} Program;

static uint64_t input, counter;

static void say_input(void) { fprintf(stderr, "input %llu\n", (unsigned long long)input); }

static void end_with(int signal) {
    if (signal == SIGALRM) fprintf(stderr, "ERROR: inputs of more than %d seconds\n", SLOW);
    say_input();
    _exit(1);
}

static int below(int n) { return mixed_bits(counter++) % (uint64_t)n; }
static int once_in(int n) { return !below(n); }

/* ------------------------------------------------------------------------------ what is read first */

static void *filled(FILE *file, size_t size) {
    void *made = malloc(size);
    if (!made || fread(made, 1, size, file) != size) exit(2);
    return made;
}

static int32_t next_int(FILE *file) {
    int32_t value;
    if (fread(&value, sizeof value, 1, file) != 1) exit(2);
    return value;
}

static size_t size_of(const Tensor *t) {
    return (size_t)t->rows * t->columns * (t->int8 ? 1 : sizeof(float));
}

static Program *read_programs(const char *path, int *count) {
    FILE *file = fopen(path, "rb");
    if (!file) exit(2);
    *count = next_int(file);
    Program *programs = calloc(*count, sizeof *programs);
    for (Program *p = programs; p < programs + *count; p++) {
        p->length = next_int(file), p->number = filled(file, p->length * sizeof(double));
        p->spans = next_int(file), p->span = filled(file, p->spans * 3 * sizeof(int32_t));
        p->tensors = next_int(file), p->tensor = calloc(p->tensors, sizeof(Tensor));
        for (Tensor *t = p->tensor; t < p->tensor + p->tensors; t++) {
            t->int8 = next_int(file), t->rows = next_int(file), t->columns = next_int(file);
            t->data = filled(file, size_of(t));
            if (t->int8) t->scale = filled(file, t->rows * sizeof(float));
        }
    }
    fclose(file);
    return programs;
}

/* ----------------------------------------------------------------------------------------- changes */

static double wild(double number) {
    static const double some[] = {-1, -2, 0.5, 1e300, -1e300, 1e-300, NAN, INFINITY, 2147483647, 2147483648.0,
                                  -2147483648.0, 4294967296.0, 16777216, 16777217, 65536, 1024, 3.4e38};
    switch (below(6)) {
    case 0: return some[below(sizeof some / sizeof *some)];
    case 1: return number + 1;
    case 2: return number - 1;
    case 3: return number * 2;
    default: return below(12);
    }
}

/* A part of a model in the place of another, mostly of the same kind. */
static int replace_part(const Program *p, double *number, int length) {
    const int32_t *to = p->span + 3 * below(p->spans), *from = p->span + 3 * below(p->spans);
    for (int i = 0; i < 20 && from[0] != to[0]; i++) from = p->span + 3 * below(p->spans);
    const int size = from[2] - from[1], grown = length + size - (to[2] - to[1]);
    if (grown < 1 || grown > p->length + CHANGED) return length;
    memmove(number + to[1] + size, number + to[2], (length - to[2]) * sizeof *number);
    memcpy(number + to[1], p->number + from[1], size * sizeof *number);
    return grown;
}

static int change_numbers(double *number, int length) {
    const int at = below(length), other = below(length);
    const double own = number[at];
    switch (below(8)) {
    case 0: return at; /* cut */
    case 1: number[at] = number[other], number[other] = own; return length;
    case 2: /* put in */
        memmove(number + at + 1, number + at, (length - at) * sizeof *number);
        number[at] = wild(own);
        return length + 1;
    case 3: /* take out */
        memmove(number + at, number + at + 1, (length - at - 1) * sizeof *number);
        return length - 1;
    default: number[at] = wild(own); return length;
    }
}

static float wild_float(void) {
    static const float some[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, 0, -1, 1e9f, 1e-30f};
    return some[below(sizeof some / sizeof *some)];
}

/* A tensor of another size, kind or content, in memory of exactly its size. */
static void change_tensor(Tensor *t, void **made) {
    const Tensor old = *t;
    const size_t had = size_of(t);
    if (once_in(2)) t->int8 = !t->int8;
    if (once_in(2)) t->rows += below(3) - 1, t->columns += below(3) - 1;
    if (once_in(8)) t->rows = old.columns, t->columns = old.rows;
    if (once_in(16)) t->rows = 1, t->columns = 65535 + below(3);
    if (t->rows < 1 || t->columns < 1) { *t = old; return; }
    const size_t size = size_of(t), units = size / (t->int8 ? 1 : sizeof(float));
    char *data = made[0] = calloc(size ? size : 1, 1);
    float *scale = made[1] = calloc(t->rows, sizeof(float));
    for (size_t i = 0; i < size && t->int8 == old.int8; i++) data[i] = ((const char *)old.data)[i % had];
    for (int n = below(5); n > 0; n--) {
        if (t->int8) data[below(units)] = below(256), scale[below(t->rows)] = wild_float();
        else ((float *)data)[below(units)] = wild_float();
    }
    t->data = data, t->scale = t->int8 ? scale : NULL;
    if (once_in(16)) t->rows = once_in(2) ? 0 : -t->rows;
    else if (once_in(16)) t->data = NULL;
    else if (once_in(16)) t->scale = NULL;
}

/* ---------------------------------------------------------------------------------- a short search */

static int32_t *some_ids(int count, int size) {
    int32_t *ids = malloc(count * sizeof *ids); /* exactly, so that what reads further is seen */
    for (int i = 0; i < count; i++) ids[i] = once_in(400) ? below(2) ? -1 : size : below(size > 0 ? size : 1);
    return ids;
}

static Settings some_settings(int vocabulary, const int32_t *never, const uint8_t *after) {
    Settings is = {.sampling = below(2), .width = 1 + below(4), .start = 2, .end = 3, .best = 1 + below(3)};
    is.room = below(12), is.reach = once_in(3) ? below(9) : 0, is.ruled = below(2);
    is.shortest = once_in(3) ? below(5) : 0, is.no_repeat = once_in(3) ? below(4) : 0;
    is.top_k = once_in(3) ? below(9) : 0, is.length_penalty = once_in(3), is.temperature = 1;
    is.top_p = once_in(3) ? 0.5f : 1, is.min_p = once_in(3) ? 0.2f : 0, is.seed = counter;
    is.repetition_penalty = once_in(3) ? 1.5f : 1;
    if (once_in(4)) is.never = never, is.nevers = 2;
    if (once_in(3)) is.after = after;
    if (once_in(2)) is.pieces = after;
    if (once_in(12)) {
        int32_t *whole[] = {&is.width, &is.start, &is.end, &is.best, &is.room, &is.reach, &is.no_repeat,
                            &is.top_k, &is.shortest};
        float *real[] = {&is.length_penalty, &is.temperature, &is.top_p, &is.min_p, &is.repetition_penalty};
        const double value = wild(vocabulary);
        if (once_in(3)) *real[below(5)] = wild_float();
        else if (fabs(value) < 2147483648.0) *whole[below(9)] = (int32_t)value;
    }
    return is;
}

static void take_all(Search *q, int64_t function(Search *, int32_t *, int64_t)) {
    const int64_t count = function(q, NULL, 0);
    int32_t *taken = malloc(count * sizeof *taken);
    function(q, taken, count);
    free(taken);
}

static int64_t look(Search *q, int32_t *to, int64_t room) { return hypotheses(q, to, room); }

static int some_length(void) { return once_in(32) ? 60 + below(20) : once_in(256) ? 300 : below(9); }

static void add_some(Search *q, int number, int reads, int vocabulary) {
    const int count = some_length(), given = once_in(3) ? below(6) : 0, allowed = once_in(3) ? below(9) : 0;
    int32_t *ids = some_ids(count, reads), *prefix = some_ids(given, vocabulary);
    int32_t *some = some_ids(allowed, vocabulary);
    for (int i = 0; i < allowed && i < 4; i++) some[i] = i; /* with its end */
    add_source(q, number, ids, count, prefix, given, 1 + below(8), some, allowed);
    free(ids), free(prefix), free(some);
}

/* Terms for the source that was added last, mostly such as can be read, in memory of their size. */
static void require_some(Search *q, int vocabulary) {
    enum { SPELLINGS = 4, LONGEST_TERM = 5 };
    int32_t numbers[SPELLINGS * (IDS + LONGEST_TERM)], count = 0;
    for (int n = below(SPELLINGS + 1), term = 0; n > 0; n--, term += below(2)) {
        const int length = 1 + below(LONGEST_TERM);
        int32_t *ids = some_ids(length, vocabulary), head[] = {term, below(2), length};
        memcpy(numbers + count, head, sizeof head), memcpy(numbers + count + IDS, ids, length * sizeof *ids);
        count += IDS + length, free(ids);
    }
    if (count && once_in(8)) numbers[below(count)] = below(2) ? below(9) - 2 : INT32_MAX - below(4);
    if (count && once_in(8)) count -= below(count);
    int32_t *terms = malloc((count ? count : 1) * sizeof *terms);
    memcpy(terms, numbers, count * sizeof *terms);
    require(q, terms, count);
    free(terms);
}

static void use(const Model *m) {
    const int vocabulary = m->vocabulary, reads = m->has_encoder ? m->encoder.embedding.table.rows : vocabulary;
    int32_t *never = some_ids(2, vocabulary);
    uint8_t *after = malloc(8 * (size_t)vocabulary + 1);
    for (int i = 0; i < 8 * vocabulary; i++) after[i] = below(once_in(64) ? 256 : 9);
    const Settings settings = some_settings(vocabulary, never, after);
    Search *q = new_search(m, &settings);
    float numbers[3][40];
    Tap taps[3];
    for (int i = 0; i < 3; i++) taps[i] = (Tap){below(6), below(STAGES), numbers[i], below(41), 0};
    if (q && once_in(2)) observe(q, taps, 3);
    const int sources = below(4);
    for (int n = 0; q && n < sources; n++) {
        add_some(q, n, reads, vocabulary);
        int32_t *pairs = some_ids(4, vocabulary);
        if (once_in(3)) forbid(q, below(4), pairs, 2);
        if (once_in(2)) require_some(q, vocabulary);
        free(pairs);
    }
    for (int i = 0; q && i < 12 && advance(q, 1 + below(3)) > 0; i++) {
        if (once_in(3)) take_all(q, results);
        if (once_in(3)) take_all(q, look);
    }
    if (q && once_in(4)) clear(q);
    if (q && once_in(3)) {
        const int count = some_length(), length = some_length();
        int32_t *ids = some_ids(count, reads), *target = some_ids(length, vocabulary);
        float *scores = malloc((length > m->labels ? length : m->labels) * sizeof *scores);
        force(q, ids, count, target, length, scores);
        classify(q, ids, count, scores, once_in(9) ? below(40) : m->labels);
        free(ids), free(target), free(scores);
    }
    free_search(q), free(never), free(after);
}

static int try_input(const Program *programs, int count) {
    counter = mixed_bits(input);
    const Program *p = programs + below(count);
    double *changed = malloc((p->length + CHANGED + 1) * sizeof(double));
    Tensor *tensor = malloc((p->tensors ? p->tensors : 1) * sizeof(Tensor));
    memcpy(changed, p->number, p->length * sizeof(double));
    memcpy(tensor, p->tensor, p->tensors * sizeof(Tensor));
    int length = p->length;
    void *made[8] = {NULL};
    if (once_in(3)) length = replace_part(p, changed, length);
    for (int n = once_in(2) ? 0 : 1 + below(3); n > 0 && length > 1 && length < p->length + CHANGED; n--)
        length = change_numbers(changed, length);
    for (int n = once_in(2) ? 0 : 1 + below(3); n > 0 && p->tensors; n--) {
        const int at = below(p->tensors), other = below(p->tensors);
        const Tensor own = tensor[at];
        if (once_in(3)) tensor[at] = tensor[other], tensor[other] = own;
        else if (own.data == p->tensor[at].data) change_tensor(tensor + at, made + 2 * n);
    }
    double *number = malloc(length * sizeof(double)); /* exactly */
    memcpy(number, changed, length * sizeof(double));
    Model *m = read_model(number, length, tensor, p->tensors);
    free(number), free(changed);
    if (m) use(m);
    const int read = m != NULL;
    free_model(m), free(tensor);
    for (int i = 0; i < 8; i++) free(made[i]);
    return read;
}

int main(int words, char **word) {
    if (words != 4) return 2;
    int count;
    Program *programs = read_programs(word[1], &count);
    const uint64_t first = strtoull(word[2], NULL, 10);
    const time_t until = time(NULL) + atoi(word[3]);
    __sanitizer_set_death_callback(say_input);
    signal(SIGALRM, end_with), signal(SIGABRT, end_with);
    unsigned long long read = 0;
    for (input = first; input % 256 || (alarm(SLOW), time(NULL) < until); input++)
        read += try_input(programs, count);
    alarm(0);
    printf("%llu %llu\n", (unsigned long long)(input - first), read);
    for (Program *p = programs; p < programs + count; p++) {
        for (Tensor *t = p->tensor; t < p->tensor + p->tensors; t++) free((void *)t->data), free((void *)t->scale);
        free(p->number), free(p->tensor), free(p->span);
    }
    free(programs);
    return 0;
}
