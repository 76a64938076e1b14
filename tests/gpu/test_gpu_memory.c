/* GPU memory: caller-owned inputs, states and allocators, and failures of memory. */
#include "tests/gpu/device_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t device_room(optc_engine *e)
{
    optc_memory m;
    OK(optc_memory_info(e, &m));
    return m.free;
}

/* Bytes by which the device's free memory is below `room`. Other processes take memory for a while,
 * so it waits up to ten seconds for a number below `most`. */
static int64_t room_lost(optc_engine *e, int64_t room, int64_t most)
{
    int64_t lost = room - device_room(e);
    for (int i = 0; i < 100 && lost >= most; i++) {
        usleep(100000);
        lost = room - device_room(e);
    }
    return lost;
}

/* Inputs of the caller that are aligned only to their element, next to even shapes that would use
 * whole vectors. */
START_TEST(misaligned_inputs)
{
    static const char text[] =
        "return optimizer { name = \"anywhere\", hyper = { lr = 0.1 }, inputs = { c = \"col\", r = "
        "\"row\", h = "
        "\"elem\" }, view = \"first\",\n"
        "  step = function() p = p - lr * g * h end, matrix = function() p = p - lr * (g * c + "
        "h * r + mean(g * c)) end }\n";
    enum { R = 64, C = 512, N = R * C };
    static float hp[2][N], hg[N + 4], hh[N + 4], hc[C + 4], hr[R + 4];
    int64_t dim[2] = {R, C};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    for (int i = 0; i < N; i++)
        hg[i] = (float)ref_value(1, 0, i), hh[i] = (float)ref_value(2, 0, i);
    for (int i = 0; i < C; i++)
        hc[i] = (float)ref_value(3, 0, i);
    for (int i = 0; i < R; i++)
        hr[i] = (float)ref_value(4, 0, i);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < N; i++)
            hp[side][i] = (float)ref_value(0, 0, i);
        void *at[5] = {hp[side], hg, hh, hc, hr};
        const size_t bytes[5] = {sizeof hp[0], N * 4, N * 4, C * 4, R * 4};
        for (int k = 0; side && k < 5; k++) {
            CUdeviceptr x;
            ck_assert(!d->cuMemAlloc_v2(&x, bytes[k] + 64));
            /* the column and row inputs are one element off */
            x += k >= 3 ? 4 : 0;
            ck_assert(!d->cuMemcpyHtoDAsync_v2(x, at[k], bytes[k], NULL));
            at[k] = (void *)(uintptr_t)x;
        }
        OK(optc_open(&(optc_engine_options){.device = side ? "cuda" : "cpu",
                                            .cache_dir = getenv("OPTC_TEST_CACHE")},
                     &e));
        OK(optc_compile(e, &(optc_rule_options){.spec = "anywhere", .text = text}, &r));
        optc_tensor t = {.param = at[0], .grad = at[1], .rank = 2, .shape = dim};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_set_input(b, 0, "h", at[2], N));
        OK(optc_set_input(b, 0, "c", at[3], C));
        OK(optc_set_input(b, 0, "r", at[4], R));
        for (int k = 0; k < 3; k++)
            OK(optc_step(b));
        OK(optc_sync(b));
        if (side)
            ck_assert(!d->cuMemcpyDtoHAsync_v2(hp[1], (CUdeviceptr)(uintptr_t)at[0], sizeof hp[1],
                                               NULL) &&
                      !d->cuStreamSynchronize(NULL));
        OK(optc_unbind(b));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    ck_assert_msg(!memcmp(hp[0], hp[1], sizeof hp[0]),
                  "inputs that are not aligned give other bits");
}
END_TEST

/* More than the device has: refused, everything is freed, and an earlier binding continues
 * unchanged. */
