// Access to Fr elements of the storage buffer ${BUF}.
#import buffer_field F=fr T=Fr N=RN WORDS=RWORDS BUF=BUF
