// a − b + ${TIMES}p, for b below ${TIMES}p; b may be loose.
fn ${F}_sub_${TIMES}p(a: ${T}, b: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - i32(b.l0) + ${multiple[0]};
#else
  let d${i} = i32(a.l${i}) - i32(b.l${i}) + ${multiple[i]} + (d${i - 1} >> ${W}u);
#end
#end
  return ${T}(#{i in 0..N;, ;u32(d${i}) & ${F}_MASK});
}
