"""How fast Dyno itself is, against the naive way and bare loops. `make bench` runs all, writes docs/results/."""
