/* The two inner loops that plain tensor operations cannot fuse. `cpu.py` compiles this file with the machine's own
 * compiler when it is first needed; without one, `plain.py` gives the same numbers more slowly.
 *
 * Everything is contiguous, the last axis fastest. Included once for each number type.
 */
#ifndef REAL
#include <math.h>

#ifdef _OPENMP
#include <omp.h>
static inline long thread_number(void) { return omp_get_thread_num(); }
#else
static inline long thread_number(void) { return 0; }
#endif

#define REAL float
#define INT int
#define MAGNITUDE 0x7fffffff
#define NAME(name) name##_float32
#include "cpu.c"
#undef REAL
#undef INT
#undef MAGNITUDE
#undef NAME
#define REAL double
#define INT long long
#define MAGNITUDE 0x7fffffffffffffffLL
#define NAME(name) name##_float64
#include "cpu.c"

#else

#define LANES ((long)(64 / sizeof(REAL)))
typedef REAL NAME(vec) __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));
typedef INT NAME(bits) __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));
#define VEC NAME(vec)
#define BITS NAME(bits)

static inline VEC NAME(magnitude)(VEC x) { return (VEC)((BITS)x & MAGNITUDE); }

static inline REAL NAME(total)(VEC x) {
    REAL sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
}

/* out[b q k] = sum_d |y[b q d]| - |y[b q d] + shift - T_qk|,  T_qk = inverse[b q] sum_h attention[b h q k] vectors[b h k d]
 *
 * Block by block of targets and sources. Weights and vectors are packed in the order they are read; ROWS targets share the
 * loads of a source's vectors. A source that none of them looks at costs nothing. `scratch`: `nearer_scratch` numbers a thread.
 */
enum { NAME(ROWS) = 8, NAME(QUERIES) = 64, NAME(KEYS) = 32 };
#define ROWS NAME(ROWS)
#define QUERIES NAME(QUERIES)
#define KEYS NAME(KEYS)

long NAME(nearer_scratch)(long heads, long width) { return heads * (width + QUERIES * KEYS); }

void NAME(nearer)(long batch, long heads, long queries, long keys, long width, const REAL *attention, const REAL *vectors,
                  const REAL *inverse, const REAL *y, REAL shift, REAL *out, REAL *scratch, int threads) {
    long query_blocks = (queries + QUERIES - 1) / QUERIES, key_blocks = (keys + KEYS - 1) / KEYS;
    long whole = width / (2 * LANES) * (2 * LANES), stride = keys * width;
#pragma omp parallel for collapse(3) schedule(dynamic) num_threads(threads)
    for (long b = 0; b < batch; b++)
        for (long qb = 0; qb < query_blocks; qb++)
            for (long kb = 0; kb < key_blocks; kb++) {
                REAL *packed = scratch + thread_number() * NAME(nearer_scratch)(heads, width), *weights = packed + heads * width;
                long q0 = qb * QUERIES, k0 = kb * KEYS;
                long rows = queries - q0 < QUERIES ? queries - q0 : QUERIES, columns = keys - k0 < KEYS ? keys - k0 : KEYS;
                for (long h = 0; h < heads; h++) /* [key][group of ROWS targets][head][target] */
                    for (long q = 0; q < QUERIES; q++) {
                        long row = b * queries + q0 + (q < rows ? q : 0);
                        const REAL *from = attention + ((row / queries * heads + h) * queries + row % queries) * keys + k0;
                        REAL *to = weights + (q / ROWS * heads + h) * ROWS + q % ROWS;
                        for (long k = 0; k < columns; k++) to[k * heads * QUERIES] = from[k] * inverse[row];
                    }
                for (long k = 0; k < columns; k++) {
                    const REAL *source = vectors + (b * heads * keys + k0 + k) * width;
                    int is_packed = 0;
                    for (long q = 0; q < rows; q += ROWS) {
                        const REAL *w = weights + (k * QUERIES + q) * heads, *goal[ROWS];
                        long here = rows - q < ROWS ? rows - q : ROWS;
                        int looks = 0;
                        for (long i = 0; i < heads * ROWS; i++) looks |= w[i] != 0;
                        for (long r = 0; r < ROWS; r++) goal[r] = y + (b * queries + q0 + q + (r < here ? r : 0)) * width;
                        if (!looks && shift == 0) {
                            for (long r = 0; r < here; r++) out[(b * queries + q0 + q + r) * keys + k0 + k] = 0;
                            continue;
                        }
                        if (!is_packed)
                            for (long i = 0; i < whole; i += 2 * LANES)
                                for (long h = 0; h < heads; h++) {
                                    VEC *to = (VEC *)(packed + i * heads + h * 2 * LANES);
                                    const VEC *from = (const VEC *)(source + h * stride + i);
                                    to[0] = from[0], to[1] = from[1];
                                }
                        is_packed = 1;
                        VEC sum[ROWS] = {{0}};
                        for (long i = 0; i < whole; i += 2 * LANES) {
                            VEC low[ROWS] = {{0}}, high[ROWS] = {{0}};
                            const VEC *f = (const VEC *)(packed + i * heads);
                            for (long h = 0; h < heads; h++)
                                for (int r = 0; r < ROWS; r++) {
                                    low[r] += w[h * ROWS + r] * f[2 * h];
                                    high[r] += w[h * ROWS + r] * f[2 * h + 1];
                                }
                            for (int r = 0; r < ROWS; r++) {
                                VEC y0 = *(const VEC *)(goal[r] + i), y1 = *(const VEC *)(goal[r] + i + LANES);
                                sum[r] += NAME(magnitude)(y0) - NAME(magnitude)(y0 + shift - low[r]);
                                sum[r] += NAME(magnitude)(y1) - NAME(magnitude)(y1 + shift - high[r]);
                            }
                        }
                        for (long r = 0; r < here; r++) {
                            REAL score = NAME(total)(sum[r]);
                            for (long i = whole; i < width; i++) {
                                REAL part = 0;
                                for (long h = 0; h < heads; h++) part += w[h * ROWS + r] * source[h * stride + i];
                                REAL length = goal[r][i] < 0 ? -goal[r][i] : goal[r][i], missing = goal[r][i] + shift - part;
                                score += length - (missing < 0 ? -missing : missing);
                            }
                            out[(b * queries + q0 + q + r) * keys + k0 + k] = score;
                        }
                    }
                }
            }
}
#undef ROWS
#undef QUERIES
#undef KEYS

