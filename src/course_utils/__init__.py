"""The autograder of the course on JIT and fusion in JAX, and the instruments it measures with."""
