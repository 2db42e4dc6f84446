/* The inner loops that plain tensor operations cannot fuse. `cpu.py` compiles this file with the machine's own
 * compiler when it is first needed; without one, `plain.py` gives the same numbers more slowly.
 *
 * Everything is contiguous, the last axis fastest. Included once for each number type.
 */
#ifndef REAL
#include <float.h>
#include <math.h>

#ifdef _OPENMP
#include <omp.h>
static inline long thread_number(void) { return omp_get_thread_num(); }
#else
static inline long thread_number(void) { return 0; }
#endif

#define REAL float
#define ROOT sqrtf
#define TINIEST FLT_MIN
#define INT int
#define MAGNITUDE 0x7fffffff
#define NAME(name) name##_float32
#include "cpu.c"
#undef REAL
#undef ROOT
#undef TINIEST
#undef INT
#undef MAGNITUDE
#undef NAME
#define REAL double
#define ROOT sqrt
#define TINIEST DBL_MIN
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
#ifdef __clang__
    REAL sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
#else
    BITS lanes;
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    for (int half = LANES / 2; half; half /= 2) x += __builtin_shuffle(x, lanes ^ half);
    return x[0];
#endif
}

/* out[b q k] = sum_d |y[b q d]| - |y[b q d] + shift - T_qk|,  T_qk = reciprocal[b q] sum_h attention[b h q k] vectors[b h k d]
 *
 * Block by block of targets and sources. Weights and vectors are packed in the order they are read; ROWS targets share the
 * loads of a source's vectors. A source that none of them looks at costs nothing. `scratch`: `nearer_scratch` numbers a thread.
 * From one example's vectors to the next it is `example` numbers, from one head's to the next `stride`.
 */
enum { NAME(ROWS) = 8, NAME(QUERIES) = 64, NAME(KEYS) = 32 };
#define ROWS NAME(ROWS)
#define QUERIES NAME(QUERIES)
#define KEYS NAME(KEYS)

long NAME(nearer_scratch)(long heads, long width) { return heads * (width + QUERIES * KEYS); }

void NAME(nearer)(long batch, long heads, long queries, long keys, long width, const REAL *attention, const REAL *vectors,
                  long example, long stride, const REAL *reciprocal, const REAL *y, REAL shift, REAL *out, REAL *scratch,
                  int threads) {
    long query_blocks = (queries + QUERIES - 1) / QUERIES, key_blocks = (keys + KEYS - 1) / KEYS;
    long whole = width / (2 * LANES) * (2 * LANES);
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
                        for (long k = 0; k < columns; k++) to[k * heads * QUERIES] = from[k] * reciprocal[row];
                    }
                for (long k = 0; k < columns; k++) {
                    const REAL *source = vectors + b * example + (k0 + k) * width;
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

/* out[b q k] = reciprocal[b q] sqrt(sum_hg a_h gram[b h g k] a_g),  a_h = attention[b h q k]; gram is symmetric in h and g. */
void NAME(lengths)(long batch, long heads, long queries, long keys, const REAL *attention, const REAL *gram,
                   const REAL *reciprocal, REAL *out, int threads) {
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
                            out[(b * queries + q + r) * keys + k + lane] = reciprocal[b * queries + q + r] * value;
                        }
                }
            }
}

/* out[b h g k] = values[b k h] . metric[h g] values[b k g], for a symmetric metric: inner products of the heads' vectors of
 * each source without those vectors. values [b k head e], metric [head head e e]; SOURCES of them share the loads of it.
 */
enum { NAME(SOURCES) = 8, NAME(TOGETHER) = 64 };
#define SOURCES NAME(SOURCES)
#define TOGETHER NAME(TOGETHER)

