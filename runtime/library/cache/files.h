/* What several parts do with files. */
#ifndef OPTC_FILES_H
#define OPTC_FILES_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef char Path[PATH_MAX];
bool path_print(Path p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));      /* false: too long */
/* a new one, in $TMPDIR or /tmp; false: errno says why, p which */
bool temp_folder(Path p, const char *name);
/* malloc'ed, a 0 behind it; NULL: there is none, or not all of it could be read */
char *file_read(const char *path, size_t *n);
/* whole or not at all: half a file would look like a whole one */
bool file_write(const char *path, const void *data, size_t n);
bool file_put(int fd, const void *data, size_t n);                     /* all of it */
/* Of one byte, without waiting: 0, or -1 and errno. Locks of the open file, so that threads exclude each other too;
 * where the kernel has none, locks of the process, which exclude other processes at least. */
int file_lock(int fd, short type, off_t at);
#endif
