/* optc_load. Everything that can be wrong with a file is found before the first state is written:
 * the header, the rule, names, shapes and types, hyperparameters, step counts, the hash of all
 * bytes, and values that cannot be converted. */
#include "runtime/core/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char load_call[] = "optc_load";
/* Values that are converted at a time: whole blocks of codes, and little enough for the buffer. */
enum { LOAD_CHUNK = 1 << 16 };

/* A state of the list and its tensors in the file. from: the Type in the file; scales: of block
 * codes in the file */
typedef struct LoadState {
    const SavedItem *to; const SafeTensor *values, *scales; int from;
} LoadState;
typedef struct CheckpointLoad {
    CheckpointSource source;
    SafeFile file;
    SavedList list;
    LoadState *state; int64_t nstate;
    bool *used;                            /* by tensor of the file: some binding has it */
    char *buffer; double *value;           /* value: for conversions */
    bool writing;                          /* states are written from now on */
} CheckpointLoad;

static optc_status load_refuse(const CheckpointLoad *x, const char *why, const char *name)
{
    return fail(OPTC_ERROR_ARGUMENT, "%s: %s does not fit the binding: %s%.200s%s", load_call,
                source_name(&x->source), why, name ? name : "", name ? "'" : "");
}

/* ---- the rule and its pieces ---- */
static optc_status compare_about(const CheckpointLoad *x, const SavedBinding *y, About k)
{
    static const char *const what[NCOMPARED] = {
        "its rule is '%.100s', and the binding's '%.100s'",
        "its wrappers are '%.100s', and the binding's '%.100s'",
        "its options are '%.200s', and the binding's '%.200s'",
        "it is of rank '%.40s', and the binding of '%.40s': load each rank's own file, with the "
        "same number of ranks",
        "its tensors are other pieces of larger ones (%.40s; here %.40s): bind the pieces that "
        "were saved",
        "its tensors have other strides (%.40s; here %.40s): bind them with the strides that were "
        "saved",
        "its tensors have another order or other groups (%.40s; here %.40s): bind them as they "
        "were saved"};
    bool failed = false;
    char why[600] = "";
    SafeBuf own;
    memset(&own, 0, sizeof own);
    about_text(&own, y, k);
    const char *text = about_in(&x->file, y->prefix, k, &failed);
    failed = failed || own.failed;
    if (!failed && !text && k >= ABOUT_STRIDES)
        *why = 0;                                          /* an older version: warn_unrecorded */
    else if (!failed && !text)
        snprintf(why, sizeof why,
                 "it has no binding with the prefix '%.100s' (no '%s' in its metadata)", y->prefix,
                 about_key(k));
    else if (!failed && strcmp(text, own.s))
        snprintf(why, sizeof why, what[k], text, own.s);
    free(own.s);
    return failed ? no_memory(load_call) : *why ? load_refuse(x, why, NULL) : OPTC_OK;
}

static optc_status check_format(const CheckpointLoad *x)
{
    const char *format = safe_meta(&x->file, "optc");
    if (!format)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s is a safetensors file, but no checkpoint of optc (its metadata has no "
                    "'optc')",
                    load_call, source_name(&x->source));
    return strcmp(format, CHECKPOINT_FORMAT)
               ? fail(OPTC_ERROR_ARGUMENT,
                      "%s: %s has format %.20s, and this version of optc (%s) reads format %s",
                      load_call, source_name(&x->source), format, OPTC_VERSION, CHECKPOINT_FORMAT)
               : OPTC_OK;
}

/* ---- tensors ---- */
static const SafeTensor *take_tensor(CheckpointLoad *x, const char *name)
{
    const SafeTensor *t = safe_find(&x->file, name);
    if (t)
        x->used[t - x->file.tensor] = true;
    return t;
}

static void shape_text(const int64_t *dim, int rank, char *buf, size_t room)
{
    size_t n = (size_t)snprintf(buf, room, "[");
    for (int k = 0; k < rank && n < room; k++)
        n += (size_t)snprintf(buf + n, room - n, "%s%lld", k ? ", " : "", (long long)dim[k]);
    if (n < room)
        snprintf(buf + n, room - n, "]");
}

