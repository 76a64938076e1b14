/* For optc.torch: whether the parameters and gradients of a binding are where they were at the last
 * step. One call compares all of them. In Python every attribute of a tensor takes about 80 ns.
 *
 * Needs no header of Python or torch. The caller passes functions of Python's stable ABI, and
 * functions that torch's libraries export (TorchCalls). These read a tensor and its gradient
 * without making Python objects.
 * Gradients are held until optc_objects_release: another thread may replace p.grad while a step
 * runs without the GIL.
 * The caller holds the GIL. A failed function of Python leaves an exception, which ctypes
 * raises. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A handle is the address of an at::Tensor, which is one word: the address of a TensorImpl. torch's
 * stable C interface (aoti_torch/c/shim.h) calls it AtenTensorHandle; its functions return 0 or an
 * error. The others, below, are C++: a reference is an address. They throw nothing, because
 * bump_version is called only where a counter exists.
 * slot: the offset of the at::Tensor in a tensor's Python object. Reading the object every time
 * finds the tensor of torch.utils.swap_tensors, and never a freed one. */
typedef struct TorchCalls {
    int (*data)(void *handle, void **out);
    int (*dtype)(void *handle, int32_t *out);
    int (*device_type)(void *handle, int32_t *out);
    int (*device_index)(void *handle, int32_t *out);
    int (*layout)(void *handle, int32_t *out);
    int (*dims)(void *handle, int64_t *out);
    int (*sizes)(void *handle, int64_t **out);
    int (*strides)(void *handle, int64_t **out);
    int (*offset)(void *handle, int64_t *out);
    int (*storage_bytes)(void *handle, int64_t *out);
    int (*is_defined)(void *handle, bool *out);
    /* at::Tensor's operator=: counts references */
    int (*assign)(void *from, void *to);
    void *(*grad)(const void *tensor_impl);                /* a handle */
    bool (*is_neg)(const void *handle);
    bool (*is_inference)(const void *handle);
    void **(*version_counter)(const void *handle);         /* the word is 0 if there is none */
    void (*bump_version)(const void *handle);
    intptr_t slot;
} TorchCalls;

/* get_grad, get_slot: read an attribute by its descriptor (tp_descr_get), 15 ns faster than by its
 * name. grad,
 * local, spec: descriptors; local and spec are slots of DTensor. tensor: the class of gradients */
typedef struct PythonCalls {
    void *(*get_grad)(void *descriptor, void *object, void *type);
    void *(*get_slot)(void *descriptor, void *object, void *type);
    void *(*get_item)(void *list, intptr_t i);             /* borrowed */
    void *(*get_type)(void *object);
    void (*drop)(void *object);
    void *grad, *local, *spec, *tensor, *none;
    TorchCalls torch;
} PythonCalls;

/* The properties of a tensor that are compared. type, device, index: torch's numbers */
typedef struct Described {
    uint64_t data;
    int32_t type, device, index, layout, negated;
    int64_t dims;
    const int64_t *sizes, *strides;
} Described;

/* Arrays with one entry per tensor: the addresses of the parameter and of the gradient (0: it has
 * none), the bytes of its storage up to the end of the parameter, the numbers of dimensions and of
 * elements, the object of the stepped tensor, and the object `spec` of a DTensor (0: it is a plain
 * tensor); and the sizes of all tensors, one after another. like_param, like_grad: tensors with the
 * type and device of all of them, which have no gradient. item: bytes of an element of a
 * gradient */
typedef struct Seen {
    const uint64_t *param, *grad, *param_end, *dims, *count, *stepped, *spec;
    const int64_t *sizes;
    void *like_param, *like_grad;
    uint64_t item;
} Seen;

/* The gradients of this step: their addresses, and what holds them. held: an at::Tensor for each, 0
 * if it holds none; NULL: no other thread can replace them. hint: addresses of the gradients'
 * TensorImpl at the last step. They may be freed, and are only prefetched. */
typedef struct Now { uint64_t *grad, *hint; void **held; } Now;

enum { OPTC_OBJECTS_DIFFER, OPTC_OBJECTS_MOVED, OPTC_OBJECTS_STAY };

#pragma GCC visibility push(default)
int optc_objects_compare(const PythonCalls *py, void *params, int n, const Seen *seen,
                         const Now *now);
void optc_objects_release(const PythonCalls *py, const Seen *seen, void **held, int n);
int optc_objects_same(const PythonCalls *py, void *list, void *other, int n);
void optc_objects_bump(const PythonCalls *py, void *list, int n);
#pragma GCC visibility pop

