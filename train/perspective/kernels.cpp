// Fused CPU kernels for training a perspective model, forward and backward.
//
//   pdr   : everything of a pdr layer between its projections and its output norm (section 4)
//   rms   : the norm of section 3
//   rows  : what stands between the matrix products of the experts: rows brought into the order of their experts,
//           rounding to int8 by groups, silu(gate) * up, rows brought back
//   ternary: three values a weight, a scale a group
//
// Products run in bfloat16 (oneDNN); it holds every code and every rounded activation exactly, their scales to 8 bits.
// The definition is model.py. Compiled and bound by kernels.py; built with -ffast-math: these kernels promise no bits.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include <omp.h>
#include <immintrin.h>

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t bf16;

static const int W = 64;   // channels that are computed together; a multiple of them is the width
static const int Q = 4;    // vectors in W
static const int CH = 16;  // steps between kept states
static const int MAX_RANK = 128;

// A decaying state is full of subnormal numbers, and they are slow: zero inside the kernels, and only there.
struct FlushToZero {
  unsigned old;
  FlushToZero() : old(_mm_getcsr()) { _mm_setcsr(old | 0x8040); }
  ~FlushToZero() { _mm_setcsr(old); }
};

#define V(p) (*(v16 *)(p))
#define CV(p) (*(const v16 *)(p))

static inline v16 splat(float x) { return v16{} + x; }

static inline v16 vexp(v16 x) {
  x = x < splat(-87.f) ? splat(-87.f) : x;
  x = x > splat(88.f) ? splat(88.f) : x;
  v16 t = x * 1.44269504088896f;
  i16 n = __builtin_convertvector(t + (t < splat(0.f) ? splat(-0.5f) : splat(0.5f)), i16);
  v16 y = x - __builtin_convertvector(n, v16) * 0.693359375f;
  y = y - __builtin_convertvector(n, v16) * -2.12194440e-4f;
  v16 p = splat(1.f / 5040);
  p = p * y + 1.f / 720;
  p = p * y + 1.f / 120;
  p = p * y + 1.f / 24;
  p = p * y + 1.f / 6;
  p = p * y + 0.5f;
  p = p * y + 1.f;
  p = p * y + 1.f;
  i16 e = (n + 127) << 23;
  return p * (v16)e;
}
static inline v16 vsig(v16 x) { return 1.f / (1.f + vexp(-x)); }

static inline v16 pairsum(v16 a, v16 b) {
  const i16 ev = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
  const i16 od = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  return __builtin_shuffle(a, b, ev) + __builtin_shuffle(a, b, od);
}
// lane l of the result = sum of the lanes of p[l]
static inline v16 sum16(const v16 *p) {
  v16 a[8], b[4];
  for (int i = 0; i < 8; i++) a[i] = pairsum(p[2 * i], p[2 * i + 1]);
  for (int i = 0; i < 4; i++) b[i] = pairsum(a[2 * i], a[2 * i + 1]);
  return pairsum(pairsum(b[0], b[1]), pairsum(b[2], b[3]));
}
static inline float hsum(v16 a) {
  float s = 0;
  for (int i = 0; i < 16; i++) s += a[i];
  return s;
}

// 16 numbers to bfloat16 (nearest, even) and back; no NaN comes here
static inline void put(bf16 *to, v16 x) {
  __m512i b = (__m512i)x;
  b = _mm512_add_epi32(b, _mm512_add_epi32(_mm512_set1_epi32(0x7fff),
                                           _mm512_and_epi32(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1))));
  _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
}
static inline v16 get(const bf16 *from) {
  return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
}

// ---------------------------------------------------------------- pdr

struct Pdr {  // x: [B,T, E + r + r + E] = p k q v before bias and unit; bias [E]
  int64_t B, T, E, r, convex;
  float low, range;  // gamma = low + range * sigmoid(p + bias)
  const float *x, *bias;
};

// k and q of a sequence, unit length -> kq [T, 2r], inv [T, 2]
static void units(const Pdr &a, int64_t b, float *kq, float *inv) {
  const int64_t wide = 2 * a.E + 2 * a.r;
  for (int64_t t = 0; t < a.T; t++)
    for (int side = 0; side < 2; side++) {
      const float *x = a.x + (b * a.T + t) * wide + a.E + side * a.r;
      v16 s = {};
      for (int64_t j = 0; j < a.r; j += 16) s += CV(x + j) * CV(x + j);
      float i = 1.f / sqrtf(hsum(s) + 1e-6f);
      inv[2 * t + side] = i;
      for (int64_t j = 0; j < a.r; j += 16) V(kq + (2 * t + side) * a.r + j) = CV(x + j) * i;
    }
}