START_TEST(out_of_memory)
{
    Side a, b;
    optc_binding *big;
    int64_t n[1] = {(int64_t)1 << 38};
    open_side(&a, "cuda", (optc_rule_options){.spec = "adamw", .with = ""}, 0);
    open_side(&b, "cuda", (optc_rule_options){.spec = "adamw", .with = ""}, 0);
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(b.b));
    optc_memory before, after;
    OK(optc_memory_info(b.e, &before));
    int64_t room = device_room(b.e);
    optc_tensor t = {.name = "huge", .param = (void *)(uintptr_t)b.p[1], .rank = 1, .shape = n};
    for (int i = 0; i < 3; i++)
        FAILS(optc_bind(b.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &big),
              OPTC_ERROR_MEMORY, "cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY");
    ck_assert_msg(strstr(optc_message(), "the states and temporaries of 'adamw' on 1 tensors"),
                  "%s", optc_message());
    OK(optc_memory_info(b.e, &after));
    ck_assert(after.ours == before.ours && after.ours > 0 && after.total > after.free);
    int64_t lost = room_lost(b.e, room, 64 << 20);
    ck_assert_msg(lost < (64 << 20), "memory was lost: %lld bytes", (long long)lost);
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    OK(optc_sync(a.b));
    fetch_params(&a);
    compare("after running out of memory", &a, &b);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* A kernel that reads unmapped memory destroys the context: the first call reports that in full,
 * later calls are refused, and closing everything still works. */
START_TEST(sticky_error)
{
    Side a;
    optc_binding *b;
    optc_rule *r;
    optc_engine *e;
    open_side(&a, "cuda", (optc_rule_options){.spec = "sgd", .with = ""}, 0);
    set_grads(&a, 1);
    OK(optc_step(a.b));
    OK(optc_sync(a.b));
    a.b->tensor[5].mem[1] = (void *)(uintptr_t)0x10000;      /* an unmapped address */
    a.b->gpu->moved = true;
    OK(optc_step(a.b));
    FAILS(optc_sync(a.b), OPTC_ERROR_DEVICE, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS");
    ck_assert_msg(strstr(optc_message(), "cuda:0 can do no more work in this process"), "%s",
                  optc_message());
    FAILS(optc_step(a.b), OPTC_ERROR_DEVICE,
          "cuda:0 failed before and can do no more work in this process: cuStreamSynchronize: "
          "CUDA_ERROR_ILLEGAL_ADDRESS");
    FAILS(optc_sync(a.b), OPTC_ERROR_DEVICE, "failed before");
    double x;
    FAILS(optc_state_read(a.b, 5, "momentum_buffer", &x, 1) == OPTC_OK ? OPTC_OK
                                                                       : OPTC_ERROR_DEVICE,
          OPTC_ERROR_DEVICE, "");
    FAILS(optc_compile(a.e, &(optc_rule_options){.spec = "lion"}, &r), OPTC_ERROR_DEVICE,
          "failed before");
    int64_t n[1] = {4};
    optc_tensor t = {.param = (void *)(uintptr_t)a.p[1], .rank = 1, .shape = n};
    FAILS(optc_bind(a.r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_DEVICE,
          "failed before");
    OK(optc_unbind(a.b));
    OK(optc_release(a.r));
    OK(optc_close(a.e));
    OK(optc_open(&(optc_engine_options){.device = "cpu"}, &e));        /* the CPU still works */
    OK(optc_close(e));
}
END_TEST

/* ---- the caller's allocator ---- */
static int taken, given;
static void *take(void *ctx, size_t bytes, void *stream)
{
    CUdeviceptr p = 0;
    (void)ctx, (void)stream;
    taken++;
    return d->cuMemAlloc_v2(&p, bytes) ? NULL : (void *)(uintptr_t)p;
}
static void give(void *ctx, void *p, size_t bytes, void *stream)
{
    (void)ctx, (void)bytes, (void)stream;
    given++;
    d->cuMemFree_v2((CUdeviceptr)(uintptr_t)p);
}

START_TEST(callers_allocator)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p;
    int64_t n[1] = {1000};
    optc_memory m;
    ck_assert(!d->cuMemAlloc_v2(&p, 8000));
    OK(optc_open(&(optc_engine_options){.device = optc_best_device(),
                                        .allocator = &(optc_allocator){take, give, NULL},
                                        .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    optc_tensor t = {.param = (void *)(uintptr_t)p,
                     .grad = (void *)(uintptr_t)(p + 4000),
                     .rank = 1,
                     .shape = n};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_memory_info(e, &m));
    ck_assert(taken == 2 && given == 0 && m.ours > 8000);
    OK(optc_unbind(b));
    ck_assert_int_eq(given, 2);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

START_TEST(wrong_memory)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[4], g[4];
    int64_t n[1] = {4};
    OK(optc_open(&(optc_engine_options){.device = "best"}, &e));
    ck_assert_msg(strstr(optc_device_name(e), "cuda:0"), "%s", optc_device_name(e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "sgd"}, &r));
    optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 1, .shape = n};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "the parameter of tensor 'w' (number 0) is not in the memory of cuda:0");
    FAILS(optc_open(&(optc_engine_options){.device = "cuda:99"}, &e), OPTC_ERROR_UNAVAILABLE,
          "no cuda:99");
    OK(optc_release(r));
}
END_TEST

