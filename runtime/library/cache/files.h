/* Files and folders: paths, whole reads and writes, locks. */
#ifndef OPTC_FILES_H
#define OPTC_FILES_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef char Path[PATH_MAX];
/* false: too long */
bool path_print(Path p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes a new folder in $TMPDIR or /tmp. false: errno has the reason, p the path that was tried. */
bool temp_folder(Path p, const char *name);
/* Makes a folder and its parents. false: errno has the reason. path is modified during the call and
 * restored. */
bool folders_make(char *path, mode_t mode);
/* others may write it, or the owner is neither this user nor root */
bool file_others_write(const struct stat *st);
/* Reads a whole file of at most `most` bytes into *data: malloc'ed, a 0 behind it. false: why says
 * "PATH: …".
 * FILE_OPTIONAL: a file that does not exist gives *data NULL and true. FILE_TRUSTED: refuses a file
 * that others can write. */
enum { FILE_OPTIONAL = 1, FILE_TRUSTED = 2 };
bool file_load(const char *path, int64_t most, unsigned how, char **data, size_t *n, char *why,
               size_t nwhy);
/* The same without a limit or a message. NULL: the file cannot be read. */
char *file_read(const char *path, size_t *n);
/* Writes a file, and removes it if the write fails: readers could not tell a truncated file from a
 * complete one. */
bool file_write(const char *path, const void *data, size_t n);
/* writes all n bytes, or returns false */
bool file_put(int fd, const void *data, size_t n);
/* Locks or unlocks (type) one byte without waiting: 0, or -1 and errno. Uses locks of the open
 * file, which exclude other threads too; if the kernel has none, locks of the process, which
 * exclude only other processes. */
int file_lock(int fd, short type, off_t at);
#endif
