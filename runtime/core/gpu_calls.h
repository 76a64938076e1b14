/* Calls on a GPU: what a rule's products take, made ready when binding.
 *
 *   CallGroup    tensors of a batch that have one shape: their matrices are one call
 *   PointerSet   where the matrices of an array, or blocks of them, lie: one for each of a group's, in the order of its
 *                tensors. Arrays on the device that a kernel of ours fills from the binding's table of pointers, anew
 *                when one has moved; equal sets are one
 *   CallStep     one call of the library or launch of ours over a group
 *   GpuCall      the steps of a stage over a batch
 *
 * Row by row our C = A B is, column by column as cuBLAS has matrices, its C^T = B^T A^T: operands change places. */
#ifndef OPTC_CORE_GPU_CALLS_H
#define OPTC_CORE_GPU_CALLS_H
#include "call.h"
#include "gpu.h"
#include "library.h"

/* optc_call and optc_lies of the kernels */
typedef struct CallArgs { CUdeviceptr a, b, c; int m, n, k, flags; double alpha, beta; } CallArgs;
typedef struct CallPlace { long long slot, offset; } CallPlace;

/* sets: the first, or -1; apart: of elements, from row to row; now: matrices of the tensors that take part */
typedef struct CallGroup { const int *tensor; int n, sets; Shape shape; int64_t apart, now; } CallGroup;

typedef struct PointerSet {
    /* blocks 0: one pointer a matrix, `offset` values into it; else one for each block (i, j), j <= i < blocks,
     * i * down + j * across values into it */
    int array, group, blocks;
    int64_t offset, down, across;
    int next;                              /* of its group; -1: none */
    int64_t each, at;                      /* pointers of a matrix; where they begin among all */
    /* rows lie so far apart; 0: as many values as one has. For kernels of ours it stands ahead of the pointers */
    int64_t apart;
    /* they never move and lie `stride` values apart: no array of pointers is needed */
    bool even;
    CUdeviceptr first;
    long long stride;
} PointerSet;

/* How a type of operands is known to cuBLAS and to our kernels. */
typedef struct CallType {
    Type type;
    cudaDataType cuda;
    cublasComputeType_t compute;
    int bytes;
    int tile, mirror;      /* rows and columns that a block has: of our own product, of the kernel that mirrors */
    const char *name;
} CallType;

typedef enum { STEP_OVER, STEP_PRODUCT, STEP_MIRROR } StepKind;
typedef struct CallStep {
    StepKind kind;
    const CallType *type;
    int group, a, b, c;                    /* sets */
    int64_t m, n, k, lda, ldb, ldc;
    unsigned flags;                        /* ProductFlag */
    double alpha, beta;
    bool own;                              /* a kernel of ours though there is a library */
    unsigned blocks;                       /* ours: of one matrix */
} CallStep;
/* The matrices of a group that a step goes over. */
typedef struct Matrices { int64_t from, n; } Matrices;
typedef struct GpuCall { const ProgStage *stage; int batch, first, n; } GpuCall;

typedef struct GpuCalls {
    bool library;
    Cublas blas;
    char why[400];                         /* there is no library */
    cublasHandle_t handle;
    CUstream own, inner, on; bool is_on;   /* to capture in; on: the handle's stream, and its workspace is set */
    GpuCall *call; int ncall;
    CallGroup *group; int ngroup, near;    /* near: where the next one asked for is looked for first */
    PointerSet *set; int nset;
    CallStep *step; int nstep;
    bool *present;                         /* by tensor: it takes part in what the arrays hold now */
    bool sent;                             /* the device knows of them */
    bool moves;                            /* a gradient or input is an operand */
    int64_t npointer;
    CUdeviceptr memory, places, pointers, periods; size_t bytes;
    CUgraphExec *whole;                    /* by entry: all phases, each where the device says so */
} GpuCalls;

CORE const CallType *call_type(const Program *p);          /* NULL: its products are in a type that is none of these */
/* "the product of 3 x 4 by 4 x 3 in bf16 (…)" */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf, size_t n);
CORE bool step_long(const CallStep *s);                    /* lengths beyond 32 bits */
CORE optc_status calls_gather(optc_binding *b);
CORE CUdeviceptr set_pointers(const GpuCalls *x, int set, int64_t from);      /* from that matrix on */
#endif