/* Binding again with the states of an earlier binding: none of them is initialised. */
START_TEST(caller_owned_states)
{
    SHARED();
    Side c, g;
    optc_tensor t[NSHAPES];
    void *at[NSHAPES][8] = {{NULL}};
    optc_binding *was;
    open_side(&c, "cpu", (optc_rule_options){.spec = "adafactor"}, 0);
    open_side(&g, "cuda", (optc_rule_options){.spec = "adafactor"}, 0);
    set_grads(&c, 1), set_grads(&g, 1);
    for (int s = 0; s < 2; s++) {
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    for (int i = 0; i < NSHAPES; i++) {
        optc_tensor_info info;
        OK(optc_tensor_about(g.b, i, &info));
        t[i] = (optc_tensor){.param = info.param,
                             .grad = info.grad,
                             .rank = info.rank,
                             .shape = info.shape,
                             .states = at[i]};
        for (int k = 0; k < optc_rule_states(g.r); k++) {
            optc_state_info state;
            optc_state_view v = {NULL, 0, OPTC_DEFAULT};
            OK(optc_rule_state(g.r, k, &state));
            if (optc_state(g.b, i, state.name, &v) == OPTC_OK)
                at[i][k] = v.data;
        }
    }
    OK(optc_sync(g.b));
    was = g.b;
    OK(optc_bind(g.r, &(optc_group){.tensors = t, .ntensors = NSHAPES}, 1, &g.b));
    OK(optc_set_t(g.b, -1, 2));
    for (int s = 0; s < 2; s++) {
        OK(optc_step(c.b));
        OK(optc_step(g.b));
    }
    compare("given states", &c, &g);
    static _Alignas(64) char here[64];
    optc_binding *none;
    memset(at, 0, sizeof at);
    for (int k = 0; k < optc_rule_states(g.r); k++)
        at[0][k] = here;                           /* host memory */
    FAILS(optc_bind(g.r, &(optc_group){.tensors = t, .ntensors = NSHAPES}, 1, &none),
          OPTC_ERROR_ARGUMENT, "a state of tensor number 0 is not in the memory of");
    OK(optc_unbind(was));
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* ---- memory for callers ---- */
/* Filled on the GPU and read back: every plain type, odd counts, diagonals. Memory is zeroed,
 * counted, and refused where it does not belong. */
START_TEST(device_memory)
{
    enum { BYTES = 40 * 1000 };
    static unsigned char back[BYTES], want[BYTES];
    optc_engine *e, *cpu;
    optc_memory m;
    char *p, *q, *host;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = ""}, &e));
    OK(optc_open(&(optc_engine_options){.cache_dir = ""}, &cpu));
    OK(optc_alloc(e, BYTES, NULL, (void **)&p));
    ck_assert_int_eq((uintptr_t)p % 256, 0);
    memset(back, 1, BYTES);
    OK(optc_copy(e, back, p, BYTES, NULL));
    ck_assert_mem_eq(back, want, BYTES);
    for (int t = 1; t <= optc_types(); t++)
        for (int64_t n = 1; n < 1100; n = n * 3 + 1) {
            optc_type_info about;
            OK(optc_type_about((optc_type)t, &about));
            if (type_is_coded(t - 1))
                continue;
            unsigned char *one = want + n * about.bits / 8;
            memset(want, 0x5a, BYTES);
            for (int64_t i = 0; i < n; i++)
                type_store(t - 1, want, i, -1.3);
            OK(optc_copy(e, p, memset(back, 0x5a, BYTES), BYTES, NULL));
            OK(optc_fill(e, p, n, (optc_type)t, -1.3, 0, NULL));
            OK(optc_copy(e, back, p, BYTES, NULL));
            ck_assert_msg(!memcmp(back, want, BYTES) && *one == 0x5a, "%s, %d values", about.name,
                          (int)n);
        }
    for (int64_t rows = 1; rows < 40; rows += 19) {
        int64_t n = 3 * rows * rows;
        OK(optc_fill(e, p, BYTES / 8, OPTC_F64, 7, 0, NULL));
        OK(optc_fill(e, p, n, OPTC_F64, 0.25, rows, NULL));
        OK(optc_copy(e, back, p, BYTES, NULL));
        for (int64_t i = 0; i < BYTES / 8; i++) {
            int64_t k = i % (rows * rows);
            ck_assert(((double *)(void *)back)[i] == (i >= n                 ? 7
                                                      : k / rows == k % rows ? 0.25
                                                                             : 0));
        }
    }
    OK(optc_alloc(e, BYTES, NULL, (void **)&q));
    OK(optc_copy(e, q, p, BYTES, NULL));                                   /* on the device */
    memset(want, 0, BYTES);
    OK(optc_copy(e, want, q, BYTES, NULL));
    ck_assert_mem_eq(back, want, BYTES);
    OK(optc_copy(e, want, back, BYTES, NULL));                             /* on the host */
    OK(optc_memory_info(e, &m));
    ck_assert(m.ours == 2 * BYTES && m.peak >= m.ours);
    FAILS(optc_copy(cpu, back, p, 8, NULL), OPTC_ERROR_ARGUMENT,
          "the memory belongs to another engine (cuda:0");
    FAILS(optc_fill(cpu, p, 8, OPTC_F32, 0, 0, NULL), OPTC_ERROR_ARGUMENT,
          "and this one is on the CPU");
    FAILS(optc_fill(e, back, 8, OPTC_F32, 0, 0, NULL), OPTC_ERROR_ARGUMENT,
          "not in the memory of cuda:0");
    OK(optc_alloc(cpu, 64, NULL, (void **)&host));
    FAILS(optc_fill(e, host, 8, OPTC_F32, 0, 0, NULL), OPTC_ERROR_ARGUMENT,
          "not in the memory of cuda:0");
    OK(optc_copy(e, host, p, 64, NULL));
    FAILS(optc_free(cpu, p, NULL), OPTC_ERROR_ARGUMENT, "belongs to another engine");
    FAILS(optc_copy(e, p, back, BYTES + 1, NULL), OPTC_ERROR_ARGUMENT,
          "its block of optc_alloc ends after 40000");
    FAILS(optc_alloc(e, (int64_t)1 << 50, NULL, (void **)&host), OPTC_ERROR_MEMORY,
          "for optc_alloc");
    OK(optc_memory_info(e, &m));
    ck_assert_int_eq(m.ours, 2 * BYTES);
    FAILS(optc_close(e), OPTC_ERROR_BUSY, "2 blocks of optc_alloc are not freed (80000 bytes)");
    OK(optc_free(e, p, NULL));
    FAILS(optc_free(e, p, NULL), OPTC_ERROR_ARGUMENT, "already freed");
    OK(optc_free(e, q, NULL));
    OK(optc_close(e));
}
END_TEST

