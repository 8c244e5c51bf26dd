// The prime field ${F} in lazily reduced Montgomery form: ${N} limbs of ${W} bits, values below 2p.
//
// Working form of x: x·2^${N * W} mod p. Form at rest: x·2^(32·${WORDS}) mod p, canonical, packed
// into ${WORDS} words. Multiplying a form at rest by 2^${N * W - 32 * WORDS}, a shift when it is
// loaded, gives the working form, not reduced below 2p but good as one factor of a product.
//
// Multiplication is the interleaved Montgomery product with delayed carries: a column collects
// products in ${ACC} and is carried only every ${EVERY} rows, as often as it could overflow
// (Koç, Acar, Kaliski 1996, "Analyzing and comparing Montgomery multiplication algorithms", CIOS;
// reduced-radix form as in Mitscha-Baude, "Montgomery multiplication for WebAssembly").

struct ${T} { #{i in 0..N;, ;l${i}: u32} }

const ${F}_MASK: u32 = ${MASK}u;

fn ${F}_zero() -> ${T} { return ${T}(#{i in 0..N;, ;0u}); }
// 1 in working form.
fn ${F}_one() -> ${T} { return ${T}(#{i in 0..N;, ;${one[i]}u}); }

fn ${F}_add(a: ${T}, b: ${T}) -> ${T} {
  // a + b − 2p, then 2p back where that is negative.
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0 + b.l0) - ${two_p[0]};
#else
  let d${i} = i32(a.l${i} + b.l${i}) - ${two_p[i]} + (d${i - 1} >> ${W}u);
#end
#end
  return ${F}_add_back(${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK}), u32(d${N - 1} >> 31u));
}

fn ${F}_sub(a: ${T}, b: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - i32(b.l0);
#else
  let d${i} = i32(a.l${i}) - i32(b.l${i}) + (d${i - 1} >> ${W}u);
#end
#end
  return ${F}_add_back(${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK}), u32(d${N - 1} >> 31u));
}

// a + 2p, modulo 2^${N * W}, where mask is all ones; a where it is 0.
fn ${F}_add_back(a: ${T}, mask: u32) -> ${T} {
#for i in 0..N
#if i == 0
  let s0 = a.l0 + (${two_p[0]}u & mask);
#else
  let s${i} = a.l${i} + (${two_p[i]}u & mask) + (s${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;s${i} & ${F}_MASK});
}

fn ${F}_double(a: ${T}) -> ${T} { return ${F}_add(a, a); }

// The representative below p of a value below 2p.
fn ${F}_canon(a: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - ${p[0]};
#else
  let d${i} = i32(a.l${i}) - ${p[i]} + (d${i - 1} >> ${W}u);
#end
#end
  let keep = d${N - 1} < 0;
  return ${T}(#{i in 0..N;, ;select(u32(d${i}) & ${F}_MASK, a.l${i}, keep)});
}

// Whether a value below 2p is 0 modulo p.
fn ${F}_is_zero(a: ${T}) -> bool {
  let zero = #{i in 0..N; | ;a.l${i}};
  let is_p = #{i in 0..N; | ;(a.l${i} ^ ${p[i]}u)};
  return zero == 0u || is_p == 0u;
}

fn ${F}_mul(a: ${T}, b: ${T}) -> ${T} {
#for j in 0..N
  let b${j} = ${ACC}(b.l${j});
  var t${j} = ${ACC}(0);
#end
#import field_mul_body DOT=0
}
