/* Tuning results as text and as lists: written text reads back, errors are reported by line, merges
 * keep the better result; built-in results belong to existing stages. */
#include "tests/harness/tuned_home.h"

#include <limits.h>

/* ---- results as text ---- */
START_TEST(fields_are_read)
{
    TunedList l = list_of(HEAD "# said by hand\n\n" H200 LINE
                               "device many | units 4096 | driver 0\n"
                               "cpu bf16,f32,f64\t" OTHER
                               " 2^0 n=1 model=2e-3 ms=1e-3 grid=0 "
                               "store=0 load=0 blocks=0 items=1048576 "
                               "vector=1 threads=4096 x-new=7\n");
    ck_assert_int_eq(l.n, 2);
    const Tuned *t = &l.v[0];
    ck_assert_str_eq(t->key.device, "NVIDIA H200");
    ck_assert_int_eq(t->key.units, 132);
    ck_assert_int_eq(t->key.driver, 580);
    ck_assert_int_eq(t->key.form, FORM_MAP);
    ck_assert_str_eq(t->key.types, "f32,f32,f32");
    ck_assert_str_eq(t->key.stage, HASH);
    ck_assert_int_eq(t->key.bucket, 28);
    const int want[NKNOB] = {256, 4, 2, 0, 0, 0, 0};
    ck_assert_mem_eq(t->launch.v, want, sizeof want);
    ck_assert(t->ms == 1.795 && t->model_ms == 1.801 && t->samples == 25);
    ck_assert_str_eq(t->label, "adamw step_1_map");
    t = &l.v[1];
    ck_assert(t->key.form == FORM_CPU && t->key.bucket == 0 && t->ms == 1e-3 &&
              t->model_ms == 2e-3 && t->samples == 1 && !*t->label);
    ck_assert(t->launch.v[KNOB_THREADS] == 4096 && t->launch.v[KNOB_ITEMS] == 1048576);
    ck_assert_str_eq(t->key.types, "bf16,f32,f64");
    tuned_free(&l);
}
END_TEST

START_TEST(text_reads_back)
{
    static const double times[] = {0.1,           1.0 / 3, 1e-300, 1.7976931348623157e308,
                                   123456789.125, 5e-324};
    static const char *const devices[] = {"b", "A  name\twith | odd\nthings", "", "Kunst-\xc3\xb6"};
    TunedList l = {0}, again = {0};
    for (int i = 0; i < 96; i++) {
        Tuned t = entry(devices[i % 4],
                        i % 3 == 0   ? FORM_MAP
                        : i % 3 == 1 ? FORM_CPU
                                     : FORM_FOLD,
                        i % 2 ? HASH : OTHER, i / 24 * 4, times[i % 6], times[(i + 1) % 6], i + 1);
        strcpy(t.key.types, i % 7 ? "f32,f32,f32" : "bf16,bf16,q8+1b0a9c2e");
        strcpy(t.label, i % 5 ? "a # label  with\x01 control" : "");
        ck_assert(tuned_put(&l, &t));
    }
    char *text = tuned_text(&l);
    ck_assert_msg(parse(&again, text), "%s", why);
    ck_assert_int_eq(again.n, l.n);
    for (int i = 0; i < l.n; i++)
        ck_assert(!tuned_compare(&l.v[i].key, &again.v[i].key) &&
                  !memcmp(&l.v[i].launch, &again.v[i].launch, sizeof(Launch)) &&
                  l.v[i].ms == again.v[i].ms && l.v[i].model_ms == again.v[i].model_ms &&
                  l.v[i].samples == again.v[i].samples && !strcmp(l.v[i].label, again.v[i].label));
    ck_assert_ptr_nonnull(strstr(text, "device A name with odd things | units"));
    ck_assert_ptr_nonnull(strstr(text, "device unknown | units"));
    ck_assert_ptr_nonnull(strstr(text, "# a # label with control\n"));
    char *twice = tuned_text(&again);
    ck_assert_str_eq(text, twice);
    free(text);
    free(twice);
    tuned_free(&l);
    tuned_free(&again);
}
END_TEST

