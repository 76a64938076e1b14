/* optc checkpoint: prints what a file of optc_save, or any safetensors file, contains. */
#include "tools/page/json.h"

#include "optc.h"

#include <stdlib.h>
#include <string.h>

static int by_position(const void *a, const void *b)
{
    const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : strcmp(x->name, y->name);
}

/* The tensors in the order of the file; NULL: out of memory. */
static const SafeTensor **in_order(const SafeFile *f)
{
    const SafeTensor **v = malloc(sizeof *v * (size_t)(f->n + 1));
    for (int64_t i = 0; v && i < f->n; i++)
        v[i] = &f->tensor[i];
    if (v && f->n)
        qsort(v, (size_t)f->n, sizeof *v, by_position);
    return v;
}

static void shape_text(Buf *b, const SafeFile *f, const SafeTensor *t)
{
    for (int k = 0; k < t->rank; k++)
        buf_printf(b, "%s%lld", k ? " x " : "", (long long)f->dim[t->dim + k]);
    if (!t->rank)
        buf_puts(b, "1 number");
}

/* The first n bytes of a text of the file, on one line: a newline could forge other lines of the
 * output. */
static void put_name(const char *s, size_t n)
{
    Buf b = {0};
    buf_printf(&b, "%.*s", (int)n, s);
    cli_put_clean(stdout, cli_text(&b), false);
    buf_free(&b);
}

/* Hyperparameters of a checkpoint, one line per group: the table and the names of its columns have
 * the same prefix. */
static optc_status print_hypers(const CheckpointSource *s, const SafeFile *f, const SafeTensor *t)
{
    static const char end[] = "optc.hyper";
    size_t n = strlen(t->name), k = strlen(end);
    if (n < k || strcmp(t->name + n - k, end) || strcmp(t->type->name, "F64") || t->rank != 2)
        return OPTC_OK;
    Buf key = {0};
    buf_printf(&key, "%ss", t->name);
    const char *names = safe_meta(f, cli_text(&key));
    int64_t groups = f->dim[t->dim], columns = f->dim[t->dim + 1];
    optc_status status = OPTC_OK;
    for (int64_t g = 0;
         names && columns > 0 && columns == about_count(names) && g < groups && status == OPTC_OK;
         g++) {
        const char *name = names;
        put_name(t->name, n - k);
        printf("group %lld:", (long long)g);
        for (int64_t c = 0; c < columns && status == OPTC_OK; c++) {
            double x;
            status = source_read(s, f->data + t->begin + (g * columns + c) * 8, &x, 8);
            if (status == OPTC_OK) {
                putchar(' ');
                put_name(name, strcspn(name, ","));
                printf("=%.9g", x);
            }
            name += strcspn(name, ",") + 1;
        }
        puts("");
    }
    buf_free(&key);
    return status;
}

static optc_status show_text(const CheckpointSource *s, const SafeFile *f, const char *hash)
{
    char size[32];
    optc_status status = OPTC_OK;
    const SafeTensor **v = in_order(f);
    if (!v)
        return no_memory("checkpoint");
    cli_print("%s: %s, %lld tensors, %s\n", source_name(s),
              safe_meta(f, "optc") ? "a checkpoint of optc"
                                   : "a safetensors file, no checkpoint of optc",
              (long long)f->n, cli_bytes(size, (double)s->size));
    printf("hash: %s\n", hash);
    for (int64_t i = 0; i < f->nmeta; i++) {
        put_name(f->meta[i].key, strlen(f->meta[i].key));
        printf(": ");
        put_name(f->meta[i].text, strlen(f->meta[i].text));
        puts("");
    }
    for (int64_t i = 0; i < f->n && status == OPTC_OK; i++)
        status = print_hypers(s, f, v[i]);
    cli_heading("\n  dtype         bytes  shape                 name");
    for (int64_t i = 0; i < f->n; i++) {
        Buf shape = {0};
        shape_text(&shape, f, v[i]);
        printf("  %-8s %10lld  ", v[i]->type->name, (long long)(v[i]->end - v[i]->begin));
        cli_cell(cli_text(&shape), 20);
        printf("  ");
        put_name(v[i]->name, strlen(v[i]->name));
        puts("");
        buf_free(&shape);
    }
    free(v);
    return status;
}

static optc_status show_json(const CheckpointSource *s, const SafeFile *f, const char *hash)
{
    Buf b = {0};
    JsonText t = {.b = &b};
    const SafeTensor **v = in_order(f);
    if (!v)
        return no_memory("checkpoint");
    json_object(&t, NULL, true);
    json_string(&t, "path", source_name(s));
    json_int(&t, "bytes", s->size);
    json_string(&t, "hash", hash);
    json_object(&t, "metadata", true);
    for (int64_t i = 0; i < f->nmeta; i++)
        json_string(&t, f->meta[i].key, f->meta[i].text);
    json_end(&t);
    json_list(&t, "tensors", true);
    for (int64_t i = 0; i < f->n; i++) {
        json_object(&t, NULL, false);
        json_string(&t, "name", v[i]->name);
        json_string(&t, "dtype", v[i]->type->name);
        json_list(&t, "shape", false);
        for (int k = 0; k < v[i]->rank; k++)
            json_int(&t, NULL, f->dim[v[i]->dim + k]);
        json_end(&t);
        json_int(&t, "at", f->data + v[i]->begin);
        json_int(&t, "bytes", v[i]->end - v[i]->begin);
        json_end(&t);
    }
    json_end(&t);
    json_end(&t);
    free(v);
    json_print(&t);
    return OPTC_OK;
}

static int show(const char *path, bool json)
{
    optc_checkpoint from = {.path = path};
    CheckpointSource s = {.fd = -1};
    SafeFile f = {0};
    bool has = false;
    optc_status status = source_open(&s, "checkpoint", &from), hashed = OPTC_OK;
    if (status == OPTC_OK)
        status = source_header(&s, &f);
    if (status == OPTC_OK)
        hashed = source_verify(&s, &f, &has);
    /* the contents are printed nevertheless */
    bool damaged = hashed == OPTC_ERROR_ARGUMENT;
    char why[MOST_MESSAGE];
    snprintf(why, sizeof why, "%s", optc_message());
    if (hashed != OPTC_OK && !damaged)
        status = hashed;
    if (status == OPTC_OK)
        status = (json ? show_json : show_text)(&s, &f,
                                                damaged ? "does not fit"
                                                : has   ? "fits"
                                                        : "none");
    source_close(&s);
    safe_free(&f);
    return status != OPTC_OK ? cli_fail("%s", optc_message())
           : damaged         ? cli_fail("%s", why)
                             : CLI_OK;
}

int cmd_checkpoint(const Command *self, int argc, char **argv)
{
    bool json = false;
    static const char *const actions[] = {"show", NULL};
    const Opt opts[] = {{"json", 0, OPT_FLAG, &json, NULL, "print one JSON object"},
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (!n)
        return cli_misuse(self, "no action is given: show");
    if (strcmp(argv[0], "show"))
        return cli_unknown(self, "action", argv[0], actions);
    return n != 2 ? cli_misuse(self, "show needs one file") : show(argv[1], json);
}