struct Decay {
  v16 g[Q], u[Q], v[Q], s[Q];  // gamma, written, value, sigmoid
};
static inline void decay(const Pdr &a, const float *row, int64_t at, Decay &d) {
  for (int q = 0; q < Q; q++) {
    d.s[q] = vsig(CV(row + at + q * 16) + CV(a.bias + at + q * 16));
    d.g[q] = a.low + a.range * d.s[q];
    d.v[q] = CV(row + a.E + 2 * a.r + at + q * 16);
    d.u[q] = a.convex ? (1.f - d.g[q]) * d.v[q] : d.v[q];
  }
}

// s0, sT [B,r,E]; o [B,T,E]; kept [B, E/W, ceil(T/CH), r, W] or null
extern "C" void pdr_fwd(const Pdr *pa, const float *s0, float *o, float *kept, float *sT) {
  const Pdr a = *pa;
  const int64_t wide = 2 * a.E + 2 * a.r, nc = (a.T + CH - 1) / CH, r = a.r;
#pragma omp parallel for schedule(dynamic)
  for (int64_t b = 0; b < a.B; b++) {
    FlushToZero flush;
    std::vector<float> kq(a.T * 2 * r), inv(a.T * 2);
    units(a, b, kq.data(), inv.data());
    alignas(64) float S[MAX_RANK * W];
    for (int64_t at = 0; at < a.E; at += W) {
      for (int64_t j = 0; j < r; j++) memcpy(S + j * W, s0 + (b * r + j) * a.E + at, W * 4);
      float *keep = kept ? kept + (b * (a.E / W) + at / W) * nc * r * W : nullptr;
      for (int64_t t = 0; t < a.T; t++) {
        if (keep && t % CH == 0) memcpy(keep + t / CH * r * W, S, r * W * 4);
        Decay d;
        decay(a, a.x + (b * a.T + t) * wide, at, d);
        const float *k = kq.data() + 2 * t * r, *qq = k + r;
        v16 y[Q] = {};
        for (int64_t j = 0; j < r; j++)
          for (int q = 0; q < Q; q++) {
            v16 s = CV(S + j * W + q * 16) * d.g[q] + d.u[q] * k[j];
            V(S + j * W + q * 16) = s;
            y[q] += s * qq[j];
          }
        for (int q = 0; q < Q; q++) V(o + (b * a.T + t) * a.E + at + q * 16) = y[q];
      }
      for (int64_t j = 0; j < r; j++) memcpy(sT + (b * r + j) * a.E + at, S + j * W, W * 4);
    }
  }
}