typedef struct Comparison {
    const PythonCalls *py;
    const Seen *seen;
    const Now *now;
    const int64_t *sizes;                                  /* of the current tensor */
    Described like_param, like_grad;
    /* the word of an at::Tensor that holds nothing */
    void *undefined;
} Comparison;

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }
static void *handle_of(const PythonCalls *py, void *object)
{
    return (char *)object + py->torch.slot;
}

static void drop(const PythonCalls *py, void *object)
{
    if (object)
        py->drop(object);
}

/* Layout 0 is strided. The others are left to Python, before functions that fail for them. */
static int describe(const TorchCalls *t, void *handle, Described *out)
{
    void *data;
    int64_t *sizes, *strides;
    if (t->layout(handle, &out->layout) || out->layout || t->dtype(handle, &out->type) ||
        t->device_type(handle, &out->device) || t->device_index(handle, &out->index) ||
        t->dims(handle, &out->dims) || t->sizes(handle, &sizes) || t->strides(handle, &strides) ||
        t->data(handle, &data))
        return 0;
    out->data = address(data);
    out->negated = t->is_neg(handle);
    out->sizes = sizes;
    out->strides = strides;
    return 1;
}

/* Whether a tensor has the bound sizes in row-major order, and the type and device of `like`. */
static int has_layout(const Comparison *c, int i, const Described *t, const Described *like)
{
    uint64_t dims = c->seen->dims[i];
    int64_t next = 1;
    if ((uint64_t)t->dims != dims || t->type != like->type || t->device != like->device ||
        t->index != like->index || t->negated)
        return 0;
    for (uint64_t d = dims; d-- > 0; next *= t->sizes[d])
        if (t->sizes[d] != c->sizes[d] ||
            (t->sizes[d] != 1 && t->strides[d] != next && c->seen->count[i]))
            return 0;
    return 1;
}

/* Whether a storage, which may have been resized, has so many bytes. */
static int storage_holds(const Comparison *c, void *handle, uint64_t end)
{
    int64_t bytes;
    return !c->py->torch.storage_bytes(handle, &bytes) && end <= (uint64_t)bytes;
}

static int param_stays(const Comparison *c, int i, void *stepped)
{
    Described p;
    void *handle = handle_of(c->py, stepped);
    return address(stepped) == c->seen->stepped[i] && describe(&c->py->torch, handle, &p) &&
           p.data == c->seen->param[i] && has_layout(c, i, &p, &c->like_param) &&
           storage_holds(c, handle, c->seen->param_end[i]);
}

/* Compares a DTensor's slot `spec` with an object that the caller holds. */
static int spec_is(const PythonCalls *py, void *object, uint64_t want)
{
    void *found = py->get_slot(py->spec, object, NULL);
    drop(py, found);
    return found && address(found) == want;
}

static int hold(const Comparison *c, int i, void *handle)
{
    if (!c->now->held[i])
        c->now->held[i] = c->undefined;
    return !c->py->torch.assign(handle, &c->now->held[i]);
}

/* Notes the address of a plain gradient. Tensors without elements have no address of their own. */
static int note_handle(const Comparison *c, int i, void *handle)
{
    Described g;
    int64_t offset;
    if (!describe(&c->py->torch, handle, &g) || !has_layout(c, i, &g, &c->like_grad))
        return 0;
    c->now->grad[i] = c->seen->count[i] ? g.data : c->seen->grad[i];
    return c->now->grad[i] && !c->py->torch.offset(handle, &offset) &&
           storage_holds(c, handle, ((uint64_t)offset + c->seen->count[i]) * c->seen->item) &&
           (!c->now->held || hold(c, i, handle));
}

static int note_grad(const Comparison *c, int i, void *grad)
{
    void *type = c->py->get_type(grad);
    drop(c->py, type);                                     /* its objects hold it */
    return type == c->py->tensor && note_handle(c, i, handle_of(c->py, grad));
}

static int note_local_grad(const Comparison *c, int i, void *grad)
{
    const PythonCalls *py = c->py;
    void *local = spec_is(py, grad, c->seen->spec[i]) ? py->get_slot(py->local, grad, NULL) : NULL;
    int fits = local && note_grad(c, i, local);
    drop(py, local);
    return fits;
}

/* A parameter that is no DTensor: no Python object is made. The gradient may be of any Python
 * class: one without memory of its own has the address 0, and is refused in Python. */
static int compare_plain(const Comparison *c, int i, void *param)
{
    const TorchCalls *t = &c->py->torch;
    bool defined;
    if (!param_stays(c, i, param))
        return 0;
    void *grad = t->grad(*(void **)handle_of(c->py, param));
    c->now->grad[i] = 0;
    c->now->hint[i] = address(*(void **)grad);
    return !t->is_defined(grad, &defined) && (!defined || note_handle(c, i, grad));
}

