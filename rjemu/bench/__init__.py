"""What `rjemu bench` measures: kernels, numpy's counterparts, and the figures that rjemu aims for."""
