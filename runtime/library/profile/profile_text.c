/* Prints a recording: a table for people, and a trace in Chrome's JSON format (chrome://tracing,
 * Perfetto). */
#include "runtime/library/profile/profile.h"

#include <unistd.h>

/* ---- the table ---- */
static void put_rate(Buf *b, double amount, int64_t ns)
{
    if (amount > 0 && ns > 0)
        buf_printf(b, " %9.2f", amount / (double)ns);
    else
        buf_printf(b, " %9s", "-");
}

/* whole: the time of which the row is a part; 0: none */
static void put_row(Buf *b, const char *indent, const ProfileRow *x, int64_t whole)
{
    buf_printf(b, "%s%-*.*s %8lld %12.3f", indent, x->of < 0 ? 50 : 48, x->of < 0 ? 50 : 48,
               x->name, (long long)x->count, (double)x->ns * 1e-6);
    if (whole > 0)
        buf_printf(b, " %6.1f", 100 * (double)x->ns / (double)whole);
    else
        buf_printf(b, " %6s", "");
    buf_printf(b, " %10.2f", x->timed ? (double)x->ns * 1e-3 / (double)x->timed : 0);
    put_rate(b, x->bytes, x->ns);
    put_rate(b, x->flops, x->ns);
    if (x->timed < x->count)
        buf_printf(b, "  %lld not timed", (long long)(x->count - x->timed));
    buf_puts(b, "\n");
}

static void put_entry(Buf *b, const Recording *r, int entry)
{
    const ProfileRow *all = &r->row[entry];
    ProfileRow rest = {.kind = ROW_STAGE,
                       .of = entry,
                       .name = "outside of stages",
                       .ns = all->ns,
                       .count = all->count,
                       .timed = all->timed};
    put_row(b, "", all, all->ns);
    for (int i = 0; i < r->nrow; i++) {
        const ProfileRow *x = &r->row[i];
        if (x->of != entry || !x->count)
            continue;
        put_row(b, "  ", x, x->kind == ROW_STAGE ? all->ns : 0);
        rest.ns -= x->kind == ROW_STAGE ? x->ns : 0;
    }
    if (rest.ns > 0)
        put_row(b, "  ", &rest, all->ns);
}

static double mb(int64_t bytes) { return (double)bytes * 1e-6; }

void profile_table(Buf *b, const Recording *r)
{
    int64_t until = r->on ? profile_now() : r->ended;
    buf_printf(b, "optc profile of process %d: %.3f s\n", (int)getpid(),
               (double)(until - r->began) * 1e-9);
    buf_printf(b, "%-50s %8s %12s %6s %10s %9s %9s\n", "", "launches", "ms", "%", "us each", "GB/s",
               "GFLOP/s");
    for (int i = 0; i < r->nrow; i++)
        if (r->row[i].kind == ROW_ENTRY)
            put_entry(b, r, i);
    for (int i = 0; i < r->nrow; i++)
        if (r->row[i].kind == ROW_WORK)
            put_row(b, "", &r->row[i], 0);
    for (int i = 0; i < r->nrule; i++) {
        const RuleMemory *x = &r->rule[i];
        buf_printf(
            b,
            "memory of %s, %d binding%s: states %.3f MB, temporaries %.3f MB, workspace %.3f MB\n",
            x->name, x->bindings, x->bindings == 1 ? "" : "s", mb(x->held.states),
            mb(x->held.temporaries), mb(x->held.workspace));
    }
    for (int i = 0; i < r->nengine; i++)
        buf_printf(b, "memory of %s: at most %.3f MB by optc\n", r->engine[i].name,
                   mb(r->engine[i].peak));
    if (r->dropped)
        buf_printf(b,
                   "the trace has the first %d intervals; %lld later ones are only in this table\n",
                   r->nevent, (long long)r->dropped);
}

/* ---- the trace ---- */
static void put_text(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20)
            buf_printf(b, "\\u%04x", (unsigned)*s);
        else if (*s == '"' || *s == '\\')
            buf_printf(b, "\\%c", *s);
        else
            buf_add(b, s, 1);
    }
    buf_puts(b, "\"");
}

static void put_event(Buf *b, const Recording *r, const ProfileEvent *e, int pid)
{
    static const char *const kinds[] = {
        [ROW_ENTRY] = "entry", [ROW_STAGE] = "stage", [ROW_HOST] = "host", [ROW_WORK] = "work"};
    const ProfileRow *x = &r->row[e->row];
    buf_puts(b, "{\"name\":");
    put_text(b, x->name);
    buf_printf(b, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
               kinds[x->kind], pid, e->thread, (double)(e->begin - r->began) * 1e-3,
               (double)e->ns * 1e-3);
    if (x->bytes > 0 || x->flops > 0)          /* means of the row's launches */
        buf_printf(b, ",\"args\":{\"bytes\":%.0f,\"flops\":%.0f}", x->bytes / (double)x->timed,
                   x->flops / (double)x->timed);
    buf_puts(b, "},\n");
}

static void put_totals(Buf *b, const Recording *r)
{
    for (int i = 0; i < r->nrow; i++) {
        const ProfileRow *x = &r->row[i];
        buf_puts(b, i ? ",\n{\"name\":" : "{\"name\":");
        put_text(b, x->name);
        buf_puts(b, ",\"of\":");
        put_text(b, x->of < 0 ? "" : r->row[x->of].name);
        buf_printf(b,
                   ",\"launches\":%lld,\"timed\":%lld,\"ns\":%lld,\"bytes\":%.0f,\"flops\":%.0f}",
                   (long long)x->count, (long long)x->timed, (long long)x->ns, x->bytes, x->flops);
    }
}

void profile_trace(Buf *b, const Recording *r)
{
    int pid = (int)getpid();
    buf_puts(b, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (int i = 0; i < r->nevent; i++)
        put_event(b, r, &r->event[i], pid);
    for (int i = 0; i < 16; i++)
        buf_printf(b,
                   "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                   "\"name\":\"GPU %d\"}},\n",
                   pid, GPU_THREAD + i, i);
    buf_printf(b,
               "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"optc\"}}],"
               "\n\"totals\":[",
               pid);
    put_totals(b, r);
    buf_puts(b, "],\n\"memory\":[");
    for (int i = 0; i < r->nengine; i++) {
        buf_puts(b, i ? ",\n{\"device\":" : "{\"device\":");
        put_text(b, r->engine[i].name);
        buf_printf(b, ",\"peak\":%lld}", (long long)r->engine[i].peak);
    }
    buf_printf(b, "],\n\"dropped\":%lld}\n", (long long)r->dropped);
}
