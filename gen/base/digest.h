/* BLAKE2s-256 (RFC 7693): a cryptographic hash, for keys of content that may come from other users.
 * The other hashes (util.h) are for tables, names and checksums. */
#ifndef OPTC_DIGEST_H
#define OPTC_DIGEST_H
#include <stddef.h>

enum { DIGEST_BYTES = 32, DIGEST_HEX = 2 * DIGEST_BYTES + 1 };
void digest_hex(const void *data, size_t n, char out[DIGEST_HEX]);
#endif
