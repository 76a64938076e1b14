/* Reads text line by line: tuning results, notes of cache entries, manifests of
 * packages, bars of benchmarks. Errors name the file and the line. */
#ifndef OPTC_LINE_READER_H
#define OPTC_LINE_READER_H
#include <stdbool.h>
#include <stddef.h>

typedef struct LineReader {
    const char *name;          /* the file's, for errors */
    char *at, *end;            /* the rest of the text. Lines are cut in place, so *end must be
                                * writable */
    int line;                  /* number of the current line, from 1 */
    bool strict;               /* for files that people edit: line_next checks every line */
    char *why; size_t nwhy;    /* the error message */
} LineReader;

/* Writes "NAME:LINE: …" to why. Returns false. */
bool line_bad(const LineReader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The next line without its newline, and without a carriage return before it. Returns 1; 0 at the
 * end of the text; -1 if a strict reader finds a line without a newline, a line of more than 1024
 * bytes, a control character other than a tab, or bytes that are not UTF-8. */
int line_next(LineReader *r, char **line);
/* The next word of a line; blanks and tabs separate words. Moves *s behind it. NULL: there are no
 * more words. */
char *line_word(char **s);
/* Cuts blanks and tabs at both ends. */
char *line_trim(char *s);
/* Cuts name=value at the '=' and returns the value. NULL: the word has no name or no '='. */
char *line_value(char *word);
/* Digits alone, without a sign or leading zeros, from lo to hi; hi below 10^9 or INT_MAX. */
bool line_int(const char *s, int lo, int hi, int *out);
/* A finite decimal number from 0. Call it between locale_plain and locale_back. */
bool line_real(const char *s, double *out);
/* Bytes of the UTF-8 character at s, of n bytes. 0: it is a control character or not UTF-8. */
size_t line_char(const char *s, size_t n);
#endif
