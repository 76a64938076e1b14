/* exact_cuda.h: quotients and square roots of a vector, rounded to nearest, with one branch for all
 * of them. The instructions are those of the compiler's own division and root. It branches for each
 * value to a function for operands that are far from 1, zero or not finite; here the loop over the
 * vector notes such operands and is then done again. Pasted after cuda_helpers.h. */

/* The smallest dividend, and a sum that is finite unless an operand is out of the range of the
 * short forms. */
struct optc_odd {
    float dividend, sum;
    OPTC_FN_MEMBER bool any() const
    {
        return !(dividend >= 0x1p-60f && optc_absf(sum) <= 0x1.fffffep127f);
    }
};

/* Short for finite numbers from 2^-101 on: below, 2^77 / root overflows; of other numbers the root
 * is a NaN. NOTED is false if a quotient that is computed from the root notes the NaN. */
template <bool NOTED> OPTC_FN float optc_root(float x, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float root = x * r, y = fmaf(fmaf(-root, root, x), r * 0.5f, root);
    odd.sum = fmaf(r, 0x1p77f, odd.sum);
    if (NOTED)
        odd.sum = fmaf(y, 0x1p-77f, odd.sum);
    return y;
#else
    if (!(x >= 0x1p-101f && x <= 0x1.fffffep127f))
        odd.sum = optc_frombitsf(0x7f800000u);
    return optc_sqrtf(x);
#endif
}

//@ if optc_root
template <bool NOTED> OPTC_FN float optc_root(float x, optc_odd &, optc_yes)
{
    return optc_sqrtf(x);
}

/* Short for a of at least 2^-60 and b of at most 2^60 in magnitude, where the quotient is below
 * 2^60: remainders are then exact, and nothing is denormal. */
OPTC_FN float optc_quotient(float a, float b, optc_odd &odd, optc_no)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = fmaf(r, fmaf(-b, r, 1.0f), r);
    const float q = a * r, y = fmaf(fmaf(-b, q, a), r, q);
    odd.dividend = fminf(odd.dividend, fabsf(a));
    odd.sum = fmaf(b, 0x1p67f, odd.sum);
    odd.sum = fmaf(y, 0x1p67f, odd.sum);
    return y;
#else
    (void)odd;
    return a / b;
#endif
}

//@ if optc_quotient
OPTC_FN float optc_quotient(float a, float b, optc_odd &, optc_yes) { return a / b; }

/* 1 / sqrt(x) with both operations rounded to nearest, for every x. The compiler's own root and
 * reciprocal branch for each value, and a warp then waits for one value at a time: SM3 reached 82 %
 * of copy with 56 instructions per element, and 88 % with 40. Small numbers are scaled by a power
 * of 4, which changes no rounding. For zeros, infinity and negative numbers the last estimate is a
 * NaN, and the first one is the result. */
OPTC_FN float optc_rsqrtf(float x)
{
#ifdef __CUDA_ARCH__
    const bool small = x < 0x1p-100f;
    const float s = small ? x * 0x1p64f : x;
    float r, q;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(s));
    const float root = s * r, y = fmaf(fmaf(-root, root, s), r * 0.5f, root);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(y));
    q = fmaf(q, fmaf(-y, q, 1.0f), q);
    q = small ? q * 0x1p32f : q;
    return q != q ? r : q;
#else
    return 1.0f / optc_sqrtf(x);
#endif
}
