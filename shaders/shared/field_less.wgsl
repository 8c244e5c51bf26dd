// a − ${TIMES}p where that is not negative, else a.
fn ${F}_less_${TIMES}p(a: ${T}) -> ${T} {
#for i in 0..N
#if i == 0
  let d0 = i32(a.l0) - ${amount[0]};
#else
  let d${i} = i32(a.l${i}) - ${amount[i]} + (d${i - 1} >> ${W}u);
#end
#end
  let keep = d${N - 1} < 0;
  return ${T}(#{i in 0..N;, ;select(u32(d${i}) & ${F}_MASK, a.l${i}, keep)});
}
