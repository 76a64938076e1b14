/* What was measured, for people and as JSON. */
#include "bench.h"

#include <string.h>

static const char *shape_text(char buf[200], const Case *c)
{
    char one[160];
    bool same = true;
    for (int i = 1; i < c->ntensor; i++)
        same = same && !memcmp(&c->shape[i], &c->shape[0], sizeof *c->shape);
    const Dims *d = &c->shape[0];
    if (!same)
        snprintf(buf, 200, "%d tensors", c->ntensor);
    else if (c->ntensor > 1)
        snprintf(buf, 200, "%d of %s", c->ntensor, d->rank == 1 ? cli_size(one, d->dim[0]) : cli_dims(one, d));
    else
        snprintf(buf, 200, "%s", d->rank == 1 ? cli_size(one, d->dim[0]) : cli_dims(one, d));
    return buf;
}

typedef struct Medians { double seconds, rate, share, mix, peer, ahead; } Medians;

static Medians medians(const Bench *b, const Case *c)
{
    int n = b->rounds;
    Medians m = {cli_median(c->seconds, n), cli_median(c->rate, n), cli_median(c->share, n), cli_median(c->mix, n), 0, 0};
    if (c->peer) {
        m.peer = cli_median(c->peer_seconds, n);
        m.ahead = cli_median(c->ahead, n);
    }
    return m;
}

static void print_case(const Bench *b, const Case *c, int label, int shape)
{
    char text[200], t[32];
    Medians m = medians(b, c);
    printf("  %s", cli_paint(PAINT_HEAD));
    cli_cell(c->label, label + 2);
    fputs(cli_paint(PAINT_NONE), stdout);
    cli_cell(shape_text(text, c), shape + 2);
    printf("%10s %7.1f %7.0f %% %7.0f %% %8.1f M  ", cli_time(t, m.seconds), m.rate * 1e-9, m.share * 100, m.mix * 100, (double)c->n / m.seconds * 1e-6);
    if (b->peer_name && c->peer)
        printf("%10s %6.2fx  ", cli_time(t, m.peer), m.ahead);
    else if (b->peer_name)
        printf("%10s %7s  ", "-", "");
    puts(optc_rule_path(c->rule));
}

static void report_text(const Bench *b)
{
    char text[200];
    int label = 4, shape = 6;
    for (int i = 0; i < b->ncase; i++) {
        int l = cli_width(b->cases[i].label), s = cli_width(shape_text(text, &b->cases[i]));
        label = l > label ? l : label;
        shape = s > shape ? s : shape;
    }
    printf("%s\n%s parameters, %d round%s, medians\n\n", optc_device_name(b->engine), type_info[b->type].name, b->rounds, b->rounds == 1 ? "" : "s");
    printf("  copy                %6.1f GB/s\n", cli_median(b->copy, b->nstream) * 1e-9);
    printf("  scale in place      %6.1f GB/s\n", cli_median(b->scale, b->nstream) * 1e-9);
    printf("  read only           %6.1f GB/s\n", cli_median(b->read, b->nstream) * 1e-9);
    printf("  best streaming rate %6.1f GB/s: what 'of best' is a share of; 'of mix' counts bytes that are only read at the rate of reading\n\n",
           cli_median(b->best, b->nstream) * 1e-9);
    fputs(cli_paint(PAINT_DIM), stdout);
    printf("  ");
    cli_cell("rule", label + 2);
    cli_cell("shape", shape + 2);
    printf("%10s %7s %9s %9s %10s  ", "a step", "GB/s", "of best", "of mix", "elements/s");
    if (b->peer_name)
        printf("%10s %7s  ", "torch", "ahead");
    printf("how it runs%s\n", cli_paint(PAINT_NONE));
    for (int i = 0; i < b->ncase; i++)
        print_case(b, &b->cases[i], label, shape);
    for (int i = 0, first = 1; b->peer_name && i < b->ncase; i++)
        if (b->cases[i].peer) {
            printf("%s  %s ran %s as %s\n", first ? "\n" : "", b->peer_name, b->cases[i].label, b->cases[i].peer);
            first = 0;
        }
}

/* ---- JSON ---- */
static void put_string(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 32)
            printf("\\u%04x", *s);
        else
            putchar(*s);
    }
    putchar('"');
}

static void put_case(const Bench *b, const Case *c)
{
    char text[200];
    Medians m = medians(b, c);
    printf("    {\"rule\": ");
    put_string(c->label);
    printf(", \"elements\": %lld, \"tensors\": %d, \"shape\": ", (long long)c->n, c->ntensor);
    put_string(shape_text(text, c));
    printf(",\n     \"ms\": %.6g, \"bytes_read\": %.17g, \"bytes_written\": %.17g, \"gb_per_s\": %.6g, \"share_of_best\": %.6g, \"share_of_mix\": %.6g, \"elements_per_s\": %.6g, \"native\": %s, \"runs\": ",
           m.seconds * 1e3, c->bytes.read, c->bytes.written, m.rate * 1e-9, m.share, m.mix, (double)c->n / m.seconds, optc_rule_native(c->rule) ? "true" : "false");
    put_string(optc_rule_path(c->rule));
    if (c->peer) {
        printf(",\n     \"torch\": {\"runs\": ");
        put_string(c->peer);
        printf(", \"ms\": %.6g, \"ratio\": %.6g}", m.peer * 1e3, m.ahead);
    }
    putchar('}');
}

static void report_json(const Bench *b)
{
    printf("{\n  \"optc\": \"%s\",\n  \"device\": ", optc_version());
    put_string(optc_device_name(b->engine));
    printf(",\n  \"threads\": %d, \"rounds\": %d, \"type\": \"%s\",\n", b->threads, b->rounds, type_info[b->type].name);
    printf("  \"copy_gb_per_s\": %.6g, \"scale_gb_per_s\": %.6g, \"read_gb_per_s\": %.6g, \"best_gb_per_s\": %.6g,\n", cli_median(b->copy, b->nstream) * 1e-9,
           cli_median(b->scale, b->nstream) * 1e-9, cli_median(b->read, b->nstream) * 1e-9, cli_median(b->best, b->nstream) * 1e-9);
    if (b->peer_name) {
        printf("  \"against\": ");
        put_string(b->peer_name);
        printf(",\n");
    }
    printf("  \"rules\": [\n");
    for (int i = 0; i < b->ncase; i++) {
        put_case(b, &b->cases[i]);
        puts(i < b->ncase - 1 ? "," : "");
    }
    puts("  ]\n}");
}

void bench_report(const Bench *b)
{
    if (b->json)
        report_json(b);
    else
        report_text(b);
}
