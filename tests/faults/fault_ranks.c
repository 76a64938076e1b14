/* A step of two ranks, which are threads. Calls of the second thread do not fail, but those of the
 * driver are counted for both. After an error a rank makes the others' exchanges fail, as a caller
 * has to: then both report an error, and neither waits forever. */
#include "tests/faults/faults.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, COLS = 9, PIECE = ROWS * COLS };

typedef struct Rank {
    const Scene *scene;
    optc_engine *e;
    optc_rule *r;
    optc_loopback *loop;
    float *p, *g;
    int rank;
    optc_status status;
    Outcome out;
} Rank;

static optc_status steps(Rank *x, optc_binding *b, float *guard)
{
    optc_status s = guard ? optc_set_guard(b, guard, OPTC_F32) : OPTC_OK;
    for (int i = 0; i < 3 && s == OPTC_OK; i++) {
        s = guard ? optc_fill(x->e, guard, 1, OPTC_F32, i == 2, 0, NULL) : OPTC_OK;
        if (s == OPTC_OK)
            s = optc_set_grad(b, 1, i == 1 ? NULL : x->g + (2 + x->rank) * PIECE, 0);
        if (s == OPTC_OK)
            s = optc_step(b);
    }
    return s == OPTC_OK ? optc_sync(b) : s;
}

/* Each rank has half of the rows of both tensors. */
static void run_rank(Rank *x)
{
    int64_t shape[2] = {ROWS, COLS}, whole[2] = {2 * ROWS, COLS}, at[2] = {x->rank * ROWS, 0};
    optc_tensor w[2];
    optc_comm comm;
    optc_binding *b = NULL;
    float *guard = NULL;
    memset(w, 0, sizeof w);
    for (int k = 0; k < 2; k++) {
        w[k].param = x->p + (2 * k + x->rank) * PIECE;
        w[k].grad = x->g + (2 * k + x->rank) * PIECE;
        w[k].rank = 2;
        w[k].shape = shape;
        w[k].global_shape = whole;
        w[k].offset = at;
    }
    optc_group all = {.tensors = w, .ntensors = 2};
    optc_status s = optc_loopback_comm(x->loop, x->rank, &comm);
    if (s == OPTC_OK && x->scene->guarded)
        s = optc_alloc(x->e, sizeof *guard, NULL, (void **)&guard);
    if (s == OPTC_OK)
        s = optc_bind_sharded(x->r, &all, 1, &comm, &b);
    if (s == OPTC_OK)
        s = steps(x, b, guard);
    if (s != OPTC_OK) {
        snprintf(x->out.message, sizeof x->out.message, "%s", optc_message());
        optc_loopback_fail(x->loop);
    }
    (void)optc_unbind(b);
    if (guard)
        (void)optc_free(x->e, guard, NULL);
    x->status = s;
}

static void *second(void *at)
{
    inject_rest(true);
    run_rank(at);
    return NULL;
}

optc_status step_two_ranks(const Scene *scene, optc_engine *e, optc_rule *r, float *p, float *g,
                           Outcome *out)
{
    float back[4 * PIECE];
    pthread_t thread;
    Rank x[2] = {{.scene = scene, .e = e, .r = r, .p = p, .g = g}};
    optc_status s = optc_loopback_open(2, e, &x[0].loop);
    snprintf(out->message, sizeof out->message, "%s", s == OPTC_OK ? "" : optc_message());
    if (s != OPTC_OK)
        return s;
    x[1] = x[0];
    x[1].rank = 1;
    inject_rest(true);
    int started = pthread_create(&thread, NULL, second, &x[1]);
    inject_rest(false);
    if (!started) {
        run_rank(&x[0]);
        pthread_join(thread, NULL);
    }
    /* of a call that failed on one rank the others say that their argument is refused */
    const Rank *bad = &x[x[0].status == OPTC_OK ||
                         (x[0].status == OPTC_ERROR_ARGUMENT && x[1].status != OPTC_OK)];
    optc_loopback_close(x[0].loop);
    s = started ? OPTC_ERROR_ARGUMENT : bad->status;
    snprintf(out->message, sizeof out->message, "%s", bad->out.message);
    if (s == OPTC_OK && (s = optc_copy(e, back, p, sizeof back, NULL)) != OPTC_OK)
        snprintf(out->message, sizeof out->message, "%s", optc_message());
    out->result = mix(7, back, sizeof back);
    return s;
}