static int compare_distributed(const Comparison *c, int i, void *param)
{
    const PythonCalls *py = c->py;
    void *local = py->get_slot(py->local, param, NULL), *grad;
    int fits = local && spec_is(py, param, c->seen->spec[i]) && param_stays(c, i, local);
    drop(py, local);
    if (!fits || !(grad = py->get_grad(py->grad, param, NULL)))
        return 0;
    c->now->grad[i] = 0;
    fits = grad == py->none || note_local_grad(c, i, grad);
    drop(py, grad);
    return fits;
}

/* gcc drops calls of a function that only prefetches: it has no other effect. */
#define INLINED static inline __attribute__((always_inline)) void

/* Prefetches four cache lines. A TensorImpl has about 200 bytes. The address may be 0 or that of
 * freed memory. */
INLINED prefetch_tensor(uint64_t tensor_impl)
{
    for (int at = 0; at < 256; at += 64)
        __builtin_prefetch((const void *)(uintptr_t)(tensor_impl + at));
}

/* Prefetches the object of a later tensor, and of a nearer one the tensor and its gradient. The
 * caller holds the objects `stepped`. 5000 tensors that are in no cache: 0.80 instead of 1.01 ms;
 * in L2: 0.45 instead of 0.47. Distances of 8 and 3, or 24 and 12, take the same time. */
INLINED prefetch(const Comparison *c, int i, int n)
{
    enum { FAR = 16, NEAR = 6 };
    const uint64_t *objects = c->seen->stepped;
    if (i + FAR < n)
        __builtin_prefetch(handle_of(c->py, (void *)(uintptr_t)objects[i + FAR]));
    if (i + NEAR < n) {
        prefetch_tensor(address(*(void **)handle_of(c->py, (void *)(uintptr_t)objects[i + NEAR])));
        prefetch_tensor(c->now->hint[i + NEAR]);
    }
}

/* The undefined at::Tensor that is p.grad of a tensor without a gradient. */
static void *no_grad(const PythonCalls *py, void *object)
{
    return py->torch.grad(*(void **)handle_of(py, object));
}

/* params: a list. now->held: 0, or held since an earlier call.
 * OPTC_OBJECTS_STAY: nothing moved, and all gradients are row-major tensors of the bound sizes,
 * type and device, or None. OPTC_OBJECTS_MOVED: the same, but some gradients are at other
 * addresses, or are new, or are gone. */
int optc_objects_compare(const PythonCalls *py, void *params, int n, const Seen *seen,
                         const Now *now)
{
    Comparison c = {.py = py, .seen = seen, .now = now, .sizes = seen->sizes};
    if (!describe(&py->torch, handle_of(py, seen->like_param), &c.like_param) ||
        !describe(&py->torch, handle_of(py, seen->like_grad), &c.like_grad))
        return OPTC_OBJECTS_DIFFER;
    c.undefined = *(void **)no_grad(py, seen->like_param);
    for (int i = 0; i < n; c.sizes += seen->dims[i++]) {
        void *param = py->get_item(params, i);
        prefetch(&c, i, n);
        if (!param || !(seen->spec[i] ? compare_distributed : compare_plain)(&c, i, param))
            return OPTC_OBJECTS_DIFFER;
    }
    return memcmp(now->grad, seen->grad, (size_t)n * sizeof *now->grad) ? OPTC_OBJECTS_MOVED
                                                                        : OPTC_OBJECTS_STAY;
}

/* Drops the references in `held`, and sets its words to 0. */
void optc_objects_release(const PythonCalls *py, const Seen *seen, void **held, int n)
{
    void *undefined = no_grad(py, seen->like_param);
    for (int i = 0; i < n; i++) {
        if (held[i])
            /* fails for no at::Tensor: it only counts references */
            py->torch.assign(undefined, &held[i]);
        held[i] = NULL;
    }
}

/* Whether the first n objects of two lists are the same objects. */
int optc_objects_same(const PythonCalls *py, void *list, void *other, int n)
{
    int same = 1;
    for (int i = 0; i < n && same; i++) {
        void *object = py->get_item(list, i);
        same = object && object == py->get_item(other, i);
    }
    return same;
}

/* Increments the version counters of the first n tensors of a list. */
void optc_objects_bump(const PythonCalls *py, void *list, int n)
{
    const TorchCalls *t = &py->torch;
    for (int i = 0; i < n; i++) {
        void *object = py->get_item(list, i), *handle = object ? handle_of(py, object) : NULL;
        if (handle && !t->is_inference(handle) && *t->version_counter(handle))
            t->bump_version(handle);
    }
}