// dx as x; dbias [B,E]. No gradient flows into the carried-in state.
extern "C" void pdr_bwd(const Pdr *pa, const float *kept, const float *dout, float *dx, float *dbias) {
  const Pdr a = *pa;
  const int64_t wide = 2 * a.E + 2 * a.r, nc = (a.T + CH - 1) / CH, r = a.r;
#pragma omp parallel for schedule(dynamic)
  for (int64_t b = 0; b < a.B; b++) {
    FlushToZero flush;
    std::vector<float> kq(a.T * 2 * r), inv(a.T * 2), dkq(a.T * 2 * r, 0.f), states((CH + 1) * r * W + 16);
    float *S = (float *)(((uintptr_t)states.data() + 63) & ~(uintptr_t)63);
    units(a, b, kq.data(), inv.data());
    for (int64_t at = 0; at < a.E; at += W) {
      alignas(64) float G[MAX_RANK * W] = {0};
      v16 P[2][MAX_RANK], db[Q] = {};
      for (int64_t c = nc - 1; c >= 0; c--) {
        const int64_t t0 = c * CH, n = a.T - t0 < CH ? a.T - t0 : CH;
        Decay d[CH];
        memcpy(S, kept + ((b * (a.E / W) + at / W) * nc + c) * r * W, r * W * 4);
        for (int64_t i = 0; i < n; i++) {
          decay(a, a.x + (b * a.T + t0 + i) * wide, at, d[i]);
          const float *k = kq.data() + 2 * (t0 + i) * r, *from = S + i * r * W;
          float *to = S + (i + 1) * r * W;
          for (int64_t j = 0; j < r; j++)
            for (int q = 0; q < Q; q++)
              V(to + j * W + q * 16) = CV(from + j * W + q * 16) * d[i].g[q] + d[i].u[q] * k[j];
        }
        for (int64_t i = n - 1; i >= 0; i--) {
          const int64_t row = b * a.T + t0 + i;
          const float *k = kq.data() + 2 * (t0 + i) * r, *qq = k + r, *S0 = S + i * r * W, *S1 = S0 + r * W;
          v16 dy[Q], du[Q] = {}, dg[Q] = {};
          for (int q = 0; q < Q; q++) dy[q] = CV(dout + row * a.E + at + q * 16);
          for (int64_t j = 0; j < r; j++) {
            v16 pk = {}, pq = {};
            for (int q = 0; q < Q; q++) {
              v16 g = CV(G + j * W + q * 16) + dy[q] * qq[j];
              pq += CV(S1 + j * W + q * 16) * dy[q];
              pk += g * d[i].u[q];
              du[q] += g * k[j];
              dg[q] += g * CV(S0 + j * W + q * 16);
              V(G + j * W + q * 16) = g * d[i].g[q];
            }
            P[0][j] = pk;
            P[1][j] = pq;
          }
          float *dk = dkq.data() + 2 * (t0 + i) * r;
          for (int side = 0; side < 2; side++)
            for (int64_t j = 0; j < r; j += 16) V(dk + side * r + j) += sum16(P[side] + j);
          for (int q = 0; q < Q; q++) {
            v16 dgamma = dg[q], dv = du[q];
            if (a.convex) {
              dgamma -= d[i].v[q] * du[q];
              dv = (1.f - d[i].g[q]) * du[q];
            }
            v16 dp = dgamma * a.range * d[i].s[q] * (1.f - d[i].s[q]);
            db[q] += dp;
            V(dx + row * wide + at + q * 16) = dp;
            V(dx + row * wide + a.E + 2 * r + at + q * 16) = dv;
          }
        }
      }
      for (int q = 0; q < Q; q++) V(dbias + b * a.E + at + q * 16) = db[q];
    }
    for (int64_t t = 0; t < a.T; t++)  // through unit(): x i -> i (g - u (u . g))
      for (int side = 0; side < 2; side++) {
        const float *u = kq.data() + (2 * t + side) * r, *g = dkq.data() + (2 * t + side) * r;
        float *to = dx + (b * a.T + t) * wide + a.E + side * r;
        v16 s = {};
        for (int64_t j = 0; j < r; j += 16) s += CV(u + j) * CV(g + j);
        const float dot = hsum(s), i = inv[2 * t + side];
        for (int64_t j = 0; j < r; j += 16) V(to + j) = (CV(g + j) - CV(u + j) * dot) * i;
      }
  }
}

// ---------------------------------------------------------------- rms

extern "C" void rms_fwd(int64_t n, int64_t D, float eps, const float *x, const float *g, float *y, float *inv) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < n; row++) {
    const float *a = x + row * D;
    v16 s = {};
    for (int64_t i = 0; i < D; i += 16) s += CV(a + i) * CV(a + i);
    const float k = inv[row] = 1.f / sqrtf(hsum(s) / D + eps);
    for (int64_t i = 0; i < D; i += 16) V(y + row * D + i) = CV(a + i) * k * CV(g + i);
  }
}

// dg: [threads, D] zeroed by the caller
extern "C" void rms_bwd(int64_t n, int64_t D, const float *x, const float *g, const float *inv, const float *dy,
                        float *dx, float *dg) {
#pragma omp parallel
  {
    float *acc = dg + omp_get_thread_num() * D;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < n; row++) {
      const float *a = x + row * D, *d = dy + row * D, k = inv[row];
      v16 s = {};
      for (int64_t i = 0; i < D; i += 16) {
        s += CV(a + i) * CV(d + i) * CV(g + i);
        V(acc + i) += CV(d + i) * CV(a + i) * k;
      }
      const float m = hsum(s) / D * k * k * k;
      for (int64_t i = 0; i < D; i += 16) V(dx + row * D + i) = CV(d + i) * CV(g + i) * k - CV(a + i) * m;
    }
  }
}

