// A running sum of affine points of ${GROUP}, in XYZZ coordinates (madd-2008-s; see points.wgsl).
//
// ZZ and ZZZ take part in four of the ten products and are kept in workgroup memory: their
// registers are worth more as threads. A kernel that imports this has 64 invocations.
struct Sum { x: ${ET}, y: ${ET}, empty: bool }

#let V = QWORDS / 4
#let PARTS = 1 + (GROUP == g2)
// Coordinate c (0: ZZ, 1: ZZZ), part p, vec4 k of invocation i at ((c·parts + p)·${V} + k)·64 + i.
var<workgroup> sum_z: array<vec4<u32>, ${2 * PARTS * V * 64}>;

fn sum_z_load(c: u32, i: u32) -> ${ET} {
  let at = c * ${PARTS * V * 64}u + i;
#if PARTS == 1
  return fq_unpack(#{k in 0..V;, ;sum_z[at + ${64 * k}u]});
#else
  return Fq2(
    fq_unpack(#{k in 0..V;, ;sum_z[at + ${64 * k}u]}),
    fq_unpack(#{k in 0..V;, ;sum_z[at + ${64 * (V + k)}u]}),
  );
#end
}
fn sum_z_store(c: u32, i: u32, z: ${ET}) {
  let at = c * ${PARTS * V * 64}u + i;
#for k in 0..V
#if PARTS == 1
  sum_z[at + ${64 * k}u] = fq_pack${k}(z);
#else
  sum_z[at + ${64 * k}u] = fq_pack${k}(z.c0);
  sum_z[at + ${64 * (V + k)}u] = fq_pack${k}(z.c1);
#end
#end
}

// The empty sum of invocation i.
fn sum_empty(i: u32) -> Sum {
  sum_z_store(0u, i, ${E}_one());
  sum_z_store(1u, i, ${E}_one());
  return Sum(${E}_zero(), ${E}_zero(), true);
}

fn sum_point(s: Sum, i: u32) -> Point {
  if (s.empty) { return point_infinity(); }
  return Point(s.x, s.y, sum_z_load(0u, i), sum_z_load(1u, i));
}

// s + (qx, qy) for a point that is not infinity.
fn sum_add(s: Sum, i: u32, qx: ${ET}, qy: ${ET}) -> Sum {
  var x = s.x;  // then Q
  var y = s.y;
  var t = qx;  // U2, P, then the sum's X
  var u = qy;  // S2, then R
  var v = x;  // PP
  var w = x;  // PPP
  var doubling = false;
  let steps = 11u + params.launch.zero;
  for (var step = 0u; step < steps; step++) {
    var a = t;
    var b = t;
    switch step {
      case 0u: {
        b = sum_z_load(0u, i);
      }
      case 1u: {
        a = u;
        b = sum_z_load(1u, i);
      }
      case 2u: {
        a = x;
        b = x;
      }
      case 3u: {}
      case 4u: {
        b = v;
      }
      case 5u: {
        a = x;
        b = v;
      }
      case 6u: {
        a = u;
        b = u;
      }
      case 7u: {
        a = y;
        b = w;
      }
      case 8u: {
        a = u;
        b = x;
      }
      case 9u: {
        a = v;
        b = sum_z_load(0u, i);
      }
      default: {
        a = w;
        b = sum_z_load(1u, i);
      }
    }
    let m = ${E}_mul(a, b);
    switch step {
      case 0u: {
        t = m;
      }
      case 1u: {
        // With ZZ = ZZZ = 1 the products are q.
        if (s.empty) { return Sum(t, m, false); }
        t = ${E}_sub(t, x);
        u = ${E}_sub(m, y);
        doubling = ${E}_is_zero(t);
        if (doubling) {
          if (!${E}_is_zero(u)) { return sum_empty(i); }
          t = ${E}_double(y);
        } else {
          step = 2u;  // only a doubling needs 3·X²
        }
      }
      case 2u: {
        u = ${E}_add(${E}_double(m), m);
      }
      case 3u: {
        v = m;
      }
      case 4u: {
        w = m;
      }
      case 5u: {
        x = m;
      }
      case 6u: {
        t = ${E}_sub(m, ${E}_double(x));
        if (!doubling) { t = ${E}_sub(t, w); }
        x = ${E}_sub(x, t);
      }
      case 7u: {
        y = m;
      }
      case 8u: {
        y = ${E}_sub(m, y);
      }
      case 9u: {
        sum_z_store(0u, i, m);
      }
      default: {
        sum_z_store(1u, i, m);
      }
    }
  }
  return Sum(t, y, false);
}
