/* For optc.torch: whether the parameters and gradients of a binding are where they were at the last step. One call
 * compares all of them; in Python every attribute of a tensor takes about 80 ns.
 *
 * Needs no header of Python: the caller passes functions of Python's stable ABI, and the function of DLPack's exchange
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

/* grad, local, spec: names of attributes; local NULL: the tensors have no local part. tensor: the class of gradients */
typedef struct PythonCalls {
    void *(*get_attr)(void *object, void *name);
    void *(*get_item)(void *list, intptr_t i);             /* borrowed */
    void *(*get_type)(void *object);
    void (*drop)(void *object);
    int (*describe)(void *object, DLTensor *out);
    void *grad, *local, *spec, *tensor;
} PythonCalls;

/* By tensor: addresses of the parameter and the gradient, elements, and the objects that `local` and `spec` must be */
typedef struct Seen { const uint64_t *param, *grad, *count, *local, *spec; } Seen;

#pragma GCC visibility push(default)
int optc_objects_stay(const PythonCalls *py, void *params, int n, void *like, const Seen *seen);
#pragma GCC visibility pop

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }
static uint64_t first_element(const DLTensor *t) { return address(t->data) + t->byte_offset; }

static int is_row_major(const DLTensor *t, uint64_t count)
{
    int64_t next = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->strides && t->shape[i] != 1 && t->strides[i] != next)
            return 0;
        next *= t->shape[i];
    }
    return (uint64_t)next == count;
}

static void drop(const PythonCalls *py, void *object)
{
    if (object)
        py->drop(object);
}

static int is_plain(const PythonCalls *py, void *grad)
{
    void *type = py->get_type(grad);
    drop(py, type);                                        /* its objects hold it */
    return type == py->tensor;
}

static int stays(const PythonCalls *py, void *param, void *grad, int i, const DLTensor *like, const Seen *seen)
{
    DLTensor p, g;
    return is_plain(py, grad) && !py->describe(param, &p) && !py->describe(grad, &g) &&
           first_element(&p) == seen->param[i] && first_element(&g) == seen->grad[i] &&
           !memcmp(&g.dtype, &like->dtype, sizeof g.dtype) && !memcmp(&g.device, &like->device, sizeof g.device) &&
           is_row_major(&g, seen->count[i]);
}

/* The same for local parts. A parameter holds its local part, and so does a gradient. */
static int local_stays(const PythonCalls *py, void *param, void *grad, int i, const DLTensor *like, const Seen *seen)
{
    void *spec = py->get_attr(grad, py->spec);
    void *p = spec ? py->get_attr(param, py->local) : NULL, *g = p ? py->get_attr(grad, py->local) : NULL;
    int same = g && address(spec) == seen->spec[i] && address(p) == seen->local[i] && stays(py, p, g, i, like, seen);
    drop(py, spec);
    drop(py, p);
    drop(py, g);
    return same;
}

/* 1: all gradients are row-major tensors with the type and the device of `like`, and nothing moved. params: a list */
int optc_objects_stay(const PythonCalls *py, void *params, int n, void *like, const Seen *seen)
{
    DLTensor want;
    int same = !py->describe(like, &want);
    for (int i = 0; i < n && same; i++) {
        void *param = py->get_item(params, i), *grad = param ? py->get_attr(param, py->grad) : NULL;
        same = grad && (py->local ? local_stays : stays)(py, param, grad, i, &want, seen);
        drop(py, grad);
    }
    return same;
}