static optc_status check_shape_of(const CheckpointLoad *x, const SavedItem *y, const SafeTensor *t)
{
    const int64_t *have = x->file.dim + t->dim, *want = y->dim ? y->dim : &y->count;
    int rank = y->dim ? y->rank : 1;
    char here[160], there[160], why[400];
    bool same = rank == t->rank;
    for (int k = 0; same && k < rank; k++)
        same = have[k] == want[k];
    if (same)
        return OPTC_OK;
    shape_text(have, t->rank, there, sizeof there);
    shape_text(want, rank, here, sizeof here);
    snprintf(why, sizeof why, "shape %s in the file, %s here, of '", there, here);
    return load_refuse(x, why, t->name);
}

/* The Type of a state in the file; -1: unknown. Codes are named in the metadata. */
static int type_in_file(const CheckpointLoad *x, const SavedItem *y, const SafeTensor *t,
                        bool *failed)
{
    const SavedBinding *of = &x->list.binding[y->binding];
    const Program *p = of->b->program;
    size_t n = 0;
    bool coded = !strcmp(t->type->name, "U8");
    const char *types = coded ? about_in(&x->file, of->prefix, ABOUT_TYPES, failed) : NULL;
    const char *code = types ? about_value(types, p->array[y->array].name, &n) : NULL;
    for (int i = 0; i < p->ntype; i++) {
        bool named = code && strlen(p->type[i].name) == n && !strncmp(p->type[i].name, code, n);
        if (coded ? named && type_is_coded(i) : plain_type(i) == i && saved_dtype(i) == t->type)
            return i;
    }
    return -1;
}

static bool type_is_integer(int t) { return t == (int)T_I16 || t == (int)T_I8; }

static optc_status find_state_in(CheckpointLoad *x, const SavedItem *y)
{
    const char *name = saved_name(&x->list, y);
    const SafeTensor *t = take_tensor(x, name);
    bool failed = false;
    if (!t)
        return load_refuse(x, "it lacks '", name);
    optc_status s = check_shape_of(x, y, t);
    int from = s == OPTC_OK ? type_in_file(x, y, t, &failed) : 0;
    if (s != OPTC_OK || failed)
        return failed ? no_memory(load_call) : s;
    if (from < 0 || ((type_is_integer(from) || type_is_integer(y->stored)) && from != y->stored))
        return load_refuse(
            x,
            from < 0 ? "its dtype is none of a state: '"
                     : "bits of a parameter (master=) cannot be converted to another type: '",
            name);
    LoadState *l = &x->state[x->nstate++];
    l->to = y, l->values = t, l->from = from;
    if (!type_is_coded(from))
        return OPTC_OK;
    SafeBuf scale;
    memset(&scale, 0, sizeof scale);
    safe_add(&scale, name, strlen(name));
    safe_add(&scale, "/scale", 6);
    l->scales = scale.failed ? NULL : take_tensor(x, scale.s);
    free(scale.s);
    if (scale.failed)
        return no_memory(load_call);
    int block = x->list.binding[y->binding].b->program->type[from].block;
    if (!l->scales || strcmp(l->scales->type->name, "F32") ||
        l->scales->end - l->scales->begin != (y->count + block - 1) / block * 4)
        return load_refuse(x, "it has no scales, or too few of them, for '", name);
    return OPTC_OK;
}

