/* Build helper. `embed TABLE FOLDER/ FILE...` prints a C table of the files' texts, keyed by path
 * without FOLDER/ and ".lua". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_file(const char *path, const char *key)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t n = strlen(key);
    if (n > 4 && !strcmp(key + n - 4, ".lua"))
        n -= 4;
    printf("    {\"%.*s\",\n     \"", (int)n, key);
    for (int c, col = 0; (c = getc(f)) != EOF; col++) {
        if (c == '\n') {
            printf("\\n\"\n     \"");
            col = 0;
        } else if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c == '?') {
            printf("\\?");
        } else if (c < 32 || c > 126) {
            printf("\\%03o", c);
        } else {
            putchar(c);
        }
    }
    puts("\"},");
    fclose(f);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: embed TABLE FOLDER/ FILE...\n");
        return 2;
    }
    printf("#include \"gen/abi/embedded.h\"\nconst Embedded %s[] = {\n", argv[1]);
    for (int i = 3; i < argc; i++) {
        size_t n = strlen(argv[2]);
        if (put_file(argv[i], strncmp(argv[i], argv[2], n) ? argv[i] : argv[i] + n))
            return 1;
    }
    puts("    {0, 0},\n};");
    return 0;
}
