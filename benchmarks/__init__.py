"""What the router costs, as ratios within one run: see `docs/benchmarks.md`."""