/* In a captured stream memory is neither allocated nor freed nor copied from pageable memory, and
 * the capture goes on. Nor are host arrays copied by the host, pinned ones too. Copies on the
 * device become part of the graph. */
START_TEST(memory_in_captures)
{
    CUstream s;
    CUgraph g;
    CUgraphExec x;
    optc_engine *e;
    void *p, *q, *none, *pinned;
    float here[16] = {1, 2, 3}, back[16] = {0};
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = ""}, &e));
    ck_assert(!d->cuStreamCreate(&s, 1));
    ck_assert(!d->cuMemHostAlloc(&pinned, 2 * sizeof here, 0));
    OK(optc_alloc(e, sizeof here, s, &p));
    OK(optc_alloc(e, sizeof here, s, &q));
    OK(optc_copy(e, p, here, sizeof here, s));
    OK(optc_copy(e, pinned, here, sizeof here, s));
    OK(optc_copy(e, (char *)pinned + sizeof here, pinned, sizeof here, s));
    ck_assert_mem_eq((char *)pinned + sizeof here, here, sizeof here);
    ck_assert(!d->cuStreamSynchronize(s));
    ck_assert(!d->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(optc_alloc(e, 8, s, &none), OPTC_ERROR_ARGUMENT,
          "optc_alloc: not allowed while the stream is captured");
    FAILS(optc_free(e, p, s), OPTC_ERROR_ARGUMENT, "optc_free: not allowed while");
    FAILS(optc_copy(e, p, here, sizeof here, s), OPTC_ERROR_ARGUMENT,
          "no copies from or to pageable host memory");
    FAILS(optc_copy(e, (char *)pinned + sizeof here, pinned, sizeof here, s), OPTC_ERROR_ARGUMENT,
          "no copies between two host arrays");
    OK(optc_copy(e, q, p, sizeof here, s));
    ck_assert(!d->cuStreamEndCapture(s, &g) && !d->cuGraphInstantiateWithFlags(&x, g, 0));
    here[0] = 5;
    OK(optc_copy(e, p, here, sizeof here, s));
    ck_assert(!d->cuGraphLaunch(x, s));
    OK(optc_copy(e, back, q, sizeof here, s));
    ck_assert(back[0] == 5 && back[2] == 3);
    OK(optc_free(e, p, s));
    OK(optc_free(e, q, s));
    ck_assert(!d->cuMemFreeHost(pinned));
    OK(optc_close(e));
}
END_TEST

