// The scalar field.
#import field F=fr T=Fr N=RN W=RW WORDS=RWORDS MASK=RMASK EVERY=REVERY ROWS=RROWS UP_SHIFT=RUP inv=rinv p=rp two_p=rtwo_p up_p=rup_p one=rone
#import field_io F=fr T=Fr N=RN W=RW WORDS=RWORDS UP_SHIFT=RUP