// ---------------------------------------------------------------- rows of experts

// One group, G numbers, rounded to int8 and back: s = max|x| / 127, x -> s round(x / s)
static inline void rounded(const v16 *x, int vectors, bf16 *to) {
  v16 m = {};
  for (int i = 0; i < vectors; i++) {
    v16 a = (v16)_mm512_and_epi32((__m512i)x[i], _mm512_set1_epi32(0x7fffffff));
    m = m > a ? m : a;
  }
  float top = 0;
  for (int i = 0; i < 16; i++) top = m[i] > top ? m[i] : top;
  const float s = top / 127.f, inv = top > 0 ? 127.f / top : 0.f;
  for (int i = 0; i < vectors; i++)
    put(to + i * 16, (v16)_mm512_roundscale_ps((__m512)(x[i] * inv), 8) * s);
}

// out[i] = x[order[i]], rounded by groups of G (a multiple of 16, at most 64) or, G = 0, as it is; zeros where order[i] < 0
extern "C" void gather(int64_t n, int64_t D, int64_t G, const float *x, const int64_t *order, bf16 *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) {
    bf16 *to = out + i * D;
    if (order[i] < 0) { memset(to, 0, D * 2); continue; }
    const float *a = x + order[i] * D;
    if (!G) { for (int64_t j = 0; j < D; j += 16) put(to + j, CV(a + j)); continue; }
    for (int64_t j = 0; j < D; j += G) {
      v16 part[4];
      for (int q = 0; q < G / 16; q++) part[q] = CV(a + j + q * 16);
      rounded(part, G / 16, to + j);
    }
  }
}

// y[order[i]] = a[i] + b[i]
extern "C" void scatter(int64_t n, int64_t D, const bf16 *a, const bf16 *b, const int64_t *order, float *y) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) {
    if (order[i] < 0) continue;
    float *to = y + order[i] * D;
    for (int64_t j = 0; j < D; j += 16) V(to + j) = get(a + i * D + j) + get(b + i * D + j);
  }
}

// h [n, 2I] = gate up -> out [n, I] = round( silu(gate) * up )
extern "C" void glu_fwd(int64_t n, int64_t I, int64_t G, const bf16 *h, bf16 *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < I; j += G) {
      v16 part[4];
      for (int q = 0; q < G / 16; q++) {
        v16 g = get(h + i * 2 * I + j + q * 16);
        part[q] = g * vsig(g) * get(h + i * 2 * I + I + j + q * 16);
      }
      rounded(part, G / 16, out + i * I + j);
    }
}

// straight through the rounding
extern "C" void glu_bwd(int64_t n, int64_t I, const bf16 *h, const bf16 *dout, bf16 *dh) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < I; j += 16) {
      v16 g = get(h + i * 2 * I + j), u = get(h + i * 2 * I + I + j), d = get(dout + i * I + j), s = vsig(g);
      put(dh + i * 2 * I + j, d * u * s * (1.f + g * (1.f - s)));
      put(dh + i * 2 * I + I + j, d * g * s);
    }
}

// ---------------------------------------------------------------- ternary weights

// w [groups, G] -> out [groups, G] = code * scale; the absmean rule of docs/formats.md, in f32
extern "C" void ternary(int64_t groups, int64_t G, const float *w, bf16 *out) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < groups; i++) {
    const float *a = w + i * G;
    v16 s = {};
    for (int64_t j = 0; j < G; j += 16) s += (v16)_mm512_and_epi32((__m512i)CV(a + j), _mm512_set1_epi32(0x7fffffff));
    const float mean = _cvtsh_ss(_cvtss_sh(hsum(s) / G, 0)), half = 0.5f * mean;
    v16 with = {}, count = {};
    v16 code[4];
    for (int64_t j = 0; j < G; j += 16) {
      v16 x = CV(a + j);
      v16 t = (x > splat(half) ? splat(1.f) : splat(0.f)) - (x < splat(-half) ? splat(1.f) : splat(0.f));
      code[j / 16] = t;
      with += x * t;
      count += t * t;
    }
    const float c = hsum(count), scale = c > 0 ? _cvtsh_ss(_cvtss_sh(hsum(with) / c, 0)) : mean;
    for (int64_t j = 0; j < G; j += 16) put(out + i * G + j, code[j / 16] * scale);
  }
}

extern "C" int max_threads() { return omp_get_max_threads(); }
