// The coordinate field of ${GROUP}: Fq, or its quadratic extension.
#import field F=fq T=Fq N=QN W=QW WORDS=QWORDS MASK=QMASK EVERY=QEVERY ROWS=QROWS UP_SHIFT=QUP inv=qinv p=qp two_p=qtwo_p up_p=qup_p one=qone
#import field_io F=fq T=Fq N=QN W=QW WORDS=QWORDS UP_SHIFT=QUP
#if GROUP == g2
#import quadratic
#end
