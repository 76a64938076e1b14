/* For optc.torch: whether the parameters and gradients of a binding are where they were at the last step. One call
 * compares all of them. In Python every attribute of a tensor takes about 80 ns.
 *
 * Needs no header of Python. The caller passes functions of Python's stable ABI, and two functions of torch:
 * - describe: dltensor_from_py_object_no_sync of DLPack's exchange table (dlpack.h 1.3), 40 ns for a gradient;
 * - data_ptr: the address of a tensor's first element, 20 ns. describe takes 80 ns for a tensor that only Python holds.
 * The caller holds the GIL. A failed function leaves an exception, which ctypes raises. */
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

/* grad, local, spec: names of attributes. tensor: the class of gradients */
typedef struct PythonCalls {
    void *(*get_attr)(void *object, void *name);
    void *(*get_item)(void *list, intptr_t i);             /* borrowed */
    void *(*get_type)(void *object);
    void (*drop)(void *object);
    int (*describe)(void *object, DLTensor *out);
    void *(*data_ptr)(void *tensor);                       /* throws if the object is no tensor: check its class */
    void *grad, *local, *spec, *tensor, *none;
} PythonCalls;

/* By tensor: the addresses of the parameter and of the gradient (0: it has none), the number of elements, the object
 * and the class of the stepped tensor, and the object `spec` of a DTensor (0: it is a plain tensor) */
typedef struct Seen { const uint64_t *param, *grad, *count, *stepped, *type, *spec; } Seen;

#pragma GCC visibility push(default)
int optc_objects_stay(const PythonCalls *py, void *params, int n, void *like, const Seen *seen);
int optc_objects_same(const PythonCalls *py, void *list, void *other, int n);
#pragma GCC visibility pop

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }

static int is_row_major(const DLTensor *t, uint64_t count)
{
    int64_t next = 1;
    int dense = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        dense = dense && (!t->strides || t->shape[i] == 1 || t->strides[i] == next);
        next *= t->shape[i];
    }
    return (uint64_t)next == count && (dense || !count);
}

static void drop(const PythonCalls *py, void *object)
{
    if (object)
        py->drop(object);
}

static int has_type(const PythonCalls *py, void *object, uint64_t type)
{
    void *found = py->get_type(object);
    drop(py, found);                                       /* its objects hold it */
    return address(found) == type;
}

static int grad_stays(const PythonCalls *py, void *grad, int i, const DLTensor *like, const Seen *seen)
{
    DLTensor g;
    return has_type(py, grad, address(py->tensor)) && !py->describe(grad, &g) &&
           (!seen->count[i] || address(g.data) + g.byte_offset == seen->grad[i]) &&
           !memcmp(&g.dtype, &like->dtype, sizeof g.dtype) && !memcmp(&g.device, &like->device, sizeof g.device) &&
           is_row_major(&g, seen->count[i]);
}

static int param_stays(const PythonCalls *py, void *stepped, int i, const Seen *seen)
{
    return address(stepped) == seen->stepped[i] && has_type(py, stepped, seen->type[i]) &&
           address(py->data_ptr(stepped)) == seen->param[i];
}

/* Compares an attribute with an object that the caller holds. */
static int attr_is(const PythonCalls *py, void *object, void *name, uint64_t want)
{
    void *found = py->get_attr(object, name);
    drop(py, found);
    return found && address(found) == want;
}

static int local_grad_stays(const PythonCalls *py, void *grad, int i, const DLTensor *like, const Seen *seen)
{
    void *local = attr_is(py, grad, py->spec, seen->spec[i]) ? py->get_attr(grad, py->local) : NULL;
    int same = local && grad_stays(py, local, i, like, seen);
    drop(py, local);
    return same;
}

static int one_stays(const PythonCalls *py, void *param, int i, const DLTensor *like, const Seen *seen)
{
    void *local = seen->spec[i] ? py->get_attr(param, py->local) : NULL, *grad;
    int same = seen->spec[i] ? local && attr_is(py, param, py->spec, seen->spec[i]) && param_stays(py, local, i, seen)
                             : param_stays(py, param, i, seen);
    drop(py, local);
    if (!same || !(grad = py->get_attr(param, py->grad)))
        return 0;
    if (!seen->grad[i] || grad == py->none)
        same = !seen->grad[i] && grad == py->none;
    else
        same = (seen->spec[i] ? local_grad_stays : grad_stays)(py, grad, i, like, seen);
    drop(py, grad);
    return same;
}

/* 1: nothing moved, and all gradients are row-major tensors with the type and the device of `like`. params: a list */
int optc_objects_stay(const PythonCalls *py, void *params, int n, void *like, const Seen *seen)
{
    DLTensor want;
    int same = !py->describe(like, &want);
    for (int i = 0; i < n && same; i++) {
        void *param = py->get_item(params, i);
        same = param && one_stays(py, param, i, &want, seen);
    }
    return same;
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
