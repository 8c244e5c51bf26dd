// The coordinate field of ${GROUP}: Fq, or its quadratic extension. FORMS: lax for all that point
// formulas need, strict for the plain field.
#import field F=fq T=Fq N=QN W=QW WORDS=QWORDS MASK=QMASK EVERY=QEVERY ROWS=QROWS UP_SHIFT=QUP inv=qinv p=qp two_p=qtwo_p up_p=qup_p one=qone
#import field_io F=fq T=Fq N=QN W=QW WORDS=QWORDS UP_SHIFT=QUP
#if FORMS == lax
#import field_lax F=fq T=Fq N=QN W=QW MASK=QMASK ROWS=QROWS LAX=QLAX LAX_RATIO=QLAX_RATIO DOT_EVERY=QDOT_EVERY inv=qinv p=qp two_p=qtwo_p four_p=qfour_p lax_p=qlax_p negate_p=qnegate_p
#end
#if GROUP == g2
#import quadratic
#end
