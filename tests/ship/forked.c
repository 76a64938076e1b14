/* Two packages and the library in one program share OpenMP's threads, which do not exist in a child
 * of fork(). All of them step in the child, whichever stepped before the fork. */
#include "optc.h"
#include "rules.h"
#include "rules2.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 300000 };
static float p[N], g[N];

#define STEPS(X, which) \
    static int X##_steps(void) \
    { \
        X##_engine *e; \
        X##_rule *r; \
        X##_binding *b; \
        int64_t n = N; \
        X##_tensor t = {.param = p, .grad = g, .rank = 1, .shape = &n}; \
        return X##_open(&(X##_engine_options){.device = "cpu", .threads = 2}, &e) == 0 && \
               X##_compile(e, &(X##_rule_options){.spec = which}, &r) == 0 && \
               X##_bind(r, &(X##_group){.tensors = &t, .ntensors = 1}, 1, &b) == 0 && \
               X##_step(b) == 0 && X##_unbind(b) == 0 && X##_release(r) == 0 && X##_close(e) == 0; \
    }
STEPS(rules, "adamw_clip")
STEPS(rules2, "sgd")
STEPS(optc, "sgd")

/* Each in a process that has not stepped yet. */
static int after(int first)
{
    static int (*const steps[])(void) = {rules_steps, rules2_steps, optc_steps};
    if (!steps[first]())
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(100);
        _exit(steps[(first + 1) % 3]() && steps[(first + 2) % 3]() ? 0 : 3);
    }
    int status = 0;
    return waitpid(pid, &status, 0) != pid || status != 0;
}

int main(void)
{
    for (int first = 0; first < 3; first++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(after(first));
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return printf("after a step of number %d a child's does not return\n", first), 1;
    }
    puts("all step in a child");
    return 0;
}