static bool starts_with(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* Another binding of the file may have this tensor: its prefix (P of the metadata P optc.rule) fits
 * too. */
static bool of_another(const CheckpointLoad *x, const char *prefix, const char *name)
{
    const char *rule = about_key(ABOUT_RULE);
    for (int64_t i = 0; i < x->file.nmeta; i++) {
        const char *key = x->file.meta[i].key;
        size_t all = strlen(key), end = strlen(rule), n = all < end ? 0 : all - end;
        if (all >= end && !strcmp(key + n, rule) &&
            (n != strlen(prefix) || strncmp(key, prefix, n)) && !strncmp(name, key, n))
            return true;
    }
    return false;
}

/* A file with parameters can be loaded without them. */
static bool left_out(const CheckpointLoad *x, const char *name)
{
    static const char param[] = "/param";
    size_t n = strlen(name), end = sizeof param - 1;
    return !strcmp(name, CHECKPOINT_HASH) ||
           (!x->list.params && n > end && !strcmp(name + n - end, param));
}

/* The file has no other tensors of these bindings. (It may have other bindings.) */
static optc_status check_unused(const CheckpointLoad *x)
{
    for (int i = 0; i < x->list.nbinding; i++) {
        const SavedBinding *y = &x->list.binding[i];
        bool failed = false;
        const char *text = about_in(&x->file, y->prefix, ABOUT_TENSORS, &failed), *extra = NULL;
        int64_t want = text ? strtoll(text, NULL, 10) : 0, have = 2;
        for (int64_t k = 0; k < x->nstate; k++)
            if (x->state[k].to->binding == i && x->state[k].to->array != PARAM_ARRAY)
                have += 1 + (x->state[k].scales != NULL);
        if (failed)
            return no_memory(load_call);
        for (int64_t k = 0; k < x->file.n && !extra; k++) {
            const char *name = x->file.tensor[k].name;
            if (!x->used[k] && starts_with(name, y->prefix) && !left_out(x, name) &&
                !of_another(x, y->prefix, name))
                extra = name;
        }
        if (have != want || extra)
            return load_refuse(
                x, extra ? "the binding has no '" : "it lists another number of tensors", extra);
    }
    return OPTC_OK;
}

/* ---- hyperparameters and step counts ---- */
/* A seed belongs to storage types that round stochastically: it is the only hyperparameter that may
 * be on one side alone. */
static bool may_lack(const char *name) { return !strcmp(name, "seed"); }

/* A name of the file's list that the rule has not; NULL: none. */
static const char *unknown_hyper(const Program *p, const char *names)
{
    for (const char *s = names; *s; s += strcspn(s, ","), s += *s == ',') {
        size_t n = strcspn(s, ",");
        bool known = n == 4 && !strncmp(s, "seed", 4);
        for (int k = 0; k < p->nhyper && !known; k++)
            known = strlen(p->hyper[k].name) == n && !strncmp(p->hyper[k].name, s, n);
        if (!known)
            return s;
    }
    return NULL;
}

/* Reads the file's table over the binding's current numbers in the list, by name, and checks
 * ranges. */
static optc_status read_hypers(const CheckpointLoad *x, const SavedBinding *y, const SafeTensor *t,
                               const char *names)
{
    const Program *p = y->b->program;
    const char *unknown = unknown_hyper(p, names);
    int columns = about_count(names), at = 0;
    if (unknown)
        return load_refuse(x, "the rule has no hyperparameter '", unknown);
    double *all = (double *)malloc(sizeof *all * ((size_t)columns * (size_t)y->b->ngroup + 1));
    optc_status s =
        all ? source_read(&x->source, x->file.data + t->begin, all, (size_t)(t->end - t->begin))
            : no_memory(load_call);
    for (int i = 0; i < y->b->ngroup * p->nhyper && s == OPTC_OK; i++) {
        const char *name = p->hyper[i % p->nhyper].name;
        int column = about_index(names, name);
        if (column >= 0)
            y->hyper[i] = all[i / p->nhyper * columns + column];
        s = column < 0 && !may_lack(name) ? load_refuse(x, "it lacks the hyperparameter '", name)
                                          : check_hyper(p, load_call, name, y->hyper[i], &at);
    }
    free(all);
    return s;
}

static optc_status load_hypers(CheckpointLoad *x, const SavedItem *item)
{
    const SavedBinding *y = &x->list.binding[item->binding];
    bool failed = false;
    const char *names = about_in(&x->file, y->prefix, ABOUT_HYPERS, &failed),
               *name = saved_name(&x->list, item);
    const SafeTensor *t = take_tensor(x, name);
    if (failed)
        return no_memory(load_call);
    const int64_t *dim = t ? x->file.dim + t->dim : NULL;
    if (!t || !names || t->type != item->type || t->rank != 2 || dim[1] != about_count(names))
        return load_refuse(x, "it lacks a table of hyperparameters, '", name);
    char why[160];
    snprintf(why, sizeof why, "it has %lld groups, and the binding %d", (long long)dim[0],
             y->b->ngroup);
    return dim[0] != y->b->ngroup ? load_refuse(x, why, NULL) : read_hypers(x, y, t, names);
}

static optc_status load_steps(CheckpointLoad *x, const SavedItem *item)
{
    const SavedBinding *y = &x->list.binding[item->binding];
    const char *name = saved_name(&x->list, item);
    const SafeTensor *t = take_tensor(x, name);
    if (!t || t->type != item->type || t->rank != 1)
        return load_refuse(x, "it lacks a table of step counts, '", name);
    char why[160];
    int64_t have = x->file.dim[t->dim];
    snprintf(why, sizeof why, "it has %lld tensors, and the binding %d", (long long)have - 1,
             y->b->ntensor);
    return have != y->steps_dim[0] ? load_refuse(x, why, NULL)
                                   : source_read(&x->source, x->file.data + t->begin, y->steps,
                                                 (size_t)saved_bytes(item));
}

static optc_status check_steps(const CheckpointLoad *x, const SavedBinding *y)
{
    for (int64_t i = 0; i < y->steps_dim[0]; i++)
        if (y->steps[i] < 0 || y->steps[i] > MOST_T)
            return load_refuse(x, "a step count is negative or too large", NULL);
    return OPTC_OK;
}

/* A hyperparameter that is read from memory keeps its source. */
static optc_status put_hypers(const SavedBinding *y)
{
    const Program *p = y->b->program;
    optc_status s = OPTC_OK;
    for (int i = 0; i < y->b->ngroup * p->nhyper && s == OPTC_OK; i++) {
        int group = i / p->nhyper, at = i % p->nhyper + 1;
        bool same = !memcmp(&y->hyper[i], &y->b->group[group].hyper[at], sizeof *y->hyper);
        if (!same && !hyper_device_scalar(y->b, group, at))
            s = put_hyper(y->b, group, at, y->hyper[i], load_call);
    }
    return s;
}

/* ---- states ---- */
static optc_status write_state(CheckpointLoad *x, const LoadState *l, int64_t at, const void *data,
                               size_t bytes)
{
    const optc_binding *b = x->list.binding[l->to->binding].b;
    x->writing = true;
    return bytes ? b->rule->device->write(b, l->to->at + at, data, bytes, true, load_call)
                 : OPTC_OK;
}

/* Copies a tensor of the file to offset `to` of a state, byte for byte. */
static optc_status copy_tensor(CheckpointLoad *x, const LoadState *l, const SafeTensor *t,
                               int64_t to)
{
    optc_status s = OPTC_OK;
    for (int64_t at = 0, n; at < t->end - t->begin && s == OPTC_OK; at += n) {
        n = t->end - t->begin - at < CHECKPOINT_BUFFER ? t->end - t->begin - at
                                                       : (int64_t)CHECKPOINT_BUFFER;
        s = source_read(&x->source, x->file.data + t->begin + at, x->buffer, (size_t)n);
        if (s == OPTC_OK)
            s = write_state(x, l, to + at, x->buffer, (size_t)n);
    }
    return s;
}

static optc_status check_negative(const CheckpointLoad *x, const LoadState *l, int64_t at,
                                  int64_t n)
{
    char why[200];
    for (int64_t i = 0; type_is_unsigned(l->to->stored) && i < n; i++)
        if (x->value[i] < 0) {
            snprintf(why, sizeof why,
                     "value %lld is %g, and the binding stores values that are never negative of '",
                     (long long)(at + i), x->value[i]);
            return load_refuse(x, why, l->values->name);
        }
    return OPTC_OK;
}

static const ProgArray *array_of(const CheckpointLoad *x, const LoadState *l)
{
    return &x->list.binding[l->to->binding].b->program->array[l->to->array];
}

/* The state's values must be read to know whether they can be stored. */
static bool has_limits(const CheckpointLoad *x, const LoadState *l)
{
    return array_of(x, l)->lower || (l->from != l->to->stored && type_is_unsigned(l->to->stored));
}

static optc_status check_triangle(const CheckpointLoad *x, const LoadState *l, int64_t at,
                                  int64_t n)
{
    const optc_binding *b = x->list.binding[l->to->binding].b;
    char label[96], call[300];
    if (!array_of(x, l)->lower)
        return OPTC_OK;
    snprintf(call, sizeof call, "%s: %.250s", load_call, source_name(&x->source));
    const NewValues v = {
        call, tensor_label(b, l->to->tensor, label), T_F64, sizeof *x->value, x->value, at, n};
    return check_lower(array_of(x, l),
                       b->tensor[shards_state_entry(b, l->to->tensor, l->to->array)].shape, &v);
}

/* Converts values through double, some blocks at a time. dry: only checks that they can be
 * stored. */
static optc_status convert_state(CheckpointLoad *x, const LoadState *l, bool dry)
{
    const ProgType *types = x->list.binding[l->to->binding].b->program->type;
    int64_t size = types[l->from].bytes, block = types[l->from].block,
            out = types[l->to->stored].bytes;
    int64_t out_block = types[l->to->stored].block, count = l->to->count;
    /* where the state's scales begin */
    int64_t scales = (count + out_block - 1) / out_block * out_block;
    optc_status s = OPTC_OK;
    for (int64_t at = 0, n; at < count && s == OPTC_OK; at += n) {
        n = count - at < LOAD_CHUNK ? count - at : (int64_t)LOAD_CHUNK;
        int64_t blocks = (n + block - 1) / block;
        s = source_read(&x->source, x->file.data + l->values->begin + at * size, x->buffer,
                        (size_t)(n * size));
        /* they follow the padded codes */
        if (s == OPTC_OK && l->scales)
            s = source_read(&x->source, x->file.data + l->scales->begin + at / block * 4,
                            x->buffer + blocks * block, (size_t)(blocks * 4));
        if (s != OPTC_OK)
            break;
        values_load(l->from, x->buffer, n, x->value);
        s = check_negative(x, l, at, n);
        if (s == OPTC_OK && dry)
            s = check_triangle(x, l, at, n);
        if (s != OPTC_OK || dry)
            continue;
        values_store(l->to->stored, x->buffer, n, x->value, NULL);
        s = write_state(x, l, at * out, x->buffer, (size_t)(n * out));
        blocks = (n + out_block - 1) / out_block;
        if (s == OPTC_OK && type_is_coded(l->to->stored))
            s = write_state(x, l, scales + at / out_block * 4, x->buffer + blocks * out_block,
                            (size_t)(blocks * 4));
    }
    return s;
}

static optc_status load_state(CheckpointLoad *x, const LoadState *l)
{
    if (l->from != l->to->stored)
        return convert_state(x, l, false);
    optc_status s = copy_tensor(x, l, l->values, 0);
    int64_t block = x->list.binding[l->to->binding].b->program->type[l->from].block;
    return s == OPTC_OK && l->scales
               ? copy_tensor(x, l, l->scales, (l->to->count + block - 1) / block * block)
               : s;
}

/* ---- warnings ---- */
static void warn_line(const optc_checkpoint *c, const char *text)
{
    size_t n = c->warnings ? strlen(c->warnings) : 0;
    if (c->warnings && n + 1 < c->warnings_size)
        snprintf(c->warnings + n, c->warnings_size - n, "%s%s", n ? "\n" : "", text);
}

/* One line for each state and pair of types. */
static optc_status warn_conversions(const CheckpointLoad *x, const optc_checkpoint *c)
{
    for (int i = 0; i < x->list.nbinding; i++) {
        const Program *p = x->list.binding[i].b->program;
        int64_t *count =
            (int64_t *)calloc((size_t)(p->narray * p->ntype * p->ntype), sizeof *count);
        if (!count)
            return no_memory(load_call);
        for (int64_t k = 0; k < x->nstate; k++) {
            const LoadState *l = &x->state[k];
            if (l->to->binding == i && l->from != l->to->stored)
                count[(l->to->array * p->ntype + l->from) * p->ntype + l->to->stored]++;
        }
        for (int k = 0; k < p->narray * p->ntype * p->ntype; k++) {
            char text[300];
            if (!count[k])
                continue;
            snprintf(text, sizeof text,
                     "state '%.100s' was converted from %s to %s, in %lld tensor%s: the run is not "
                     "that of the file, bit for bit",
                     p->array[k / p->ntype / p->ntype].name, p->type[k / p->ntype % p->ntype].name,
                     p->type[k % p->ntype].name, (long long)count[k], count[k] == 1 ? "" : "s");
            warn_line(c, text);
        }
        free(count);
    }
    return OPTC_OK;
}

/* Files of older versions do not record all that must be equal. */
static optc_status warn_unrecorded(const CheckpointLoad *x, const optc_checkpoint *c)
{
    for (int i = 0; i < x->list.nbinding; i++) {
        const SavedBinding *y = &x->list.binding[i];
        bool failed = false, permuted = false, ordered = y->b->ngroup > 1;
        for (int k = 0; k < y->b->ntensor; k++) {
            permuted = permuted || y->b->tensor[k].permuted;
            ordered = ordered || y->steps[k + 1] != y->steps[1];
        }
        if (permuted && !about_in(&x->file, y->prefix, ABOUT_STRIDES, &failed) && !failed)
            warn_line(c, "the file does not record strides (an older version wrote it): tensors "
                         "that are not row-major "
                         "must have the strides that were saved");
        if (ordered && !about_in(&x->file, y->prefix, ABOUT_ORDER, &failed) && !failed)
            warn_line(c, "the file does not record the order of tensors (an older version wrote "
                         "it): bind them in the "
                         "order and the groups that were saved");
        if (failed)
            return no_memory(load_call);
    }
    return OPTC_OK;
}

/* ---- loading ---- */
static optc_status match_file(CheckpointLoad *x)
{
    /* after names and shapes, which have clearer messages */
    static const About last[3] = {ABOUT_ORDER, ABOUT_CUT, ABOUT_STRIDES};
    optc_status s = check_format(x);
    for (int i = 0; i < x->list.nbinding * ABOUT_CUT && s == OPTC_OK; i++)
        s = compare_about(x, &x->list.binding[i / ABOUT_CUT], (About)(i % ABOUT_CUT));
    for (int64_t i = 0; i < x->list.n && s == OPTC_OK; i++) {
        const SavedItem *y = &x->list.item[i];
        if (y->array < 0)
            s = y->rank == 1 ? load_steps(x, y) : load_hypers(x, y);
        else if (!y->scales)
            s = find_state_in(x, y);
    }
    if (s == OPTC_OK)
        s = check_unused(x);
    for (int i = 0; i < x->list.nbinding * 3 && s == OPTC_OK; i++)
        s = compare_about(x, &x->list.binding[i % x->list.nbinding], last[i / x->list.nbinding]);
    for (int i = 0; i < x->list.nbinding && s == OPTC_OK; i++)
        s = check_steps(x, &x->list.binding[i]);
    return s;
}

static optc_status check_data_of(CheckpointLoad *x, bool *hashed)
{
    optc_status s = source_verify(&x->source, &x->file, hashed);
    for (int64_t i = 0; i < x->nstate && s == OPTC_OK; i++)
        if (has_limits(x, &x->state[i]))
            s = convert_state(x, &x->state[i], true);
    return s;
}

static optc_status put_all(CheckpointLoad *x)
{
    optc_status s = OPTC_OK;
    for (int64_t i = 0; i < x->nstate && s == OPTC_OK; i++)
        s = load_state(x, &x->state[i]);
    for (int i = 0; i < x->list.nbinding && s == OPTC_OK; i++) {
        s = put_hypers(&x->list.binding[i]);
        if (s == OPTC_OK)
            s = put_steps(x->list.binding[i].b, x->list.binding[i].steps);
    }
    if (s == OPTC_OK || !x->writing)
        return s;
    char why[MOST_MESSAGE];
    snprintf(why, sizeof why, "%.1900s; some states have their new values: load again",
             optc_message());
    return fail(s, "%s", why);
}

static optc_status load_opened(CheckpointLoad *x, const optc_checkpoint *from)
{
    bool hashed = true;
    optc_status s = source_header(&x->source, &x->file);
    if (s != OPTC_OK)
        return s;
    x->used = (bool *)calloc((size_t)x->file.n + 1, sizeof *x->used);
    x->state = (LoadState *)calloc((size_t)x->list.n + 1, sizeof *x->state);
    x->buffer = (char *)malloc(CHECKPOINT_BUFFER);
    x->value = (double *)malloc(LOAD_CHUNK * sizeof *x->value);
    if (!x->used || !x->state || !x->buffer || !x->value)
        return no_memory(load_call);
    s = match_file(x);
    if (s == OPTC_OK)
        s = check_data_of(x, &hashed);
    if (s == OPTC_OK)
        s = warn_conversions(x, from);
    if (s == OPTC_OK)
        s = warn_unrecorded(x, from);
    if (s == OPTC_OK && !hashed)
        warn_line(from, "the file has no hash (optc.hash): its values were not checked");
    return s == OPTC_OK ? put_all(x) : s;
}

CORE optc_status checkpoint_load(optc_binding *const *b, int n, const optc_checkpoint *from)
{
    CheckpointLoad x;
    memset(&x, 0, sizeof x);
    x.source.fd = -1;
    if (from->warnings && from->warnings_size)
        *from->warnings = 0;
    optc_status s = saved_make(&x.list, load_call, b, n, from, false);
    if (s == OPTC_OK)
        s = source_open(&x.source, load_call, from);
    if (s == OPTC_OK)
        s = load_opened(&x, from);
    source_close(&x.source);
    safe_free(&x.file);
    saved_free(&x.list);
    free(x.state);
    free(x.used);
    free(x.buffer);
    free(x.value);
    return s;
}