/* out[b q k] = inverse[b q] sqrt(sum_hg a_h gram[b h g k] a_g),  a_h = attention[b h q k]; gram is symmetric in h and g. */
void NAME(lengths)(long batch, long heads, long queries, long keys, const REAL *attention, const REAL *gram,
                   const REAL *inverse, REAL *out, int threads) {
    enum { ROWS = 4, QUERIES = 32 };
    long query_blocks = (queries + QUERIES - 1) / QUERIES, key_blocks = (keys + LANES - 1) / LANES, plane = queries * keys;
#pragma omp parallel for collapse(3) schedule(dynamic, 4) num_threads(threads)
    for (long b = 0; b < batch; b++)
        for (long qb = 0; qb < query_blocks; qb++)
            for (long kb = 0; kb < key_blocks; kb++) {
                long k = kb * LANES, lanes = keys - k < LANES ? keys - k : LANES;
                long last_query = (qb + 1) * QUERIES < queries ? (qb + 1) * QUERIES : queries;
                const REAL *own = gram + b * heads * heads * keys + k, *all = attention + b * heads * plane + k;
                for (long q = qb * QUERIES; q < last_query; q += ROWS) {
                    long rows = last_query - q < ROWS ? last_query - q : ROWS;
                    REAL squared[ROWS][64 / sizeof(REAL)];
                    if (lanes == LANES) {
                        const REAL *row[ROWS];
                        VEC sum[ROWS] = {{0}};
                        for (long r = 0; r < ROWS; r++) row[r] = all + (q + (r < rows ? r : 0)) * keys;
                        for (long h = 0; h < heads; h++) {
                            const REAL *line = own + h * heads * keys;
                            VEC inner[ROWS] = {{0}}, itself = *(const VEC *)(line + h * keys);
                            for (long g = h + 1; g < heads; g++) {
                                VEC product = *(const VEC *)(line + g * keys);
                                for (int r = 0; r < ROWS; r++) inner[r] += product * *(const VEC *)(row[r] + g * plane);
                            }
                            for (int r = 0; r < ROWS; r++) {
                                VEC a = *(const VEC *)(row[r] + h * plane);
                                sum[r] += a * (2 * inner[r] + itself * a);
                            }
                        }
                        for (int r = 0; r < ROWS; r++) *(VEC *)squared[r] = sum[r];
                    } else
                        for (long r = 0; r < rows; r++)
                            for (long lane = 0; lane < lanes; lane++) {
                                const REAL *a = all + (q + r) * keys + lane;
                                REAL sum = 0;
                                for (long h = 0; h < heads; h++) {
                                    REAL inner = 0, mine = a[h * plane];
                                    for (long g = h + 1; g < heads; g++) inner += own[(h * heads + g) * keys + lane] * a[g * plane];
                                    sum += mine * (2 * inner + own[(h * heads + h) * keys + lane] * mine);
                                }
                                squared[r][lane] = sum;
                            }
                    for (long r = 0; r < rows; r++)
                        for (long lane = 0; lane < lanes; lane++) {
                            REAL value = squared[r][lane] < 0 ? 0 : squared[r][lane]; /* NaN stays NaN */
                            value = sizeof(REAL) == sizeof(float) ? sqrtf(value) : sqrt(value);
                            out[(b * queries + q + r) * keys + k + lane] = inverse[b * queries + q + r] * value;
                        }
                }
            }
}
#undef VEC
#undef BITS
#undef LANES
#endif
