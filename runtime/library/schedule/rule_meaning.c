/* Runs a rule on names in its own order, without memory: each stage gives each array that it writes
 * a new value per tensor or group. */
#include "runtime/library/schedule/rule_meaning.h"

#include "runtime/core/base/lifetimes.h"
#include "runtime/core/shard/shard.h"
#include "runtime/library/schedule/name_memory.h"

#include <stdlib.h>
#include <string.h>

int meaning_owner(const Meaning *m, int array, int tensor)
{
    const ProgArray *a = &m->p->array[array];
    return a->dom == GROUP && a->kind != MEM_PART ? m->b->ntensor + m->b->tensor[tensor].group
                                                  : tensor;
}

uint64_t *meaning_names(const Meaning *m, int stage, int nth)
{
    return m->of + ((int64_t)m->first[stage] + nth) * m->owners;
}

/* The stage for one tensor, or for the group at owner - ntensor. */
static void mean_stage(const Meaning *m, int stage, int owner)
{
    const ProgStage *s = &m->p->stage[stage];
    const bool group = owner >= m->b->ntensor;
    uint64_t h = mix(mix(1, (uint64_t)stage), (uint64_t)owner);
    for (int k = 0; k < s->nreads; k++) {
        const uint64_t *of = meaning_names(m, stage, k);
        for (int i = 0; group && m->p->array[s->reads[k]].kind == MEM_PART && i < m->owners; i++)
            h = mix(h, of[i]);
        h = mix(h, of[group ? owner : meaning_owner(m, s->reads[k], owner)]);
    }
    for (int k = 0; k < s->nwrites; k++)
        m->now[(int64_t)s->writes[k] * m->owners +
               (group ? owner : meaning_owner(m, s->writes[k], owner))] = mix(h, (uint64_t)k);
}

static void mean_launch(const Meaning *m, int stage)
{
    const ProgStage *s = &m->p->stage[stage];
    const size_t row = sizeof *m->now * (size_t)m->owners;
    for (int k = 0; k < s->nreads; k++)
        memcpy(meaning_names(m, stage, k), m->now + (int64_t)s->reads[k] * m->owners, row);
    for (int i = s->kind == S_GROUP ? m->b->ntensor : 0;
         i < (s->kind == S_GROUP ? m->owners : m->b->ntensor); i++)
        if (s->kind == S_GROUP || shards_variant(m->b, i) == s->variant)
            mean_stage(m, stage, i);
    for (int k = 0; k < s->nwrites; k++)
        memcpy(meaning_names(m, stage, s->nreads + k),
               m->now + (int64_t)s->writes[k] * m->owners, row);
}

void meaning_run(const Meaning *m, const ProgPhase *ph)
{
    for (int k = 0; k < m->p->narray; k++)
        for (int i = 0; i < m->owners; i++)
            m->now[(int64_t)k * m->owners + i] =
                array_temporary(&m->p->array[k])
                    ? 0
                    : mix(mix(NAME_START, (uint64_t)k), (uint64_t)i);
    for (int i = 0; i < ph->naction; i++)
        if (ph->action[i].kind == ACT_LAUNCH)
            mean_launch(m, ph->action[i].stage);
}

bool meaning_make(Meaning *m, const optc_binding *b)
{
    int n = 0;
    *m = (Meaning){.p = b->rule->program, .b = b, .owners = b->ntensor + b->ngroup};
    m->first = calloc((size_t)m->p->nstage + 1, sizeof *m->first);
    for (int i = 0; m->first && i < m->p->nstage; i++) {
        m->first[i] = n;
        n += m->p->stage[i].nreads + m->p->stage[i].nwrites;
    }
    m->now = calloc((size_t)(m->p->narray * m->owners), sizeof *m->now);
    m->of = calloc((size_t)(n + 1) * (size_t)m->owners, sizeof *m->of);
    return m->first && m->now && m->of;
}

void meaning_free(Meaning *m)
{
    free(m->first);
    free(m->now);
    free(m->of);
}
