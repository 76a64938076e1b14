/* PTX as NVRTC prints it: kernels as lists of instructions, and a machine that executes one thread
 * block at a time.
 *
 * The machine keeps integers and addresses as numbers and floats from memory as terms. Global
 * memory consists of areas with names; an access outside of an area, to memory that nothing wrote,
 * or to what another thread writes in the same interval between barriers, is an error. */
#ifndef OPTC_VERIFY_PTX_H
#define OPTC_VERIFY_PTX_H
#include "tools/verify/terms.h"

typedef enum {
    PTX_OTHER,
    PTX_MOV,
    PTX_LD,
    PTX_ST,
    PTX_ADD,
    PTX_SUB,
    PTX_MUL,
    PTX_MAD,
    PTX_FMA,
    PTX_DIV,
    PTX_REM,
    PTX_SQRT,
    PTX_RCP,
    PTX_ABS,
    PTX_NEG,
    PTX_MIN,
    PTX_MAX,
    PTX_AND,
    PTX_OR,
    PTX_XOR,
    PTX_NOT,
    PTX_SHL,
    PTX_SHR,
    PTX_SETP,
    PTX_SELP,
    PTX_CVT,
    PTX_CVTA,
    PTX_BRA,
    PTX_RET,
    PTX_BAR,
    PTX_SHFL,
    PTX_PRMT,
    PTX_WARPSYNC,
    PTX_VOTE,
    PTX_REDUX,
    PTX_CP_ASYNC,
    PTX_COMMIT,
    PTX_WAIT,
    PTX_COPYSIGN, PTX_BFI, PTX_BFE
} PtxKind;
typedef enum {
    OPERAND_NONE, OPERAND_REG, OPERAND_BITS, OPERAND_SPECIAL, OPERAND_ADDRESS, OPERAND_VECTOR
} OperandKind;
typedef enum { TID_X, NTID_X, CTAID_X, NCTAID_X, LANEID, WARPID, NSPECIAL } PtxSpecial;
typedef enum { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_PARAM, SPACE_LOCAL } PtxSpace;

/* reg: a register, or a special one; ADDRESS: the base register, or -1 and imm is complete */
typedef struct PtxOperand { OperandKind kind; int reg; int64_t imm; int n, vec[4]; } PtxOperand;
typedef struct PtxInst {
    PtxKind kind;
    const char *name;                                      /* with all suffixes */
    char type, from;                                       /* u s f b p; from: of the second type */
    uint8_t width, from_width;                             /* in bytes; p: 0 */
    /* plain: no suffix that changes the result; rounded: .rn */
    bool wide, high, plain, rounded;
    char cmp[6];
    PtxSpace space;
    int guard; bool guard_not;                             /* a predicate register, or -1 */
    PtxOperand to, pred, arg[5]; int narg;
    int target, line;
} PtxInst;

typedef struct PtxSymbol { const char *name; int64_t at, size; PtxSpace space; } PtxSymbol;
typedef struct PtxKernel {
    const char *name;
    PtxInst *inst; int ninst, inst_cap;
    uint8_t *reg_width; int nreg, reg_cap;
    const char **reg_name; int32_t *reg_table; int reg_table_cap;
    PtxSymbol *symbol; int nsymbol, symbol_cap;
    const char **label; int *label_at; int nlabel, label_cap, label_at_cap;
    int64_t param_bytes, shared_bytes, local_bytes;
    /* by branch: where its two ways meet (ptx_join) */
    bool *ran;                                             /* by instruction: a case executed it */
    int *join;
} PtxKernel;

/* Reads the kernel of this name. false: error says what was not understood. */
enum { PTX_ERROR = 200 };
bool ptx_read(Arena *a, const char *text, const char *name, PtxKernel *k, char error[PTX_ERROR]);
/* ptx_join.c: -1: the thread ends on both ways */
int ptx_join(Arena *a, PtxKernel *k, int at);

/* ---- ptx_memory.c ---- */
/* A thread of the launch, or -1; SEVERAL readers. time: intervals between barriers */
typedef struct Touch { int writer, reader, write_time, read_time; } Touch;
/* values: leaves of this width stand for what the area holds; 0: the bytes are numbers. written: by
 * a thread. */
typedef struct Area {
    const char *name;
    uint64_t base; int64_t size;
    int leaf_width;
    bool writable;
    Byte *byte;
    /* by byte, where threads write: who, and when */
    /* writers of an earlier run; NULL: unknown */
    const struct Touch *known;
    struct Touch *touch;
} Area;
/* RACED: the array of a leaf that nobody may use */
enum { MOST_AREAS = 250, RACED = 255 };
typedef struct PtxMemory { Area area[MOST_AREAS]; int n; TermPool *pool; Arena *arena; } PtxMemory;

/* ---- ptx_run.c ---- */
typedef struct PtxThread {
    Value *reg;
    int pc, state, warp_time, pending;
    /* the case of a branch that depends on floats; 0: all */
    Term path;
    int forks;
} PtxThread;
typedef struct PtxMachine {
    TermPool *pool;
    PtxMemory *memory;
    const PtxKernel *kernel;
    Arena *arena;                                          /* of the kernel */
    uint8_t *param;
    int threads, block, blocks, time;
    PtxThread *thread; int thread_cap;
    Value *file; size_t file_len;
    Area shared, local;
    int64_t steps, most_steps;
    /* a thread reads what another one writes */
    bool raced;
    char error[400]; bool failed;
} PtxMachine;
int memory_area(PtxMemory *m, const char *name, int64_t size, int leaf_width, bool writable);
void memory_put(PtxMemory *m, int area, int64_t at, int width, uint64_t bits);
/* moves its address, for misaligned cases */
void memory_place(PtxMemory *m, int area, int64_t offset);
bool machine_load(PtxMachine *x, int thread, PtxSpace s, uint64_t at, int width, Value *out);
bool machine_store(PtxMachine *x, int thread, PtxSpace s, uint64_t at, int width, Value v);
void machine_empty_block(PtxMachine *x);                  /* clears shared and local memory */
void machine_fail(PtxMachine *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Executes a block: all threads to their end. false: x->error. */
bool ptx_run_block(PtxMachine *x, int block);
/* ptx_compute.c */
bool ptx_compute(PtxMachine *x, const PtxInst *i, const Value *arg, Value *out);
#endif