void NAME(inner)(long batch, long heads, long keys, long e, const REAL *values, const REAL *metric, REAL *out, int threads) {
    long all = batch * keys, width = heads * e, groups = (all + TOGETHER - 1) / TOGETHER;
    long pairs = e / (2 * LANES) * (2 * LANES), singles = pairs + (e - pairs) / LANES * LANES;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long group = 0; group < groups; group++)
        for (long h = 0; h < heads; h++)
            for (long g = h; g < heads; g++) {
                const REAL *between = metric + (h * heads + g) * e * e;
                long last = (group + 1) * TOGETHER < all ? (group + 1) * TOGETHER : all;
                for (long s = group * TOGETHER; s < last; s += SOURCES) {
                    const REAL *left[SOURCES], *right[SOURCES];
                    REAL score[SOURCES] = {0};
                    VEC sum[SOURCES] = {{0}};
                    for (long r = 0; r < SOURCES; r++) {
                        long source = s + r < last ? s + r : s;
                        left[r] = values + source * width + h * e;
                        right[r] = values + source * width + g * e;
                    }
                    for (long i = 0; i < pairs; i += 2 * LANES) {
                        VEC low[SOURCES] = {{0}}, high[SOURCES] = {{0}};
                        for (long k = 0; k < e; k++) {
                            VEC m0 = *(const VEC *)(between + k * e + i), m1 = *(const VEC *)(between + k * e + i + LANES);
                            for (int r = 0; r < SOURCES; r++) {
                                low[r] += left[r][k] * m0;
                                high[r] += left[r][k] * m1;
                            }
                        }
                        for (int r = 0; r < SOURCES; r++)
                            sum[r] += low[r] * *(const VEC *)(right[r] + i) + high[r] * *(const VEC *)(right[r] + i + LANES);
                    }
                    for (long i = pairs; i < singles; i += LANES) {
                        VEC low[SOURCES] = {{0}};
                        for (long k = 0; k < e; k++) {
                            VEC m0 = *(const VEC *)(between + k * e + i);
                            for (int r = 0; r < SOURCES; r++) low[r] += left[r][k] * m0;
                        }
                        for (int r = 0; r < SOURCES; r++) sum[r] += low[r] * *(const VEC *)(right[r] + i);
                    }
                    for (long i = singles; i < e; i++)
                        for (int r = 0; r < SOURCES; r++) {
                            REAL part = 0;
                            for (long k = 0; k < e; k++) part += left[r][k] * between[k * e + i];
                            score[r] += part * right[r][i];
                        }
                    for (long r = 0; r < SOURCES && s + r < last; r++) {
                        long b = (s + r) / keys, key = (s + r) % keys;
                        REAL product = score[r] + NAME(total)(sum[r]);
                        out[((b * heads + h) * heads + g) * keys + key] = product;
                        out[((b * heads + g) * heads + h) * keys + key] = product;
                    }
                }
            }
}
#undef SOURCES
#undef TOGETHER

/* One frozen norm on a row, without its scale: gamma (z - mean z), or gamma z. */
static void NAME(normed)(REAL *z, const REAL *gamma, int centred, long width) {
    REAL mean = 0;
    if (centred) {
#pragma omp simd reduction(+ : mean)
        for (long i = 0; i < width; i++) mean += z[i];
        mean /= width;
    }
#pragma omp simd
    for (long i = 0; i < width; i++) z[i] = gamma[i] * (z[i] - mean);
}

/* Row by row: a = P own reciprocal_part + R x reciprocal_stream and o = P (every - own) reciprocal_part, for P all norms and R
 * those of the stream, the last of them. own_length = |a|, others_length = |o|; nearer = sum |y| - |y + shift - a|. What is not wanted
 * is NULL: every, x, y. gamma is one row, or one for each `of_layer` rows. `scratch`: 3 width numbers a thread.
 */
