// Affine points at rest in the buffer bases: (x, y), infinity as all zeros.
fn base_is_infinity(i: u32) -> bool {
  let k = i * ${POINT_VEC4S}u;
  let any = #{j in 0..POINT_VEC4S; | ;bases[k + ${j}u]};
  return all(any == vec4<u32>(0u));
}
fn base_x(i: u32) -> ${ET} { return ${E}_load_up_bases(2u * i); }
fn base_y(i: u32) -> ${ET} { return ${E}_load_up_bases(2u * i + 1u); }
