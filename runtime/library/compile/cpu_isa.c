/* Vector levels of the CPU: their compiler flags, whether this CPU has them, and the CPU's name. */
#include "runtime/library/internal.h"
#include "runtime/core/matrix/cpu_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool level_0(void) { return true; }
#if defined(__x86_64__)
static bool level_1(void) { return cpu_level() >= 1; }
static bool level_2(void) { return cpu_level() >= 2; }
const Isa isas[] = {{"x86-64", "-march=x86-64", level_0},
                    {"x86-64-v3", "-march=x86-64-v3", level_1},
                    {"x86-64-v4", "-march=x86-64-v4", level_2},
                    {NULL, NULL, NULL}};
#elif defined(__aarch64__)
static bool level_1(void) { return cpu_level() >= 1; }
const Isa isas[] = {{"armv8-a", "-march=armv8-a", level_0},
                    {"armv8.2-a+sve", "-march=armv8.2-a+sve", level_1},
                    {NULL, NULL, NULL}};
#else
const Isa isas[] = {{"generic", "", level_0}, {NULL, NULL, NULL}};
#endif

/* No contraction and no reassociation: every operation rounds once, on every machine. The two -fno
 * flags change no value; with them the compiler vectorises loops with square roots and comparisons.
 * The Makefile gets these flags and those of each level from prebuild. */
const char compile_flags[] =
    "-std=gnu11 -O3 -fPIC -ffp-contract=off -fno-math-errno -fno-trapping-math -w";

int isa_best(void)
{
    int best = 0;
    for (int i = 0; isas[i].name; i++)
        if (isas[i].usable())
            best = i;
    return best;
}

int isa_by_name(const char *name)
{
    for (int i = 0; isas[i].name; i++)
        if (!strcmp(isas[i].name, name))
            return i;
    return -1;
}

int optc_isas(void)
{
    int n = 0;
    while (isas[n].name)
        n++;
    return n;
}

const char *optc_isa_name(int i) { return i >= 0 && i < optc_isas() ? isas[i].name : NULL; }
int optc_isa_usable(int i) { return i >= 0 && i < optc_isas() && isas[i].usable(); }

/* ARM's /proc/cpuinfo has numbers, not names. */
static const struct { unsigned maker, part; const char *name; } arm_cores[] = {
    {0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd07, "Cortex-A57"},  {0x41, 0xd08, "Cortex-A72"},
    {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse-N1"}, {0x41, 0xd40, "Neoverse-V1"},
    {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4f, "Neoverse-V2"}, {0x41, 0xd84, "Neoverse-V3"},
    {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},       {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1A"},
};

static void arm_name(unsigned maker, unsigned part, char *buf, size_t n)
{
    snprintf(buf, n, "ARM core 0x%02x:0x%03x", maker, part);
    for (size_t i = 0; i < sizeof arm_cores / sizeof *arm_cores; i++)
        if (arm_cores[i].maker == maker && arm_cores[i].part == part)
            snprintf(buf, n, "%s", arm_cores[i].name);
}

/* The name of the first core in a text like /proc/cpuinfo. */
const char *cpu_model_in(FILE *f, char *buf, size_t n)
{
    char line[256];
    unsigned maker = 0, part = 0;
    snprintf(buf, n, "%s", isas[0].name);
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        colon[strcspn(colon, "\n")] = 0;
        if (!strncmp(line, "model name", 10)) {
            snprintf(buf, n, "%s", colon + (colon[1] ? 2 : 1));
            return buf;
        }
        if (!strncmp(line, "CPU implementer", 15))
            maker = (unsigned)strtoul(colon + 1, NULL, 0);
        if (!strncmp(line, "CPU part", 8)) {
            part = (unsigned)strtoul(colon + 1, NULL, 0);
            arm_name(maker, part, buf, n);
            return buf;
        }
    }
    return buf;
}

const char *cpu_model(char *buf, size_t n)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    cpu_model_in(f, buf, n);
    if (f)
        fclose(f);
    return buf;
}