void NAME(ends)(long rows, long of_layer, long width, long norms, long of_branch, const REAL *own, const REAL *every, const REAL *x,
                const REAL *const *gammas, const long *centred, const REAL *reciprocal_part, const REAL *reciprocal_stream,
                const REAL *y, REAL shift, REAL *own_length, REAL *others_length, REAL *nearer, REAL *scratch, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long row = 0; row < rows; row++) {
        REAL *a = scratch + thread_number() * 3 * width, *o = a + width, *r = o + width;
        const REAL *mine = own + row * width;
        REAL part = reciprocal_part[row], squares = 0;
        long at = row / of_layer * width;
        for (long i = 0; i < width; i++) a[i] = mine[i];
        for (long norm = 0; norm < norms; norm++) NAME(normed)(a, gammas[norm] + at, (int)centred[norm], width);
        if (x) {
            REAL stream = reciprocal_stream[row];
            for (long i = 0; i < width; i++) r[i] = x[row * width + i];
            for (long norm = of_branch; norm < norms; norm++) NAME(normed)(r, gammas[norm] + at, (int)centred[norm], width);
            for (long i = 0; i < width; i++) a[i] = a[i] * part + r[i] * stream;
        } else
            for (long i = 0; i < width; i++) a[i] *= part;
        if (y) {
            const REAL *goal = y + row * width;
            REAL near = 0;
#pragma omp simd reduction(+ : near)
            for (long i = 0; i < width; i++) {
                REAL length = goal[i] < 0 ? -goal[i] : goal[i], missing = goal[i] + shift - a[i];
                near += length - (missing < 0 ? -missing : missing);
            }
            nearer[row] = near;
            continue;
        }
#pragma omp simd reduction(+ : squares)
        for (long i = 0; i < width; i++) squares += a[i] * a[i];
        own_length[row] = sizeof(REAL) == sizeof(float) ? sqrtf(squares) : sqrt(squares);
        if (every) {
            for (long i = 0; i < width; i++) o[i] = every[row * width + i] - mine[i];
            for (long norm = 0; norm < norms; norm++) NAME(normed)(o, gammas[norm] + at, (int)centred[norm], width);
            squares = 0;
#pragma omp simd reduction(+ : squares)
            for (long i = 0; i < width; i++) squares += o[i] * o[i];
            others_length[row] = part * (sizeof(REAL) == sizeof(float) ? sqrtf(squares) : sqrt(squares));
        }
    }
}

/* The largest, over rows, of the root mean square of (rebuilt + added - seen) / max(|seen|, size of the row), added [width] on
   every row. The size of a row is (mean sqrt|seen|)^2. A NaN anywhere gives NaN. */
void NAME(apart)(long rows, long width, const REAL *rebuilt, const REAL *added, const REAL *seen, REAL *out, int threads) {
    REAL worst = 0, nothing = 0; /* nothing: 0, or NaN where something is not finite */
#pragma omp parallel for schedule(static) num_threads(threads) reduction(max : worst) reduction(+ : nothing)
    for (long row = 0; row < rows; row++) {
        const REAL *made = rebuilt + row * width, *there = seen + row * width;
        REAL size = 0, sum = 0;
#pragma omp simd reduction(+ : size)
        for (long i = 0; i < width; i++) size += ROOT(there[i] < 0 ? -there[i] : there[i]);
        size *= size / width / width;
        size = size > TINIEST ? size : TINIEST;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < width; i++) {
            REAL difference = made[i] + added[i] - there[i], here = there[i] < 0 ? -there[i] : there[i];
            difference /= here > size ? here : size;
            sum += difference * difference;
        }
        sum = ROOT(sum / width);
        nothing += sum - sum;
        worst = sum > worst ? sum : worst;
    }
    out[0] = worst + nothing;
}

/* out[0] = layers[0], out[l] = layers[l] out[l - 1], all [n n]; sizes[l]: the largest magnitude in out[l], NaN if there is one. */
void NAME(running)(long depth, long n, const REAL *layers, REAL *out, REAL *sizes) {
    for (long l = 0; l < depth; l++) {
        REAL size = 0, odd = 0;
        for (long i = 0; i < n; i++) {
            const REAL *row = layers + (l * n + i) * n;
            REAL *made = out + (l * n + i) * n;
            if (l) {
                for (long j = 0; j < n; j++) made[j] = 0;
                for (long k = 0; k < n; k++) {
                    const REAL weight = row[k], *before = out + ((l - 1) * n + k) * n;
#pragma omp simd
                    for (long j = 0; j < n; j++) made[j] += weight * before[j];
                }
            } else
                for (long j = 0; j < n; j++) made[j] = row[j];
#pragma omp simd reduction(max : size) reduction(+ : odd)
            for (long j = 0; j < n; j++) {
                REAL length = made[j] < 0 ? -made[j] : made[j];
                odd += length - length;
                size = length > size ? length : size;
            }
        }
        sizes[l] = size + odd;
    }
}
#undef VEC
#undef BITS
#undef LANES
#endif
