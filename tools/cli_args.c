/* Command-line options from a table: a row defines an option's parsing, its help line and its
 * suggestion after a mistyped name. */
#include "tools/tools.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *prefix, const char *fmt, va_list ap)
{
    Buf b = {0};
    buf_vprintf(&b, fmt, ap);
    fflush(stdout);                  /* keeps the order of stdout and stderr on a terminal */
    fprintf(stderr, "optc: %s", prefix);
    cli_put_clean(stderr, buf_text(&b) ? buf_text(&b) : "out of memory", true);
    fputc('\n', stderr);
    buf_free(&b);
}

const char *cli_text(const Buf *b)
{
    const char *text = buf_text(b);
    if (text)
        return text;
    cli_error("out of memory");
    exit(CLI_FAILED);
}

void cli_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void cli_warning(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("warning: ", fmt, ap);
    va_end(ap);
}

int cli_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

int cli_misuse(const Command *self, const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    cli_error("%s: %s\nsee 'optc help %s'", self->name, cli_text(&b), self->name);
    buf_free(&b);
    return CLI_USAGE;
}

void cli_near(const char *what, const char *got, const char *const *names, Buf *b)
{
    Near near = {.want = got};
    Arena a = {0};
    for (; *names; names++)
        near_try(&near, *names);
    buf_printf(b, "unknown %s '%s'%s", what, got, near_text(&near, &a));
    arena_free(&a);
}

int cli_unknown(const Command *self, const char *what, const char *got, const char *const *names)
{
    Buf b = {0};
    cli_near(what, got, names, &b);
    buf_puts(&b, " (known:");
    for (; *names; names++)
        buf_printf(&b, " %s", *names);
    int rc = cli_misuse(self, "%s)", cli_text(&b));
    buf_free(&b);
    return rc;
}

int cli_one_spec(const Command *self, int n)
{
    return cli_misuse(self, n ? "several specs are given: it takes one"
                              : "no spec is given: name a rule or a file");
}

/* ---- values ---- */
bool cli_parse_size(const char *s, int64_t *out)
{
    static const char suffix[] = "KMGT";
    bool power = !strncmp(s, "2^", 2);
    char *end;
    s += power ? 2 : 0;
    double x = strtod(s, &end);
    const char *at = *end && !power ? strchr(suffix, *end & ~0x20) : NULL;     /* either case */
    if (end == s || *s == '-')
        return false;
    x = power ? exp2(x) : x;
    if (at) {
        x = ldexp(x, 10 * (int)(at - suffix + 1));
        end++;
    }
    if (*end || !(x >= 1 && x <= 0x1p46) || x != floor(x))
        return false;
    *out = (int64_t)x;
    return true;
}

static bool parse_count(const char *s, int *out)
{
    char *end;
    errno = 0;
    long x = strtol(s, &end, 10);
    if (end == s || *end || errno || x < 1 || x > INT_MAX)
        return false;
    *out = (int)x;
    return true;
}

static bool parse_real(const char *s, double *out)
{
    char *end;
    *out = strtod(s, &end);
    return end != s && !*end && isfinite(*out) && *out > 0;
}

static bool parse_dims(const char *s, DimsList *list)
{
    if (list->n == MAX_SHAPES)
        return false;
    Dims d = {0};
    double total = 1;
    char part[32];
    for (bool more = true; more;) {
        size_t n = strcspn(s, "xX");
        if (n >= sizeof part || d.rank == MAX_RANK)
            return false;
        memcpy(part, s, n);
        part[n] = 0;
        if (!cli_parse_size(part, &d.dim[d.rank]))
            return false;
        total *= (double)d.dim[d.rank++];
        more = s[n] != 0;
        s += n + more;
    }
    if (total > 0x1p46)
        return false;
    list->v[list->n++] = d;
    return true;
}

static int take_product(const Command *self, const Opt *o, const char *text)
{
    Buf b = {0};
    for (int i = 0; i < NPRODUCT; i++) {
        buf_printf(&b, "%s%s", i ? ", " : "", product_info[i].name);
        if (!strcmp(text, product_info[i].name)) {
            buf_free(&b);
            *(int *)o->to = i + 1;
            return CLI_GO;
        }
    }
    int rc = cli_misuse(self, "--%s '%s' is not a type for products (known: %s)", o->name, text,
                        cli_text(&b));
    buf_free(&b);
    return rc;
}

