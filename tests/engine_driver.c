/* A program for processors without Python: decodes the sources of a file with the model in it.
 *
 *     engine_driver FILE   the instruction sets of the processor and the one that runs; then of each
 *                          output: source, log p, ids
 *
 * tests/test_engine_elsewhere.py writes the file. Every part of it begins at a multiple of 8 bytes. */

#include "engine.c"
#include "probe.c"
#include <stdio.h>

static char *at;

static void *next_part(size_t bytes) {
    char *part = at;
    at += (bytes + 7) / 8 * 8;
    return part;
}

static char *read_file(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return NULL;
    const long size = ftell(file);
    char *bytes = malloc(size);
    rewind(file);
    return bytes && fread(bytes, 1, size, file) == (size_t)size ? bytes : NULL;
}

int main(int count, char **arguments) {
    if (count != 2 || !(at = read_file(arguments[1]))) return 2;
    enum { NUMBERS, TENSORS, SOURCES, START, END, WIDTH_OF_BEAM, LIMIT, FIELDS };
    const int32_t *is = next_part(FIELDS * sizeof(int32_t));
    const double *program = next_part(is[NUMBERS] * sizeof(double));
    Tensor *tensors = calloc(is[TENSORS], sizeof(Tensor));
    for (int i = 0; i < is[TENSORS]; i++) {
        const int32_t *head = next_part(3 * sizeof(int32_t));
        Tensor *t = tensors + i;
        t->int8 = head[0], t->rows = head[1], t->columns = head[2];
        t->data = next_part((size_t)t->rows * t->columns * (t->int8 ? 1 : 4));
        t->scale = t->int8 ? next_part(t->rows * sizeof(float)) : NULL;
    }
    Model *model = read_model(program, is[NUMBERS], tensors, is[TENSORS]);
    const int best = is[WIDTH_OF_BEAM];
    const Settings settings = {.width = best, .start = is[START], .end = is[END], .best = best,
                               .room = 64, .length_penalty = 0.6f, .length_offset = 5, .temperature = 1,
                               .top_p = 1, .repetition_penalty = 1};
    Search *search = model ? new_search(model, &settings) : NULL;
    if (!search) return 3;
    for (int i = 0; i < is[SOURCES]; i++) {
        const int32_t *length = next_part(sizeof(int32_t)), *ids = next_part(*length * sizeof(int32_t));
        if (add_source(search, i, ids, *length, NULL, 0, is[LIMIT], NULL, 0) <= 0) return 4;
    }
    printf("%s\n%s\n", instruction_sets(), instruction_set());
    for (int left = 1; left;) {
        if ((left = advance(search, 1 << 20)) < 0) return 5;
        const int64_t size = results(search, NULL, 0);
        int32_t *taken = malloc((size + 1) * sizeof(int32_t)), *r = taken;
        results(search, taken, size);
        while (r < taken + size) {
            const int32_t source = r[0], outputs = r[1];
            r += 2;
            for (int o = 0; o < outputs; o++, r += 4 + r[0]) {
                printf("%d %.9g", source, float_of(r[2]));
                for (int t = 0; t < r[0]; t++) printf(" %d", r[4 + t]);
                printf("\n");
            }
        }
        free(taken);
    }
    free_search(search), free_model(model), free(tensors);
    return 0;
}
