#for j in 1..N
    t${j} += t${j - 1} >> ${W}u;
    t${j - 1} &= ${MASK}${LIT};
#end
