// Fq2 = Fq[u]/(u² + 1), which both curves use.
struct Fq2 { c0: Fq, c1: Fq }

fn fq2_zero() -> Fq2 { return Fq2(fq_zero(), fq_zero()); }
fn fq2_one() -> Fq2 { return Fq2(fq_one(), fq_zero()); }
fn fq2_add(a: Fq2, b: Fq2) -> Fq2 { return Fq2(fq_add(a.c0, b.c0), fq_add(a.c1, b.c1)); }
fn fq2_sub(a: Fq2, b: Fq2) -> Fq2 { return Fq2(fq_sub(a.c0, b.c0), fq_sub(a.c1, b.c1)); }
fn fq2_double(a: Fq2) -> Fq2 { return fq2_add(a, a); }
fn fq2_negate_up(a: Fq2) -> Fq2 { return Fq2(fq_negate_up(a.c0), fq_negate_up(a.c1)); }
fn fq2_canon(a: Fq2) -> Fq2 { return Fq2(fq_canon(a.c0), fq_canon(a.c1)); }
fn fq2_is_zero(a: Fq2) -> bool { return fq_is_zero(a.c0) && fq_is_zero(a.c1); }

// Karatsuba: three products through one multiplication body, for compile time and registers.
fn fq2_mul(a: Fq2, b: Fq2) -> Fq2 {
  var x = a.c0;
  var y = b.c0;
  var v0 = x;
  var v1 = x;
  var v2 = x;
  for (var k = 0u; k < 3u + params.launch.zero; k++) {
    let m = fq_mul(x, y);
    switch k {
      case 0u: {
        v0 = m;
        x = a.c1;
        y = b.c1;
      }
      case 1u: {
        v1 = m;
        x = fq_add(a.c0, a.c1);
        y = fq_add(b.c0, b.c1);
      }
      default: {
        v2 = m;
      }
    }
  }
  return Fq2(fq_sub(v0, v1), fq_sub(fq_sub(v2, v0), v1));
}
