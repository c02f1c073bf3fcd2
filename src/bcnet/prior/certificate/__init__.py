"""The prior's QCQP solved with a certificate: a lower bound on the optimum and the gap to it."""
