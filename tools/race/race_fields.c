/* The members of a report in JSON: one table of each struct, for race_json.c and race_read.c. */
#include "tools/race/race.h"

#include <stddef.h>

#define WHOLE(T, name, least, most) {#name, FIELD_INT, offsetof(T, name), least, most, 0}
#define OTHER(T, kind, name, member) {name, kind, offsetof(T, member), 0, 0, 0}
#define END {NULL, FIELD_INT, 0, 0, 0, 0}

const JsonField race_report_fields[] = {OTHER(RaceReport, FIELD_TEXT, "version", version),
                                        OTHER(RaceReport, FIELD_BOOL, "interrupted", interrupted),
                                        WHOLE(RaceReport, most_trials, 0, RACE_MOST_TRIALS), END};
const JsonField race_machine_fields[] = {OTHER(RaceReport, FIELD_TEXT, "command", command),
                                         OTHER(RaceReport, FIELD_TEXT, "device", machine),
                                         OTHER(RaceReport, FIELD_TEXT, "date", date),
                                         OTHER(RaceReport, FIELD_REAL, "seconds", seconds),
                                         OTHER(RaceReport, FIELD_REAL, "cpu_seconds", cpu_seconds),
                                         END};
const JsonField race_task_fields[] = {OTHER(RaceTaskInfo, FIELD_TEXT, "name", name),
                                      OTHER(RaceTaskInfo, FIELD_TEXT, "about", about),
                                      WHOLE(RaceTaskInfo, steps, 1, RACE_MOST_STEPS),
                                      WHOLE(RaceTaskInfo, every, 1, RACE_MOST_STEPS),
                                      OTHER(RaceTaskInfo, FIELD_REAL, "target", target), END};
const JsonField race_rule_fields[] = {OTHER(RaceRuleInfo, FIELD_TEXT, "name", name),
                                      OTHER(RaceRuleInfo, FIELD_TEXT, "rate", rate),
                                      OTHER(RaceRuleInfo, FIELD_TEXT, "decay", decay),
                                      OTHER(RaceRuleInfo, FIELD_TEXT, "note", note),
                                      OTHER(RaceRuleInfo, FIELD_TEXT, "text", text),
                                      OTHER(RaceRuleInfo, FIELD_REAL, "gradients", gradients),
                                      END};
const JsonField race_compile_fields[] = {
    OTHER(RaceRuleInfo, FIELD_TEXT, "path", path),
    OTHER(RaceRuleInfo, FIELD_REAL, "compile_seconds", compile_seconds), END};
const JsonField race_trial_fields[] = {WHOLE(RaceTrial, seeds, 0, RACE_MOST_SEEDS),
                                       WHOLE(RaceTrial, reached, 0, RACE_MOST_SEEDS),
                                       WHOLE(RaceTrial, diverged, 0, RACE_MOST_SEEDS),
                                       OTHER(RaceTrial, FIELD_REAL, "rate", rate),
                                       OTHER(RaceTrial, FIELD_REAL, "factor", factor),
                                       OTHER(RaceTrial, FIELD_REAL, "decay", decay),
                                       OTHER(RaceTrial, FIELD_REACHED, "steps", steps),
                                       OTHER(RaceTrial, FIELD_REACHED, "loss", loss), END};
const JsonField race_run_fields[] = {
    {"seed", FIELD_INT64, offsetof(RaceRun, seed), 0, RACE_LARGEST_SEED, 0},
    OTHER(RaceRun, FIELD_BOOL, "done", done), OTHER(RaceRun, FIELD_BOOL, "diverged", diverged),
    WHOLE(RaceRun, reached, 0, RACE_MOST_STEPS), END};
const JsonField race_time_fields[] = {OTHER(RaceRun, FIELD_REAL, "all", seconds),
                                      OTHER(RaceRun, FIELD_REAL, "target", target_seconds), END};
const JsonField race_summary_fields[] = {
    {"runs", FIELD_INT, offsetof(RaceSummary, done), 0, 0, 0},
    WHOLE(RaceSummary, reached, 0, 0), WHOLE(RaceSummary, diverged, 0, 0),
    OTHER(RaceSummary, FIELD_REAL, "median_steps", steps),
    OTHER(RaceSummary, FIELD_REAL, "median_loss", loss), END};
