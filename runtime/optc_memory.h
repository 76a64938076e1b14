/* library: */
/* Memory of the device for parameters, gradients and inputs, on the CPU and on GPUs. optc.h
 * includes this file: programs include optc.h only. */
/* :library */
#ifndef OPTC_PUBLIC_MEMORY_H
#define OPTC_PUBLIC_MEMORY_H

/* Work is in the order of `stream`, a CUstream; NULL on the CPU, and for the GPU's default stream.
 * Pass the binding's stream (optc_set_stream). Several threads may call these functions on one
 * engine.
 *
 * optc_alloc returns memory that is filled with zeros, aligned to 64 bytes on the CPU and to 256
 * bytes on a GPU. It comes from optc_engine_options.allocator, or on a GPU from the device's
 * stream-ordered pool. (In packages of `optc ship`, and for large blocks, it comes from
 * cuMemAlloc.) optc_memory_info counts it. bytes may be 0. */
optc_status optc_alloc(optc_engine *e, int64_t bytes, void *stream, void **out);
/* Frees memory of optc_alloc; NULL is allowed. Unbind the tensors in it first. Refuses memory that
 * is already freed, that optc_alloc did not return, or that belongs to another engine. optc_close
 * refuses to close an engine that still has memory. */
optc_status optc_free(optc_engine *e, void *memory, void *stream);
/* Sets `count` values of a storage type (0: f32) to `value`, which is rounded to nearest. diagonal:
 * 0, or the number of rows of the square matrices that `to` consists of: their diagonals become
 * `value`, all other values 0. Block codes (q8, q8u, f8, f8u) are refused. `to` may be any memory
 * of the device. */
optc_status optc_fill(optc_engine *e, void *to, int64_t count, optc_type type, double value,
                      int64_t diagonal, void *stream);
/* Copies bytes between the host and the device, or inside one of them. The ranges must not overlap.
 * The caller may change or free a pageable host array when the call returns, and data for it has
 * then arrived. If one array is in device memory and the other one in device or pinned memory, the
 * call only enqueues the copy. Between two host arrays, pinned or not, it waits for the stream and
 * copies. Memory of another GPU is refused. In a captured stream pageable host memory is refused,
 * since each replay would use its address again, and so are copies between two host arrays. */
optc_status optc_copy(optc_engine *e, void *to, const void *from, int64_t bytes, void *stream);
#endif
