/* Statuses and messages. Each thread has its own last message. */
#include "runtime/core/base/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char message[MOST_MESSAGE];

const char *optc_message(void) { return message; }
const char *optc_version(void) { return OPTC_VERSION; }
CORE void message_clear(void) { *message = 0; }

CORE optc_status fail(optc_status s, const char *fmt, ...)
{
    char text[sizeof message];           /* arguments may point into the old message */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message);
    return s;
}

CORE optc_status no_memory(const char *call)
{
    return fail(OPTC_ERROR_MEMORY, "%s: out of memory", call);
}

const char *optc_status_name(optc_status s)
{
    switch (s) {
    case OPTC_OK: return "ok";
    case OPTC_ERROR_ARGUMENT: return "bad argument";
    case OPTC_ERROR_SPEC: return "bad spec";
    case OPTC_ERROR_RANGE: return "out of range";
    case OPTC_ERROR_IO: return "input/output error";
    case OPTC_ERROR_MEMORY: return "out of memory";
    case OPTC_ERROR_UNAVAILABLE: return "unavailable";
    case OPTC_ERROR_BUSY: return "still in use";
    case OPTC_ERROR_DEVICE: return "device error";
    case OPTC_ERROR_ABSENT: return "not there";
    }
    return "unknown status";
}
