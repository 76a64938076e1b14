/* For optc.torch: whether the parameters and gradients of a binding are where they were at the last step. One call
 * compares all of them. In Python every attribute of a tensor takes about 80 ns.
 *
 * Needs no header of Python. The caller passes functions of Python's stable ABI, and the function of DLPack's exchange
 * table that describes a tensor without owning it (dltensor_from_py_object_no_sync of dlpack.h 1.3). The caller holds
 * the GIL. A failed function leaves an exception, which ctypes raises. */
#include <stdint.h>
#include <string.h>

typedef struct DLTensor {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

/* get_grad, get_slot: read an attribute by its descriptor (tp_descr_get), 15 ns faster than by its name. grad,
 * local, spec: descriptors; local and spec are slots of DTensor. tensor: the class of gradients */
typedef struct PythonCalls {
    void *(*get_grad)(void *descriptor, void *object, void *type);
    void *(*get_slot)(void *descriptor, void *object, void *type);
    void *(*get_item)(void *list, intptr_t i);             /* borrowed */
    void *(*get_type)(void *object);
    int (*append)(void *list, void *object);
    void (*drop)(void *object);
    int (*describe)(void *object, DLTensor *out);
    void *grad, *local, *spec, *tensor, *none;
} PythonCalls;

/* Arrays with one entry per tensor: the addresses of the parameter and of the gradient (0: it has none), the numbers of
 * dimensions and of elements, the object of the stepped tensor, and the object `spec` of a DTensor (0: it is a plain
 * tensor); and the sizes of all tensors, one after another. like_param, like_grad: tensors with the type and device of
 * all of them */
typedef struct Seen {
    const uint64_t *param, *grad, *dims, *count, *stepped, *spec;
    const int64_t *sizes;
    void *like_param, *like_grad;
} Seen;

/* The gradients of this step: their addresses, and a list of those that moved */
typedef struct Now { uint64_t *grad; void *moved; } Now;

enum { OPTC_OBJECTS_DIFFER, OPTC_OBJECTS_MOVED, OPTC_OBJECTS_STAY };

#pragma GCC visibility push(default)
int optc_objects_compare(const PythonCalls *py, void *params, int n, const Seen *seen, const Now *now);
int optc_objects_same(const PythonCalls *py, void *list, void *other, int n);
#pragma GCC visibility pop

typedef struct Comparison {
    const PythonCalls *py;
    const Seen *seen;
    const Now *now;
    const int64_t *sizes;                                  /* of the current tensor */
    DLTensor like_param, like_grad;
} Comparison;

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }
static uint64_t first_element(const DLTensor *t) { return address(t->data) + t->byte_offset; }

static void drop(const PythonCalls *py, void *object)
{
    if (object)
        py->drop(object);
}

/* Whether a tensor has the bound sizes in row-major order, and the type and device of `like`. */
static int has_layout(const Comparison *c, int i, const DLTensor *t, const DLTensor *like)
{
    uint64_t dims = c->seen->dims[i];
    int64_t next = 1;
    if ((uint64_t)t->ndim != dims || memcmp(&t->dtype, &like->dtype, sizeof t->dtype) ||
        memcmp(&t->device, &like->device, sizeof t->device))
        return 0;
    for (uint64_t d = dims; d-- > 0; next *= t->shape[d])
        if (t->shape[d] != c->sizes[d] ||
            (t->strides && t->shape[d] != 1 && t->strides[d] != next && c->seen->count[i]))
            return 0;
    return 1;
}

static int param_stays(const Comparison *c, int i, void *stepped)
{
    DLTensor p;
    return address(stepped) == c->seen->stepped[i] && !c->py->describe(stepped, &p) &&
           first_element(&p) == c->seen->param[i] && has_layout(c, i, &p, &c->like_param);
}

/* Compares a DTensor's slot `spec` with an object that the caller holds. */
static int spec_is(const PythonCalls *py, void *object, uint64_t want)
{
    void *found = py->get_slot(py->spec, object, NULL);
    drop(py, found);
    return found && address(found) == want;
}

/* Notes the address of a plain gradient. Tensors without elements have no address of their own. */
static int note_grad(const Comparison *c, int i, void *grad)
{
    DLTensor g;
    void *type = c->py->get_type(grad);
    uint64_t was = c->seen->grad[i], *now = &c->now->grad[i];
    drop(c->py, type);                                     /* its objects hold it */
    if (type != c->py->tensor || c->py->describe(grad, &g) || !has_layout(c, i, &g, &c->like_grad))
        return 0;
    *now = c->seen->count[i] ? first_element(&g) : was;
    return *now && (*now == was || !c->py->append(c->now->moved, grad));
}

static int note_local_grad(const Comparison *c, int i, void *grad)
{
    const PythonCalls *py = c->py;
    void *local = spec_is(py, grad, c->seen->spec[i]) ? py->get_slot(py->local, grad, NULL) : NULL;
    int fits = local && note_grad(c, i, local);
    drop(py, local);
    return fits;
}

static int compare_one(const Comparison *c, int i, void *param)
{
    const PythonCalls *py = c->py;
    uint64_t spec = c->seen->spec[i];
    void *local = spec ? py->get_slot(py->local, param, NULL) : NULL, *grad;
    int fits = spec ? local && spec_is(py, param, spec) && param_stays(c, i, local)
                    : param_stays(c, i, param);
    drop(py, local);
    if (!fits || !(grad = py->get_grad(py->grad, param, NULL)))
        return 0;
    c->now->grad[i] = 0;
    if (grad != py->none)
        fits = (spec ? note_local_grad : note_grad)(c, i, grad);
    drop(py, grad);
    return fits;
}

/* params: a list.
 * OPTC_OBJECTS_STAY: nothing moved, and all gradients are row-major tensors of the bound sizes, type and device, or
 * None. OPTC_OBJECTS_MOVED: the same, but some gradients are at other addresses, or are new, or are gone. */
int optc_objects_compare(const PythonCalls *py, void *params, int n, const Seen *seen, const Now *now)
{
    Comparison c = {.py = py, .seen = seen, .now = now, .sizes = seen->sizes};
    if (py->describe(seen->like_param, &c.like_param) || py->describe(seen->like_grad, &c.like_grad))
        return OPTC_OBJECTS_DIFFER;
    for (int i = 0; i < n; c.sizes += seen->dims[i++]) {
        void *param = py->get_item(params, i);
        if (!param || !compare_one(&c, i, param))
            return OPTC_OBJECTS_DIFFER;
    }
    return memcmp(now->grad, seen->grad, (size_t)n * sizeof *now->grad) ? OPTC_OBJECTS_MOVED : OPTC_OBJECTS_STAY;
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
