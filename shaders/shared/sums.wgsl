// A running sum of affine points of ${GROUP}, in XYZZ coordinates (madd-2008-s; see points.wgsl).
//
// ZZ and ZZZ take part in four of the ten products and are kept in workgroup memory: their
// registers are worth more as threads. A kernel that imports this has 64 invocations.
// x is lax, y below 2p.
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

// The sum that begins with a point.
fn sum_from(p: Point, i: u32) -> Sum {
  if (point_is_infinity(p)) { return sum_empty(i); }
  sum_z_store(0u, i, p.zz);
  sum_z_store(1u, i, p.zzz);
  return Sum(p.x, p.y, false);
}

fn sum_point(s: Sum, i: u32) -> Point {
  if (s.empty) { return point_infinity(); }
  return Point(${E}_settle(s.x), s.y, sum_z_load(0u, i), sum_z_load(1u, i));
}

// s + (qx, qy) for a point that is not infinity, of lax coordinates.
fn sum_add(s: Sum, i: u32, qx: ${ET}, qy: ${ET}) -> Sum {
  var x = s.x;  // then Q, then Q − X'
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
      case 2u: {}
      case 3u: {
        a = x;
        b = x;
      }
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
        a = v;
        b = sum_z_load(0u, i);
      }
      case 9u: {
        a = y;
        b = w;
      }
      case 10u: {
        a = u;
        b = x;
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
        t = ${E}_sub_lax(t, x);
        u = ${E}_sub_lax(m, y);
      }
      case 2u: {
        v = m;
        if (${E}_is_zero(m) && !doubling) {
          // P = 0: the points are equal or opposite.
          if (!${E}_is_zero(${E}_settle(u))) { return sum_empty(i); }
          t = ${E}_double(y);
          doubling = true;
        } else {
          step = 3u;  // only a doubling needs 3·X²
        }
      }
      case 3u: {
        u = ${E}_add(${E}_double(m), m);
        step = 1u;
      }
      case 4u: {
        w = m;
      }
      case 5u: {
        x = m;
      }
      case 6u: {
        var ppp = w;
        if (doubling) { ppp = ${E}_zero(); }
        t = ${E}_sub_twice_lax(m, x, ppp);
        x = ${E}_sub_lax(x, t);
      }
      case 7u: {
        sum_z_store(0u, i, m);
      }
      case 9u: {
        y = m;
      }
      case 10u: {
        y = ${E}_sub(m, y);
      }
      default: {
        sum_z_store(1u, i, m);
      }
    }
  }
  return Sum(t, y, false);
}
