/* The table of functions that the core calls for a GPU. */
#include "runtime/core/gpu/gpu_device.h"

CORE const Device *gpu_device(void)
{
    static const Device d = {"gpu",
                             gpu_bind,
                             gpu_unbind,
                             gpu_run,
                             gpu_sync,
                             gpu_use_pointer,
                             gpu_set_stream,
                             gpu_read,
                             gpu_write,
                             gpu_spread,
                             gpu_send_hyper,
                             gpu_get_t,
                             gpu_set_t,
                             gpu_alloc_cohorts,
                             gpu_cohorts_grown,
                             gpu_participation_changed,
                             gpu_may_change_participation,
                             8,
                             gpu_memory,
                             false,
                             gpu_read_ahead,
                             gpu_call_bytes,
                             gpu_gather,
                             gpu_exchange,
                             gpu_memory_take,
                             gpu_memory_give,
                             gpu_memory_fills,
                             gpu_memory_set,
                             gpu_memory_copy,
                             gpu_gather_values,
                             gpu_beside,
                             gpu_joint,
                             gpu_refuse,
                             gpu_capturing,
                             true};
    return &d;
}