/* The output does not depend on the input's order. */
START_TEST(order_is_fixed)
{
    Tuned t[] = {entry("b", FORM_MAP, HASH, 4, 1, 2, 3), entry("a", FORM_FOLD, HASH, 4, 1, 2, 3),
                 entry("a", FORM_MAP, OTHER, 4, 1, 2, 3), entry("a", FORM_MAP, HASH, 28, 1, 2, 3),
                 entry("a", FORM_MAP, HASH, 4, 1, 2, 3)};
    const char *want =
        HEAD "device a | units 132 | driver 580\n"
             "map f32,f32,f32 " HASH " 2^4 " KNOBS " ms=1 model=2 n=3 # rule kernel\n"
             "map f32,f32,f32 " HASH " 2^28 " KNOBS " ms=1 model=2 n=3 # rule kernel\n"
             "map f32,f32,f32 " OTHER " 2^4 " KNOBS " ms=1 model=2 n=3 # rule kernel\n"
             "fold f32,f32,f32 " HASH
             " 2^4 threads=128 vector=4 items=4 blocks=0 load=0 store=0 grid=0 ms=1 model=2 n=3 # "
             "rule kernel\n"
             "\ndevice b | units 132 | driver 580\n"
             "map f32,f32,f32 " HASH " 2^4 " KNOBS " ms=1 model=2 n=3 # rule kernel\n";
    for (int turn = 0; turn < 5; turn++) {
        TunedList l = {0};
        for (int i = 0; i < 5; i++)
            ck_assert(tuned_put(&l, &t[(i * 2 + turn) % 5]));
        char *text = tuned_text(&l);
        ck_assert_str_eq(text, want);
        free(text);
        tuned_free(&l);
    }
}
END_TEST

START_TEST(lenient_where_harmless)
{
    char *plain = tuned_text(&(TunedList){0});
    ck_assert_str_eq(plain, HEAD);
    free(plain);
    TunedList l = list_of("optc-tune 1\r\n\r\n   # x\r\n\tdevice  A |units 1|  driver 0 \r\n  " MAP
                          "  " KNOBS TIMES "   #   label   \r\ndevice A | units 1 | driver 0\r\n");
    ck_assert_int_eq(l.n, 1);
    ck_assert_str_eq(l.v[0].label, "label");
    ck_assert_int_eq(l.v[0].key.units, 1);
    tuned_free(&l);
}
END_TEST

/* A decimal comma in the program's locale does not affect the file. */
START_TEST(locale_does_not_matter)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    for (int i = 0; i < 4 && !setlocale(LC_ALL, names[i]); i++)
        ;
    TunedList l = list_of(HEAD H200 LINE);
    char *text = tuned_text(&l);
    ck_assert_str_eq(text, HEAD H200 LINE);
    setlocale(LC_ALL, "C");
    free(text);
    tuned_free(&l);
}
END_TEST

