#import field_slack F=fr T=Fr N=RN W=RW WORDS=RWORDS MASK=RMASK TOP=RTOP QUOTIENT=RQUOTIENT FOUR_TOP=RFOUR_TOP two_p=rtwo_p four_p=rfour_p eight_p=reight_p
