"""Grades a file: reads it, runs its code in a process of its own, and ends that process.

`source` reads files, `child` is the program that runs in the fresh process, `supervise` is the
parent that bounds and ends it, and `grade_file` joins them and says what came of it. It knows labs
only by name; JAX is loaded in the child alone.
"""