static int take_value(const Command *self, const Opt *o, const char *text)
{
    static const char *const want[] = {
        [OPT_COUNT] = "a whole number from 1",
        [OPT_SIZE] = "a size such as 65536, 64K, 64M or 2^26",
        [OPT_REAL] = "a number above 0",
        [OPT_SHAPES] = "a shape such as 4096x4096, at most 8 dimensions and 256 shapes"};
    bool ok = true;
    switch (o->kind) {
    case OPT_FLAG: break;
    case OPT_TEXT: *(const char **)o->to = text; break;
    case OPT_COUNT: ok = parse_count(text, o->to); break;
    case OPT_SIZE: ok = cli_parse_size(text, o->to); break;
    case OPT_REAL: ok = parse_real(text, o->to); break;
    case OPT_SHAPES: ok = parse_dims(text, o->to); break;
    case OPT_TYPE: {
        int t = type_by_name(text);
        if (t >= 0) {
            *(int *)o->to = t;
            break;
        }
        Buf b = {0};
        for (int i = 0; i < NTYPES; i++)
            buf_printf(&b, "%s%s", i ? ", " : "", type_info[i].name);
        int rc = cli_misuse(self, "--%s '%s' is not a storage type (known: %s)", o->name, text,
                            cli_text(&b));
        buf_free(&b);
        return rc;
    }
    case OPT_PRODUCT: return take_product(self, o, text);
    }
    return ok ? CLI_GO : cli_misuse(self, "--%s '%s' must be %s", o->name, text, want[o->kind]);
}

/* ---- the page of a command ---- */
static void help_page(const Command *self, const Opt *opts)
{
    printf("usage: optc %s%s%s%s\n\n%s\n", self->name, *self->args ? " " : "", self->args,
           opts->name ? " [OPTIONS]" : "", self->about);
    if (opts->name)
        cli_heading("\noptions");
    for (const Opt *o = opts; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %c%c ", o->letter ? '-' : ' ', o->letter ? o->letter : ' ');
        cli_cell(left, 19);
        putchar(' ');
        cli_wrapped(o->help, 25);
    }
    cli_heading("\nexamples");
    for (const char *s = self->examples; *s;) {
        size_t n = strcspn(s, "\n");
        printf("  %.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
}

void (*cli_page)(const Command *self, const Opt *opts) = help_page;

static int unknown_option(const Command *self, const Opt *opts, const char *got)
{
    Near near = {.want = got};
    Arena a = {0};
    near_try(&near, "--help");
    for (const Opt *o = opts; o->name; o++)
        near_try(&near, arena_printf(&a, "--%s", o->name));
    int rc = cli_misuse(self, "unknown option '%s'%s", got, near_text(&near, &a));
    arena_free(&a);
    return rc;
}

/* The row that `arg` names, and the text after '=' or a letter, if any. */
static const Opt *find_opt(const Opt *opts, const char *arg, const char **value)
{
    *value = NULL;
    for (const Opt *o = opts; o->name; o++) {
        size_t n = strlen(o->name);
        if (arg[1] == '-' && !strncmp(arg + 2, o->name, n) &&
            (arg[2 + n] == 0 || arg[2 + n] == '=')) {
            *value = arg[2 + n] ? arg + 3 + n : NULL;
            return o;
        }
        if (o->letter && arg[1] == o->letter && (o->kind != OPT_FLAG || !arg[2])) {
            *value = arg[2] ? arg + 2 : NULL;
            return o;
        }
    }
    return NULL;
}

int cli_parse(const Command *self, const Opt *opts, int argc, char **argv, int *n)
{
    *n = 0;
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (only_args || arg[0] != '-' || !arg[1]) {
            argv[(*n)++] = arg;
            continue;
        }
        if (!strcmp(arg, "--")) {
            only_args = true;
            continue;
        }
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h"))
            return cli_page(self, opts), CLI_OK;
        const char *value;
        const Opt *o = find_opt(opts, arg, &value);
        if (!o)
            return unknown_option(self, opts, arg);
        if (o->kind == OPT_FLAG) {
            if (value)
                return cli_misuse(self, "--%s takes no value", o->name);
            *(bool *)o->to = true;
            continue;
        }
        if (!value && i + 1 == argc)
            return cli_misuse(self, "--%s needs a value: --%s %s", o->name, o->name, o->value);
        int rc = take_value(self, o, value ? value : argv[++i]);
        if (rc != CLI_GO)
            return rc;
    }
    return CLI_GO;
}
