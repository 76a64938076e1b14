/* Clocks, for what measures. */
#ifndef OPTC_CLOCK_H
#define OPTC_CLOCK_H
double now_ms(void);
double waited_ms(void);                /* of all threads, for a core; 0 where the system does not tell */
/* Where threads wait for more than this share of their time, others have the machine, and what is timed is theirs. */
#define TOO_BUSY 0.1
#endif
