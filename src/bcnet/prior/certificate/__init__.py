"""Solver of the prior's QCQP with a certificate: a lower bound on the optimum, and the gap to it."""