/* ---- checkpoints ---- */
static const struct { const char *spec, *types;
} saved_rules[] = {{"adamw+clip(1)", NULL},
                   {"adamw", "state=q8"},
                   {"adamw", "param=bf16,master=low16"},
                   {"adafactor", NULL}};

/* Saved on one device, resumed on the other: both go on with the same bits. A refused file changes
 * nothing on the GPU. */
START_TEST(checkpoints)
{
    SHARED();
    const optc_rule_options o = {.spec = saved_rules[_i].spec, .types = saved_rules[_i].types};
    for (int to_gpu = 0; to_gpu < 2; to_gpu++) {
        Side c, g;
        open_side(&c, "cpu", o, 0);
        open_side(&g, "cuda", o, 0);
        Side *from = to_gpu ? &c : &g, *to = to_gpu ? &g : &c;
        for (int s = 1; s <= 2; s++) {
            set_grads(from, s);
            OK(optc_step(from->b));
        }
        OK(optc_set_hyper(from->b, -1, "lr", 0.003));
        optc_checkpoint file = {.path = NULL};
        OK(optc_save_bytes(&from->b, 1, &file, &file.size));
        file.memory = malloc((size_t)file.size);
        OK(optc_save(&from->b, 1, &file));
        ((char *)file.memory)[file.size / 2] ^= 1;
        FAILS(optc_load(&to->b, 1, &file), OPTC_ERROR_ARGUMENT, "is damaged");
        ((char *)file.memory)[file.size / 2] ^= 1;
        if (!to_gpu)
            fetch_params(&g);
        for (int k = 0; k < NSHAPES; k++) {
            size_t bytes = (size_t)c.n[k] * c.wp;
            if (to_gpu)
                OK(optc_copy(g.e, (void *)(uintptr_t)g.p[k], c.hp[k], (int64_t)bytes, NULL));
            else
                memcpy(c.hp[k], g.hp[k], bytes);
        }
        OK(optc_load(&to->b, 1, &file));
        compare("loaded", &c, &g);
        for (int s = 3; s <= 4; s++) {
            set_grads(&c, s), set_grads(&g, s);
            OK(optc_step(c.b));
            OK(optc_step(g.b));
        }
        compare("resumed", &c, &g);
        free(file.memory);
        close_side(&c, 0);
        close_side(&g, 0);
    }
}
END_TEST

