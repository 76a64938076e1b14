/* The recording: rows, events, engines, start and stop. */
#include "runtime/library/profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const ProfileHooks *profile_hooks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Recording recording;

int64_t profile_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Recording *profile_lock(void)
{
    pthread_mutex_lock(&lock);
    return &recording;
}

unsigned profile_generation(void)
{
    return __atomic_load_n(&recording.generation, __ATOMIC_ACQUIRE);
}
void profile_unlock(void) { pthread_mutex_unlock(&lock); }

/* ---- rows and events ---- */
static bool room_for_row(Recording *r)
{
    int more = r->row_cap ? 2 * r->row_cap : 64;
    if (r->nrow < r->row_cap)
        return true;
    ProfileRow *p = more <= MOST_PROFILE_ROWS ? realloc(r->row, sizeof *p * (size_t)more) : NULL;
    if (!p)
        return false;
    r->row = p;
    r->row_cap = more;
    return true;
}

int profile_row(Recording *r, RowKind kind, int of, const char *name)
{
    ProfileRow x = {.kind = kind, .of = of};
    snprintf(x.name, sizeof x.name, "%s", name);
    for (int i = 0; i < r->nrow; i++)
        if (r->row[i].kind == kind && r->row[i].of == of && !strcmp(r->row[i].name, x.name))
            return i;
    if (!room_for_row(r))
        return -1;
    r->row[r->nrow] = x;
    return r->nrow++;
}

void profile_add(Recording *r, const ProfileSpan *x)
{
    if (x->row < 0) {
        r->dropped++;
        return;
    }
    ProfileRow *row = &r->row[x->row];
    row->count++;
    if (x->ns < 0)
        return;
    row->timed++;
    row->ns += x->ns;
    row->bytes += x->bytes;
    row->flops += x->flops;
    if (!r->event || r->nevent == MOST_EVENTS) {
        r->dropped++;
        return;
    }
    r->event[r->nevent++] =
        (ProfileEvent){.row = x->row, .thread = x->thread, .begin = x->begin, .ns = x->ns};
}

EngineProfile *profile_engine(Recording *r, optc_engine *e)
{
    for (int i = 0; i < r->nengine; i++)
        if (r->engine[i].engine == e)
            return &r->engine[i];
    EngineProfile x = {.engine = e};
    snprintf(x.name, sizeof x.name, "%.150s", e->name);
    int at = 0;
    while (at < r->nengine && (r->engine[at].engine || strcmp(r->engine[at].name, x.name)))
        at++;
    if (at == MOST_ENGINES)
        return NULL;
    /* of an engine like this one, which was closed */
    x.peak = at < r->nengine ? r->engine[at].peak : 0;
    r->nengine += at == r->nengine;
    r->engine[at] = x;
    return &r->engine[at];
}

static void note_peak(EngineProfile *x)
{
    int64_t peak = x->engine ? __atomic_load_n(&x->engine->peak, __ATOMIC_RELAXED) : 0;
    x->peak = peak > x->peak ? peak : x->peak;
}

/* ---- other work ---- */
int64_t profile_clock_on(void) { return PROFILE_HOOKS() ? profile_now() : 0; }

void profile_work(const char *what, const char *name, int64_t begin)
{
    if (!begin)
        return;
    char text[200];
    snprintf(text, sizeof text, "%s%s%.150s", what, *name ? " " : "", name);
    Recording *r = profile_lock();
    if (r->on)
        profile_add(r, &(ProfileSpan){.row = profile_row(r, ROW_WORK, -1, text),
                                      .thread = (int)syscall(SYS_gettid),
                                      .begin = begin,
                                      .ns = profile_now() - begin});
    profile_unlock();
}

void profile_engine_close(optc_engine *e)
{
    Recording *r = profile_lock();
    for (int i = 0; i < r->nengine; i++)
        if (r->engine[i].engine == e) {
            note_peak(&r->engine[i]);
            profile_gpu_drain(r, &r->engine[i]);
            r->engine[i].engine = NULL;
        }
    profile_unlock();
}

/* ---- start and stop ---- */
static void forget(Recording *r)
{
    free(r->row);
    free(r->rule);
    r->row = NULL;
    r->rule = NULL;
    r->nrow = r->row_cap = r->nevent = r->nengine = r->nrule = 0;
    r->dropped = 0;
    if (!r->event && (r->event = malloc(sizeof *r->event * MOST_EVENTS)))
        /* not 0: the compiler would make it a calloc */
        memset(r->event, 1, sizeof *r->event * MOST_EVENTS);
    __atomic_store_n(&r->generation, r->generation + 1, __ATOMIC_RELEASE);
}

/* A child has its parent's recording, and neither its threads nor its GPU. It records its own runs
 * from here on. */
static void lock_for_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void)
{
    recording.nrow = recording.nevent = recording.nengine = recording.nrule = 0;
    recording.dropped = 0;
    __atomic_store_n(&recording.generation, recording.generation + 1, __ATOMIC_RELEASE);
    recording.began = profile_now();
    pthread_mutex_unlock(&lock);
}
static void watch_forks(void) { pthread_atfork(lock_for_fork, profile_unlock, after_fork); }

optc_status optc_profile_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    Recording *r = profile_lock();
    bool busy = r->on;
    if (!busy) {
        forget(r);
        nvtx_open();
        r->on = true;
        r->began = profile_now();
        __atomic_store_n(&profile_hooks, &profile_recorder, __ATOMIC_RELEASE);
    }
    profile_unlock();
    return busy ? fail(OPTC_ERROR_BUSY,
                       "optc_profile_start: a profile is recording already (OPTC_PROFILE, or an "
                       "earlier start); call optc_profile_stop first")
                : OPTC_OK;
}

optc_status optc_profile_stop(void)
{
    Recording *r = profile_lock();
    bool was = r->on;
    __atomic_store_n(&profile_hooks, NULL, __ATOMIC_RELEASE);
    for (int i = 0; was && i < r->nengine; i++) {
        note_peak(&r->engine[i]);
        profile_gpu_drain(r, &r->engine[i]);
        r->engine[i].engine = NULL;            /* it may be closed before the next start */
    }
    if (was)
        r->ended = profile_now();
    r->on = false;
    profile_unlock();
    return was ? OPTC_OK : fail(OPTC_ERROR_ARGUMENT, "optc_profile_stop: no profile is recording");
}

int optc_profile_active(void) { return PROFILE_HOOKS() != NULL; }

char *optc_profile_text(int trace)
{
    Buf b = {0};
    Recording *r = profile_lock();
    for (int i = 0; i < r->nengine; i++)
        note_peak(&r->engine[i]);
    if (trace)
        profile_trace(&b, r);
    else
        profile_table(&b, r);
    profile_unlock();
    return buf_take(&b);
}
