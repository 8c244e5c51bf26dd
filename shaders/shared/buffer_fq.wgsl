// Access to Fq elements of the storage buffer ${BUF}.
#import buffer_field F=fq T=Fq N=QN WORDS=QWORDS BUF=BUF