/* ---- what is refused ---- */
#define AT(...) HEAD H200 LINE __VA_ARGS__ "\n"
#define E2 "map f32,f32,f32 " OTHER " 2^28 "
#define C2 "cpu f32,f32,f32 " OTHER " 2^28 "
static const struct Bad { const char *text; int line; const char *part;
} bads[] = {
    {"", 1, "empty: it should begin with 'optc-tune 1'"},
    {"\n", 1, "not a file of tuning results"},
    {"# hello\n" HEAD, 1, "not a file of tuning results"},
    {"\xef\xbb\xbf" HEAD, 1, "not a file of tuning results"},
    {"optc-tune 2\n" H200 LINE, 1,
     "of another version: 'optc-tune 2'; this optc reads 'optc-tune 1'"},
    {"optc-tune 1 \n", 1, "of another version"},
    {"optc-tune\n", 1, "not a file of"},
    {"optc-trials 1\n", 1, "these are trials, not results"},
    {"optc-tune 1", 1, "cut short"},
    {HEAD H200 MAP KNOBS TIMES, 3, "cut short: the line has no newline"},
    {HEAD H200 LINE "map f32,f3", 4, "cut short"},
    {HEAD LINE, 2, "before the first line 'device NAME | units N | driver N'"},
    {HEAD "device\n", 2, "before the first line"},
    {HEAD "devise X | units 1 | driver 1\n", 2, "before the first line"},
    {AT("devise X | units 1 | driver 1"), 4,
     "unknown kind of stage 'devise'; did you mean 'device'"},
    {HEAD "device X\n", 2, "a device is 'device NAME | units N | driver N'"},
    {HEAD "device X | units 1\n", 2, "a device is"},
    {HEAD "device X | units 0 | driver 1\n", 2, "a device is"},
    {HEAD "device X | units -1 | driver 1\n", 2, "a device is"},
    {HEAD "device X | units 1 | driver 99999999999999999999\n", 2, "a device is"},
    {HEAD "device X | driver 1 | units 1\n", 2, "a device is"},
    {HEAD "device X | units 1 | driver 1 | more\n", 2, "a device is"},
    {HEAD "device X | units 1 2 | driver 1\n", 2, "a device is"},
    {HEAD "device  | units 1 | driver 1\n", 2, "name has 1 to 95 bytes"},
    {HEAD "device "
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaaaa | "
          "units 1 | driver 1\n",
     2, "name has 1 to 95 bytes"},
    {AT("mpa f32,f32,f32 " OTHER " 2^28 " KNOBS TIMES), 4,
     "unknown kind of stage 'mpa'; did you mean 'cpu' or 'map'?"},
    {AT("elephant f32,f32,f32 " OTHER " 2^28 " KNOBS TIMES), 4, "unknown kind of stage 'elephant'"},
    {AT("map"), 4, "it ends before the storage types"},
    {AT("map f32,f32,f32"), 4, "it ends before the stage's hash"},
    {AT("map f32,f32,f32 " OTHER), 4, "it ends before the size"},
    {AT("map f32,f32 " OTHER " 2^28 " KNOBS TIMES), 4, "must be three storage types"},
    {AT("map f32,f32,q8+12 " OTHER " 2^28 " KNOBS TIMES), 4, "must be three storage types"},
    {AT("map f32+12345678 " OTHER " 2^28 " KNOBS TIMES), 4, "must be three storage types"},
    {AT("map f32,f32,f32,f32 " OTHER " 2^28 " KNOBS TIMES), 4, "must be three storage types"},
    {AT("map f32,f33,f32 " OTHER " 2^28 " KNOBS TIMES), 4,
     "unknown storage type 'f33'; did you mean 'f32'"},
    {AT("map f32,,f32 " OTHER " 2^28 " KNOBS TIMES), 4, "unknown storage type ''"},
    {AT("map f32,f32, " OTHER " 2^28 " KNOBS TIMES), 4, "unknown storage type ''"},
    {AT("map f32,f32,ffffffffffffffffffffffffffffffffffffffffff " OTHER " 2^28 " KNOBS TIMES), 4,
     "unknown storage type 'fffffffffffffff'"},
    {AT("map f32,f32,f32 0123 2^28 " KNOBS TIMES), 4, "'0123' is no stage's hash: 32 digits"},
    {AT("map f32,f32,f32 0123456789abcdef0123456789abcdeg 2^28 " KNOBS TIMES), 4,
     "is no stage's hash"},
    {AT("map f32,f32,f32 0123456789ABCDEF0123456789abcdef 2^28 " KNOBS TIMES), 4,
     "is no stage's hash"},
    {AT("map f32,f32,f32 " OTHER "0 2^28 " KNOBS TIMES), 4, "is no stage's hash"},
    {AT("map f32,f32,f32 " OTHER " 28 " KNOBS TIMES), 4, "'28' is no size"},
    {AT("map f32,f32,f32 " OTHER " 2^27 " KNOBS TIMES), 4, "'2^27' is no size"},
    {AT("map f32,f32,f32 " OTHER " 2^42 " KNOBS TIMES), 4, "'2^42' is no size"},
    {AT("map f32,f32,f32 " OTHER " 2^-2 " KNOBS TIMES), 4, "'2^-2' is no size"},
    {AT("map f32,f32,f32 " OTHER " 2^ " KNOBS TIMES), 4, "is no size"},
    {AT("map f32,f32,f32 " OTHER " 2^028 " KNOBS TIMES), 4, "is no size"},
    {AT(E2 "thread=256 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "unknown knob 'thread'; did you mean 'threads'?"},
    {AT(E2 KNOBS " shoe=3" TIMES), 4, "unknown knob 'shoe'"},
    {AT(E2 KNOBS " x=3" TIMES), 4, "unknown knob 'x'"},
    {AT(E2 KNOBS " from=model" TIMES), 4, "unknown knob 'from'"},
    {AT(E2 KNOBS " load=0" TIMES), 4, "load= stands here twice"},
    {AT(E2 KNOBS TIMES " ms=2"), 4, "ms= stands here twice"},
    {AT(E2 "threads=256 vector=4 items=2 blocks=0 load=0 store=0" TIMES), 4, "grid= is missing"},
    {AT(E2 KNOBS " ms=1 n=3"), 4, "model= is missing"},
    {AT(E2 KNOBS), 4, "ms= is missing"},
    {AT(E2), 4, "threads= is missing"},
    {AT(E2 "# " KNOBS TIMES), 4, "threads= is missing"},
    {AT(E2 "threads=257 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "threads=257: for map it is 128, 256 or 512"},
    {AT("tile f32,f32,f32 " OTHER
        " 2^28 threads=256 vector=2 items=1 blocks=0 load=0 store=0 grid=0" TIMES),
     4, "vector=2: for tile it is 4"},
    {AT(E2 "threads=-256 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "threads=-256 is not a whole number"},
    {AT(E2 "threads=256.0 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "threads=256.0 is not a whole number"},
    {AT(E2 "threads= vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "threads= is not a whole number"},
    {AT(E2 "threads=99999999999999999999 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "is not a whole number"},
    {AT(E2 "threads 256 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "'threads' is not name=value"},
    {AT(E2 "=256 vector=4 items=2 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "'=256' is not name=value"},
    {AT(C2 "threads=4097 vector=1 items=0 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "threads=4097: at most 4096"},
    {AT(C2 "threads=1 vector=1 items=1048577 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "items=1048577: at most 1048576"},
    {AT(C2 "threads=1 vector=2 items=0 blocks=0 load=0 store=0 grid=0" TIMES), 4,
     "vector=2: for cpu it is 1"},
    {AT(E2 KNOBS " ms=0 model=1 n=3"), 4, "ms=0 must be a time in milliseconds above 0"},
    {AT(E2 KNOBS " ms=-1 model=1 n=3"), 4, "ms=-1 must be"},
    {AT(E2 KNOBS " ms=nan model=1 n=3"), 4, "ms=nan must be"},
    {AT(E2 KNOBS " ms=inf model=1 n=3"), 4, "ms=inf must be"},
    {AT(E2 KNOBS " ms=failed model=1 n=3"), 4, "ms=failed must be"},
    {AT(E2 KNOBS " ms=1e999 model=1 n=3"), 4, "ms=1e999 must be"},
    {AT(E2 KNOBS " ms=1e-999 model=1 n=3"), 4, "ms=1e-999 must be"},
    {AT(E2 KNOBS " ms=0x1p3 model=1 n=3"), 4, "ms=0x1p3 must be"},
    {AT(E2 KNOBS " ms=1,5 model=1 n=3"), 4, "ms=1,5 must be"},
    {AT(E2 KNOBS " ms=1.5.2 model=1 n=3"), 4, "ms=1.5.2 must be"},
    {AT(E2 KNOBS " ms=1 model=zero n=3"), 4, "model=zero must be"},
    {AT(E2 KNOBS " ms=1 model=1 n=0"), 4, "n=0 must be a whole number from 1"},
    {AT(E2 KNOBS " ms=1 model=1 n=1.5"), 4, "n=1.5 must be"},
    {AT(E2 KNOBS " ms=1 model=1 n=9999999999"), 4, "n=9999999999 must be"},
    {AT(E2 KNOBS TIMES
        " # 1234567890123456789012345678901234567890123456789012345678901234567890123456789012"),
     4, "has 82 bytes; at most 79"},
    {HEAD H200 LINE "\n# again\n" LINE, 6, "the same stage and size as line 3"},
    {HEAD H200 LINE "device B | units 1 | driver 1\n" LINE H200 LINE LINE, 7,
     "the same stage and size as line 3"},
    {AT("# \x1b[31mred"), 4, "byte 3 of the line (0x1b) is a control character or not UTF-8"},
    {AT("# a\rb"), 4, "byte 4 of the line (0x0d)"},
    {AT("# \xff"), 4, "byte 3 of the line (0xff)"},
    {AT("# \xc0\xaf"), 4, "byte 3 of the line (0xc0)"},
    {AT("# \xed\xa0\x80"), 4, "byte 3 of the line (0xed)"},
    {AT("<<<<<<< ours"), 4, "it ends before the stage's hash"},
    {AT("<<<<<<< HEAD of a merge"), 4, "unknown kind of stage '<<<<<<<'"},
};

START_TEST(bad_text_is_refused)
{
    const struct Bad *b = &bads[_i];
    TunedList l = list_of(HEAD H200 LINE);
    char at[32];
    snprintf(at, sizeof at, "f:%d: ", b->line);
    ck_assert_msg(!parse(&l, b->text), "taken: %s", b->text);
    ck_assert_msg(!strncmp(why, at, strlen(at)), "wanted line %d: %s", b->line, why);
    ck_assert_msg(strstr(why, b->part), "wanted '%s': %s", b->part, why);
    char *text = tuned_text(&l);
    ck_assert_str_eq(text, HEAD H200 LINE);        /* unchanged */
    free(text);
    tuned_free(&l);
}
END_TEST

START_TEST(bad_bytes_and_sizes)
{
    static const char nul[] = HEAD H200 "# a\0b\n";
    TunedList l = {0};
    ck_assert(!tuned_parse(&l, "f", nul, sizeof nul - 1, why, sizeof why));
    ck_assert_msg(strstr(why, "f:3: byte 4 of the line (0x00)"), "%s", why);
    Buf b = {0};
    buf_puts(&b, HEAD "#");
    for (int i = 0; i < 1024; i++)
        buf_puts(&b, "x");
    buf_puts(&b, "\n");
    ck_assert(!parse(&l, b.s));
    ck_assert_msg(strstr(why, "f:2: the line is longer than 1024 bytes"), "%s", why);
    buf_free(&b);
    make_home();
    const char *path = in_home("big");
    spill(path, "", 0);
    ck_assert_int_eq(truncate(path, (16 << 20) + 1), 0);
    ck_assert(!tuned_read(&l, path, why, sizeof why));
    ck_assert_msg(strstr(why, "larger than 16 MiB"), "%s", why);
    ck_assert(!tuned_read(&l, home, why, sizeof why));
    ck_assert_msg(strstr(why, "Is a directory"), "%s", why);
    path = in_home("pipe");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!tuned_read(&l, path, why, sizeof why));
    ck_assert_msg(strstr(why, "not a file"), "%s", why);
    ck_assert(tuned_read(&l, in_home("none"), why, sizeof why) && l.n == 0);
    char tiny[8];
    ck_assert(!tuned_parse(&l, "a-name-longer-than-the-room", "x\n", 2, tiny, sizeof tiny));
    ck_assert_str_eq(tiny, "a-name-");
    drop_home();
}
END_TEST

/* Any damage to a good file: no crash, and either a message with a line or a list that prints and
 * reads back identically. */
START_TEST(damage_never_hurts)
{
    static const char good[] = HEAD "# c\n" H200 LINE "fold bf16,f32,f32 " OTHER
                                    " 2^10 threads=128 vector=4 items=4 blocks=0 load=1 store=1 "
                                    "grid=8 ms=0.25 model=0.5 n=3 x-a=b # lamb\n"
                                    "\ndevice CPU | units 4 | driver 0\ncpu f64,f64,f64 " OTHER
                                    " 2^20 threads=3 vector=1 items=9 blocks=0 load=0 "
                                    "store=0 grid=0 ms=2 model=3 n=7\n";
    int taken = 0, refused = 0;
    for (uint64_t seed = 0; seed < 30000; seed++) {
        char text[sizeof good + 64];
        size_t n = sizeof good - 1;
        memcpy(text, good, n);
        int edits = 1 + (int)(splitmix(seed) % 4);
        for (int e = 0; e < edits; e++) {
            uint64_t r = splitmix(seed * 8 + (uint64_t)e + 1);
            size_t at = (size_t)(r >> 8) % n, from = (size_t)(r >> 32) % n;
            switch (r % 5) {
            case 0: text[at] ^= (char)(1 << (r >> 60 & 7)); break;
            case 1: text[at] = (char)(r >> 50); break;
            case 2: n = at + 1; break;
            case 3: memmove(text + at, text + at + 1, n - at - 1); n -= n > 1; break;
            default: text[at] = text[from]; break;
            }
        }
        /* of exactly this size, so that the sanitizer sees a read past the end */
        char *copy = malloc(n);
        memcpy(copy, text, n);
        TunedList l = {0}, again = {0};
        *why = 0;
        if (tuned_parse(&l, "f", copy, n, why, sizeof why)) {
            char *a = tuned_text(&l);
            ck_assert_msg(parse(&again, a), "%s", why);
            char *b = tuned_text(&again);
            ck_assert_str_eq(a, b);
            free(a);
            free(b);
            taken++;
        } else {
            ck_assert_msg(!strncmp(why, "f:", 2) && atoi(why + 2) >= 1 && atoi(why + 2) <= 10 &&
                              strlen(why) > 8,
                          "%s", why);
            ck_assert(l.n == 0 && !l.v);
            refused++;
        }
        free(copy);
        tuned_free(&l);
        tuned_free(&again);
    }
    ck_assert(taken > 1000 && refused > 1000);
}
END_TEST

/* ---- lists ---- */
START_TEST(buckets)
{
    static const struct { int64_t n; int bucket;
    } cases[] = {{0, 0},
                 {1, 0},
                 {2, 2},
                 {7, 2},
                 {8, 4},
                 {31, 4},
                 {1 << 26, 26},
                 {(1 << 27) - 1, 26},
                 {1 << 27, 28},
                 {1 << 28, 28},
                 {(1 << 29) - 1, 28},
                 {1 << 29, 30},
                 {(int64_t)1 << 40, 40},
                 {INT64_MAX, 40},
                 {-5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(tuned_bucket(cases[i].n) == cases[i].bucket, "%lld gave %d",
                      (long long)cases[i].n, tuned_bucket(cases[i].n));
}
END_TEST

/* A result is used in its own bucket and the neighbouring ones, further only if all are large;
 * never across a border of the model. */
START_TEST(reach)
{
    static const struct { int ask, lo, hi, least, most;
    } cases[] = {{20, 0, 22, 18, 22},
                 {20, 0, 40, 18, 22},
                 {24, 23, INT_MAX, 23, 26},
                 {0, 0, 22, 0, 2},
                 {28, 23, INT_MAX, 26, INT_MAX},
                 {30, 23, INT_MAX, 28, INT_MAX},
                 {40, 23, INT_MAX, 28, INT_MAX},
                 {2, 0, 22, 0, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tuned k = entry("X", FORM_MAP, HASH, cases[i].ask, 0, 0, 0);
        int lo = cases[i].lo, hi = cases[i].hi;
        tuned_reach(&k.key, &lo, &hi);
        ck_assert_msg(lo == cases[i].least && hi == cases[i].most,
                      "2^%d takes results of 2^%d to 2^%d", cases[i].ask, lo, hi);
    }
}
END_TEST

START_TEST(nearest_bucket)
{
    TunedList l = {0};
    static const int have[] = {4, 10, 20, 28};
    static const struct { int ask, get;
    } cases[] = {{0, 4},   {4, 4},   {6, 4},   {8, 10},  {10, 10},
                 {14, 10}, {16, 20}, {24, 28}, {22, 20}, {40, 28}};
    for (int i = 0; i < 4; i++)
        tuned_put(&l, &(Tuned[]){entry("X", FORM_MAP, HASH, have[i], 1, 2, 3)}[0]);
    tuned_put(&l, &(Tuned[]){entry("X", FORM_MAP, OTHER, 14, 1, 2, 3)}[0]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tuned k = entry("X", FORM_MAP, HASH, cases[i].ask, 0, 0, 0);
        const Tuned *t = tuned_find(&l, &k.key);
        ck_assert(t && !strcmp(t->key.stage, HASH));
        ck_assert_msg(t->key.bucket == cases[i].get, "asked %d, got %d", cases[i].ask,
                      t->key.bucket);
    }
    /* every other part of the key must be equal */
    Tuned k[6];
    for (int i = 0; i < 6; i++)
        k[i] = entry("X", FORM_MAP, HASH, 10, 0, 0, 0);
    strcpy(k[0].key.device, "Y");
    k[1].key.units = 131;
    k[2].key.driver = 579;
    k[3].key.form = FORM_FOLD;
    strcpy(k[4].key.types, "f32,f32,f64");
    k[5].key.stage[31] = '0';
    for (int i = 0; i < 6; i++)
        ck_assert_msg(!tuned_find(&l, &k[i].key), "%d", i);
    ck_assert_ptr_null(tuned_find(&(TunedList){0}, &k[0].key));
    tuned_free(&l);
}
END_TEST

START_TEST(merge_keeps_the_better)
{
    static const struct {
        double ms, model;
        int n;
        double ms2, model2;
        int n2;
        bool replaced;
    } cases[] = {{1, 2, 9, 1, 3, 1, true},  {1, 3, 1, 1, 2, 9, false}, {1, 2, 5, 1, 2, 6, true},
                 {1, 2, 6, 1, 2, 5, false}, {1, 2, 5, 1, 2, 5, false}, {1, 2, 5, 10, 21, 5, true}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        TunedList a = {0}, b = {0};
        TunedMerge m;
        bool replaced = i % 2 || cases[i / 2].replaced;            /* the newest always replaces */
        TunedHow how = i % 2 ? TUNED_NEWEST : TUNED_BY_GAIN;
        Tuned t = entry("X", FORM_MAP, HASH, 10, cases[i / 2].ms, cases[i / 2].model,
                        cases[i / 2].n),
              u = entry("X", FORM_MAP, HASH, 10, cases[i / 2].ms2, cases[i / 2].model2,
                        cases[i / 2].n2);
        Tuned mine = entry("A", FORM_MAP, HASH, 10, 1, 1, 1),
              theirs = entry("Z", FORM_MAP, HASH, 10, 1, 1, 1);
        tuned_put(&a, &t);
        tuned_put(&a, &mine);
        tuned_put(&b, &theirs);
        tuned_put(&b, &u);
        ck_assert(tuned_merge(&a, &b, how, &m));
        ck_assert_msg(m.added == 1 && m.replaced == replaced && m.kept == !replaced,
                      "case %d: %d %d %d", (int)i, m.added, m.replaced, m.kept);
        ck_assert_int_eq(a.n, 3);
        ck_assert_int_eq(a.v[1].samples, replaced ? cases[i / 2].n2 : cases[i / 2].n);
        ck_assert(a.v[1].model_ms == (replaced ? cases[i / 2].model2 : cases[i / 2].model));
        tuned_free(&a);
        tuned_free(&b);
    }
}
END_TEST

/* Built-in results belong to stages of the library's rules and are valid launches. After a change
 * of the kernels they must be measured again. */
START_TEST(built_in_belongs)
{
    TunedSet set;
    tuned_open(&set);
    ck_assert_int_gt(set.builtin.n, 0);
    bool *seen = calloc((size_t)set.builtin.n, sizeof *seen);
    for (int i = 0; i < optc_library_size(); i++) {
        Gen g = {0};
        Source src;
        if (strchr(optc_library_name(i), '/'))
            continue;
        ck_assert(find_spec(NULL, optc_library_name(i), &g.arena, &src, &g.diag) &&
                  gen_compile(&g, src,
                              &(GenOptions){.types = {.p = T_F32, .g = T_F32, .state = T_F32},
                                            .find = find_wrapper,
                                            .target = &target_cuda}));
        for (int f = 0; f < g.plan->nfn; f++) {
            char hex[33];
            const Stage *st = plan_at(g.plan, f).stage;
            if (!st || !stage_tunes(st))
                continue;
            ck_assert(emit_cuda_stage_hash(&g, f, hex));
            for (int k = 0; k < set.builtin.n; k++)
                if (!strcmp(set.builtin.v[k].key.stage, hex)) {
                    seen[k] = true;
                    ck_assert_msg(set.builtin.v[k].key.form == stage_form(st) &&
                                      launch_valid(g.plan, st, &set.builtin.v[k].launch),
                                  "%s: its launch does not fit", set.builtin.v[k].label);
                }
        }
        gen_free(&g);
    }
    for (int k = 0; k < set.builtin.n; k++)
        ck_assert_msg(seen[k], "runtime/tuned: no rule has the stage of '%s' (%s) any more",
                      set.builtin.v[k].label, set.builtin.v[k].key.stage);
    free(seen);
    tuned_close(&set);
}
END_TEST

Suite *tuned_suite(void)
{
    Suite *s = suite_create("tuned");
    TCase *t = tcase_create("tuned");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, fields_are_read);
    tcase_add_test(t, text_reads_back);
    tcase_add_test(t, order_is_fixed);
    tcase_add_test(t, lenient_where_harmless);
    tcase_add_test(t, locale_does_not_matter);
    tcase_add_loop_test(t, bad_text_is_refused, 0, (int)(sizeof bads / sizeof *bads));
    tcase_add_test(t, bad_bytes_and_sizes);
    tcase_add_test(t, damage_never_hurts);
    tcase_add_test(t, buckets);
    tcase_add_test(t, reach);
    tcase_add_test(t, nearest_bucket);
    tcase_add_test(t, merge_keeps_the_better);
    tcase_add_test(t, built_in_belongs);
    suite_add_tcase(s, t);
    return s;
}
