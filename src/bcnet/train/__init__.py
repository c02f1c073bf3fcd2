"""Training of supernets and networks: one loop, recipes, strategies."""
