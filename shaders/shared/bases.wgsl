// Affine points in working form in the buffer bases: (x, y), infinity as all zeros. Their
// ${POINT_VEC4S} vec4s are `step` apart.
struct Base { #{j in 0..POINT_VEC4S;, ;w${j}: vec4<u32>} }

fn base_load(at: u32, step: u32) -> Base {
  return Base(#{j in 0..POINT_VEC4S;, ;bases[at + ${j}u * step]});
}
fn base_is_infinity(b: Base) -> bool {
  let any = #{j in 0..POINT_VEC4S; | ;b.w${j}};
  return all(any == vec4<u32>(0u));
}
#let V = QWORDS / 4
#if GROUP == g1
fn base_x(b: Base) -> Fq { return fq_unpack(#{j in 0..V;, ;b.w${j}}); }
fn base_y(b: Base) -> Fq { return fq_unpack(#{j in 0..V;, ;b.w${V + j}}); }
#else
fn base_x(b: Base) -> Fq2 {
  return Fq2(fq_unpack(#{j in 0..V;, ;b.w${j}}), fq_unpack(#{j in 0..V;, ;b.w${V + j}}));
}
fn base_y(b: Base) -> Fq2 {
  return Fq2(fq_unpack(#{j in 0..V;, ;b.w${2 * V + j}}), fq_unpack(#{j in 0..V;, ;b.w${3 * V + j}}));
}
#end
