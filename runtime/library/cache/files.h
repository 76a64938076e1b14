/* What several parts do with files. */
#ifndef OPTC_FILES_H
#define OPTC_FILES_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef char Path[PATH_MAX];
bool path_print(Path p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));      /* false: too long */
/* a new one, in $TMPDIR or /tmp; false: errno says why, p which */
bool temp_folder(Path p, const char *name);
/* Makes a folder and those above it. false: errno says why. path is changed and restored. */
bool folders_make(char *path, mode_t mode);
bool file_others_write(const struct stat *st);             /* it belongs to another user, or others may write it */
/* Reads a whole file of at most `most` bytes into *data: malloc'ed, a 0 behind it. false: why says "PATH: …".
 * FILE_OPTIONAL: a file that does not exist gives *data NULL and true. FILE_TRUSTED: refuses a file that others can
 * write. FILE_MAY_GROW: what is appended meanwhile may be left out. */
enum { FILE_OPTIONAL = 1, FILE_TRUSTED = 2, FILE_MAY_GROW = 4 };
bool file_load(const char *path, int64_t most, unsigned how, char **data, size_t *n, char *why, size_t nwhy);
/* the same without a limit or a message; NULL: it cannot be read */
char *file_read(const char *path, size_t *n);
/* whole or not at all: half a file would look like a whole one */
bool file_write(const char *path, const void *data, size_t n);
bool file_put(int fd, const void *data, size_t n);                     /* all of it */
/* Of one byte, without waiting: 0, or -1 and errno. Locks of the open file, so that threads exclude each other too;
 * where the kernel has none, locks of the process, which exclude other processes at least. */
int file_lock(int fd, short type, off_t at);
#endif