/* Values above the diagonal of a state that is a lower triangle are refused, and nothing is written
 * on the GPU. */
START_TEST(lower_triangles)
{
    SHARED();
    Side c, g;
    optc_checkpoint file = {.path = NULL};
    optc_state_view v;
    int k = 0;
    open_side(&c, "cpu", (optc_rule_options){.spec = "psgd_kron"}, 0);
    open_side(&g, "cuda", (optc_rule_options){.spec = "psgd_kron"}, 0);
    while (optc_state(c.b, k, "C", &v) != OPTC_OK || v.count < 4)
        ck_assert(++k < NSHAPES);
    double *x = calloc((size_t)v.count, sizeof *x);
    float *raw = calloc((size_t)v.count, sizeof *raw);
    x[1] = raw[1] = 0.5f;
    FAILS(optc_state_write(g.b, k, "C", x, v.count), OPTC_ERROR_ARGUMENT,
          "row 0, column 1 is 0.5;");
    FAILS(optc_state_put(g.b, k, "C", raw, (size_t)v.count * 4), OPTC_ERROR_ARGUMENT,
          "row 0, column 1 is 0.5;");
    ((float *)v.data)[1] = 0.5f;
    OK(optc_save_bytes(&c.b, 1, &file, &file.size));
    file.memory = malloc((size_t)file.size);
    OK(optc_save(&c.b, 1, &file));
    FAILS(optc_load(&g.b, 1, &file), OPTC_ERROR_ARGUMENT, "row 0, column 1 is 0.5;");
    ((float *)v.data)[1] = 0;
    compare("refused", &c, &g);
    x[1] = raw[1] = 0;
    OK(optc_state_write(g.b, k, "C", x, v.count));
    OK(optc_state_put(g.b, k, "C", raw, (size_t)v.count * 4));
    free(file.memory);
    free(raw);
    free(x);
    close_side(&c, 0);
    close_side(&g, 0);
}
END_TEST

/* A binding whose stream is captured is not saved, and the capture goes on. */
START_TEST(checkpoint_in_capture)
{
    Side g;
    CUstream s;
    CUgraph graph;
    open_side(&g, "cuda", (optc_rule_options){.spec = "lion"}, 0);
    set_grads(&g, 1);
    ck_assert(!d->cuStreamCreate(&s, 1));
    OK(optc_set_stream(g.b, s));
    OK(optc_step(g.b));
    ck_assert(!d->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(optc_save(&g.b, 1, &(optc_checkpoint){.path = "/dev/null"}), OPTC_ERROR_ARGUMENT,
          "optc_save: not allowed while the binding's stream is being captured");
    ck_assert(!d->cuStreamEndCapture(s, &graph));
    OK(optc_save(&g.b, 1, &(optc_checkpoint){.path = "/dev/null"}));
    close_side(&g, 0);
}
END_TEST

void add_memory(TCase *t)
{
    tcase_add_loop_test(t, checkpoints, 0, sizeof saved_rules / sizeof *saved_rules);
    tcase_add_test(t, lower_triangles);
    tcase_add_test(t, checkpoint_in_capture);
    tcase_add_test(t, device_memory);
    tcase_add_test(t, memory_in_captures);
    tcase_add_test(t, caller_owned_states);
    tcase_add_test(t, misaligned_inputs);
    tcase_add_test(t, wrong_memory);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, callers_allocator);
}

void add_sticky(TCase *t) { tcase_add_test(t, sticky_error); }
